//! Log files as lines of text or JSON.
use crate::errors::PyLogError;
use kraftlog_log::record::RecordRef;
use kraftlog_log::scan::{AbortedRanges, Describe, DumpFormat, DumpOptions, FileDump};
use kraftlog_log::segment::AbortedTransaction;
use kraftlog_log::{Error, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The lines of a file, some at a time.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
struct LogDump {
    state: Mutex<State>,
    describe: Option<Py<PyAny>>,
    describes_data: bool,
}

struct State {
    dump: FileDump,
    /// What ended the dump after the lines that were given last.
    failure: Option<PyErr>,
}

/// Asks a Python callable for words; without one the plain form stands.
struct Asked<'a> {
    callable: Option<&'a Py<PyAny>>,
    /// It is asked about every record, not only about those of control batches.
    describes_data: bool,
    raised: Option<PyErr>,
}

impl Asked<'_> {
    fn ask(
        &mut self,
        out: &mut Vec<u8>,
        record: &RecordRef<'_>,
        is_control: bool,
        before: &str,
    ) -> Result<bool> {
        let Some(callable) = self.callable else { return Ok(false) };
        let answer = Python::attach(|py| {
            let key = record.key.map(|key| PyBytes::new(py, key));
            let value = record.value.map(|value| PyBytes::new(py, value));
            callable.call1(py, (record.offset, key, value, is_control, before))?.extract(py)
        });
        match answer {
            Ok(None::<PyBackedStr>) => Ok(false),
            Ok(Some(text)) => {
                out.extend_from_slice(text.as_bytes());
                Ok(true)
            }
            Err(error) => {
                self.raised = Some(error);
                Err(Error::Invalid("a describing function raised".to_owned()))
            }
        }
    }
}

impl Describe for Asked<'_> {
    fn control(&mut self, out: &mut Vec<u8>, record: &RecordRef<'_>) -> Result<bool> {
        self.ask(out, record, true, "")
    }

    fn contents(&mut self, out: &mut Vec<u8>, record: &RecordRef<'_>, before: &str) -> Result<bool> {
        if !self.describes_data {
            return Ok(false);
        }
        self.ask(out, record, false, before)
    }
}

#[pymethods]
impl LogDump {
    #[new]
    #[pyo3(signature = (path, *, form, records=false, data=false, record_metadata=true, max_bytes=None,
                        start_offset=None, end_offset=None, from_timestamp=None, to_timestamp=None,
                        aborted=None, first_members="", describe=None, describes_data=false))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        path: PathBuf,
        form: &str,
        records: bool,
        data: bool,
        record_metadata: bool,
        max_bytes: Option<u64>,
        start_offset: Option<i64>,
        end_offset: Option<i64>,
        from_timestamp: Option<i64>,
        to_timestamp: Option<i64>,
        aborted: Option<Vec<(i64, i64, i64)>>,
        first_members: &str,
        describe: Option<Py<PyAny>>,
        describes_data: bool,
    ) -> PyResult<Self> {
        let format = match form {
            "text" => DumpFormat::Text,
            "json" => DumpFormat::Json { first_members: first_members.to_owned() },
            _ => return Err(PyValueError::new_err(format!("form is text or json, not {form:?}"))),
        };
        let options = DumpOptions {
            format,
            records,
            data,
            record_metadata,
            max_bytes: max_bytes.unwrap_or(u64::MAX),
            start_offset: start_offset.unwrap_or(i64::MIN),
            end_offset: end_offset.unwrap_or(i64::MAX),
            from_timestamp: from_timestamp.unwrap_or(i64::MIN),
            to_timestamp,
            aborted: AbortedRanges::new(
                &aborted.unwrap_or_default().into_iter().map(aborted_transaction).collect::<Vec<_>>(),
            ),
        };
        let dump = FileDump::open(&path, options).map_err(PyLogError)?;
        Ok(Self { state: Mutex::new(State { dump, failure: None }), describe, describes_data })
    }

    #[getter]
    fn position(&self) -> u64 {
        self.locked().dump.position()
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.locked().dump.size_bytes()
    }

    #[getter]
    fn gaps(&self) -> Vec<(i64, i64)> {
        self.locked().dump.gaps().to_vec()
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let lines = py.detach(|| {
            let mut state = self.locked();
            if let Some(error) = state.failure.take() {
                return Err(error);
            }
            let mut asked =
                Asked { callable: self.describe.as_ref(), describes_data: self.describes_data, raised: None };
            let mut lines = Vec::new();
            if let Err(error) = state.dump.next_lines(&mut lines, &mut asked) {
                let error = asked.raised.take().unwrap_or_else(|| PyLogError(error).into());
                if lines.is_empty() {
                    return Err(error);
                }
                // The lines before come first.
                state.failure = Some(error);
            }
            Ok(lines)
        })?;
        Ok(if lines.is_empty() { None } else { Some(PyBytes::new(py, &lines)) })
    }
}

/// Producer id, first offset and offset of the marker.
fn aborted_transaction((producer_id, first_offset, last_offset): (i64, i64, i64)) -> AbortedTransaction {
    AbortedTransaction { producer_id, first_offset, last_offset, last_stable_offset: first_offset }
}

impl LogDump {
    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<LogDump>()
}
