//! Record batches: checksum, reading and encoding.
use crate::errors::PyLogError;
use crate::raw::ByteBuffer;
use kraftlog_log::batch::{BatchHeader, BatchView, Batches, HEADER_SIZE};
use kraftlog_log::compression::Codec;
use kraftlog_log::crc::crc32c_append;
use kraftlog_log::record::{Headers, RecordRef};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::sync::Arc;

mod encode;

/// Checksums and header walks of less are shorter than what giving up the lock may cost.
const DETACH_BYTES_MIN: usize = 256 * 1024;
/// The same for bytes to decompress.
const DECOMPRESS_DETACH_BYTES_MIN: usize = 8 * 1024;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(py_crc32c, m)?)?;
    m.add_function(wrap_pyfunction!(read_batches, m)?)?;
    m.add_class::<RecordBatch>()?;
    encode::register(m)
}

#[pyfunction(name = "crc32c", signature = (data, crc = 0))]
fn py_crc32c(py: Python<'_>, data: ByteBuffer, crc: u32) -> u32 {
    let bytes = data.as_slice();
    if bytes.len() < DETACH_BYTES_MIN {
        return crc32c_append(crc, bytes);
    }
    py.detach(|| crc32c_append(crc, bytes))
}

#[pyfunction]
#[pyo3(signature = (data, *, check_crc = true))]
fn read_batches(py: Python<'_>, data: ByteBuffer, check_crc: bool) -> PyResult<Vec<RecordBatch>> {
    let data = Arc::new(data);
    let find = || -> Result<Vec<RecordBatch>, PyLogError> {
        let mut found = Vec::new();
        for batch in Batches::new(data.as_slice()) {
            let batch = batch?;
            if check_crc {
                batch.validate_crc()?;
            }
            found.push(RecordBatch::new(&batch, &data));
        }
        Ok(found)
    };
    let found = if data.as_slice().len() < DETACH_BYTES_MIN { find() } else { py.detach(find) };
    Ok(found?)
}

/// Header of a batch, and the buffer that the records are in.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct RecordBatch {
    data: Arc<ByteBuffer>,
    position: usize,
    header: [u8; HEADER_SIZE],
}

impl RecordBatch {
    fn new(batch: &BatchView<'_>, data: &Arc<ByteBuffer>) -> Self {
        Self { data: data.clone(), position: batch.position() as usize, header: *batch.header().as_bytes() }
    }

    fn header(&self) -> BatchHeader<'_> {
        BatchHeader::new(&self.header)
    }

    /// The batch again, checked again, as someone may have written into the buffer.
    fn view(&self) -> Result<BatchView<'_>, PyLogError> {
        let end = self.position + self.header().size_bytes();
        let bytes = self.data.as_slice().get(self.position..end).unwrap_or_default();
        Ok(BatchView::parse(bytes).map_err(|error| error.located("buffer", self.position as u64))?)
    }
}

#[pymethods]
impl RecordBatch {
    #[getter]
    fn position(&self) -> usize {
        self.position
    }

    #[getter]
    fn size_bytes(&self) -> usize {
        self.header().size_bytes()
    }

    #[getter]
    fn base_offset(&self) -> i64 {
        self.header().base_offset()
    }

    #[getter]
    fn last_offset(&self) -> i64 {
        self.header().last_offset()
    }

    #[getter]
    fn magic(&self) -> i8 {
        self.header().magic()
    }

    #[getter]
    fn crc(&self) -> u32 {
        self.header().crc()
    }

    #[getter]
    fn attributes(&self) -> i16 {
        self.header().attributes()
    }

    #[getter]
    fn compression(&self) -> String {
        match self.header().codec() {
            Ok(codec) => codec.name().to_owned(),
            Err(id) => format!("unknown({id})"),
        }
    }

    #[getter]
    fn timestamp_type(&self) -> &'static str {
        self.header().timestamp_type().name()
    }

    #[getter]
    fn base_timestamp(&self) -> i64 {
        self.header().base_timestamp()
    }

    #[getter]
    fn max_timestamp(&self) -> i64 {
        self.header().max_timestamp()
    }

    #[getter]
    fn partition_leader_epoch(&self) -> i32 {
        self.header().partition_leader_epoch()
    }

    #[getter]
    fn is_transactional(&self) -> bool {
        self.header().is_transactional()
    }

    #[getter]
    fn is_control(&self) -> bool {
        self.header().is_control()
    }

    #[getter]
    fn delete_horizon_ms(&self) -> Option<i64> {
        self.header().delete_horizon_ms()
    }

    #[getter]
    fn producer_id(&self) -> i64 {
        self.header().producer_id()
    }

    #[getter]
    fn producer_epoch(&self) -> i16 {
        self.header().producer_epoch()
    }

    #[getter]
    fn base_sequence(&self) -> i32 {
        self.header().base_sequence()
    }

    #[getter]
    fn last_sequence(&self) -> i32 {
        self.header().last_sequence()
    }

    #[getter]
    fn record_count(&self) -> i32 {
        self.header().record_count()
    }

    fn is_crc_valid(&self, py: Python<'_>) -> PyResult<bool> {
        let batch = self.view()?;
        Ok(if batch.bytes().len() < DETACH_BYTES_MIN {
            batch.validate_crc().is_ok()
        } else {
            py.detach(|| batch.validate_crc().is_ok())
        })
    }

    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list_of(py, |list, record| list.append(record_tuple(py, record)?))
    }

    #[pyo3(signature = (start_offset=0))]
    fn values<'py>(&self, py: Python<'py>, start_offset: i64) -> PyResult<Bound<'py, PyList>> {
        self.list_of(py, |list, record| {
            if record.offset < start_offset {
                Ok(())
            } else {
                list.append(nullable(py, record.value))
            }
        })
    }

    fn message_checksums(&self) -> PyResult<Option<Vec<(u32, bool)>>> {
        self.view()?.message_checksums().map_err(|error| self.locate(error).into())
    }

    fn __repr__(&self) -> String {
        let header = self.header();
        format!(
            "RecordBatch(position={}, size_bytes={}, base_offset={}, last_offset={}, record_count={}, compression={:?})",
            self.position,
            header.size_bytes(),
            header.base_offset(),
            header.last_offset(),
            header.record_count(),
            self.compression()
        )
    }
}

impl RecordBatch {
    /// A list of what `append` makes of each record.
    fn list_of<'py>(
        &self,
        py: Python<'py>,
        append: impl Fn(&Bound<'py, PyList>, &RecordRef<'_>) -> PyResult<()>,
    ) -> PyResult<Bound<'py, PyList>> {
        let batch = self.view()?;
        let mut scratch = Vec::new();
        let is_short = batch.codec() == Ok(Codec::None) || batch.body().len() < DECOMPRESS_DETACH_BYTES_MIN;
        let records =
            if is_short { batch.records(&mut scratch) } else { py.detach(|| batch.records(&mut scratch)) };
        let list = PyList::empty(py);
        for record in records.map_err(|error| self.locate(error))? {
            append(&list, &record.map_err(|error| self.locate(error))?)?;
        }
        Ok(list)
    }

    fn locate(&self, error: kraftlog_log::Error) -> PyLogError {
        PyLogError(error.located("buffer", self.position as u64))
    }
}

fn nullable<'py>(py: Python<'py>, bytes: Option<&[u8]>) -> Option<Bound<'py, PyBytes>> {
    bytes.map(|bytes| PyBytes::new(py, bytes))
}

fn record_tuple<'py>(py: Python<'py>, record: &RecordRef<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let headers = header_list(py, record.headers)?;
    (record.offset, record.timestamp, nullable(py, record.key), nullable(py, record.value), headers)
        .into_pyobject(py)
}

fn header_list<'py>(py: Python<'py>, headers: Headers<'_>) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (key, value) in headers {
        // Kafka reads header keys that are not UTF-8 with U+FFFD in place of the bad bytes.
        let key = PyString::new(py, &String::from_utf8_lossy(key));
        list.append((key, nullable(py, value)))?;
    }
    Ok(list)
}
