//! Arrow batches that Python gives one by one, as a stream for every reader of the Arrow PyCapsule interface.
use crate::arrow::{ArrowBatch, ArrowStream, BatchSource};
use crate::arrow_request::Representation;
use arrow_array::RecordBatch;
use kraftlog_log::columns::{BinaryType, TimestampUnit};
use kraftlog_log::scan::Report;
use kraftlog_log::{Error, Result};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// One pass: the iterator that `open` returned, or why it returned none.
struct PythonBatches {
    iterator: std::result::Result<Py<PyAny>, String>,
    report: Arc<Report>,
}

fn text_of(py: Python<'_>, error: &PyErr) -> String {
    let name = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    format!("{name}: {}", error.value(py))
}

fn ended<T>(found: Option<Result<T>>) -> Result<T> {
    found.unwrap_or_else(|| Err(Error::Invalid("the interpreter has ended".to_owned())))
}

impl PythonBatches {
    fn open(open: &Py<PyAny>, wanted: Representation) -> Self {
        let iterator = Python::try_attach(|py| {
            let binary_type = wanted.binary_type.map(|kind| match kind {
                BinaryType::Binary => "binary",
                BinaryType::LargeBinary => "large_binary",
                BinaryType::BinaryView => "binary_view",
            });
            let unit = wanted.timestamp_unit.map(|unit| match unit {
                TimestampUnit::Millisecond => "ms",
                TimestampUnit::Microsecond => "us",
            });
            let batches = open.bind(py).call1((binary_type, unit, wanted.topic_dictionary));
            let iterator = batches.and_then(|batches| Ok(batches.try_iter()?.into_any().unbind()));
            iterator.map_err(|error| text_of(py, &error))
        });
        let iterator = iterator.unwrap_or_else(|| Err("the interpreter has ended".to_owned()));
        Self { iterator, report: Arc::default() }
    }
}

impl BatchSource for PythonBatches {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let iterator = self.iterator.as_ref().map_err(|reason| Error::Invalid(reason.clone()))?;
        ended(Python::try_attach(|py| {
            let next = iterator.bind(py).try_iter().map(|mut iterator| iterator.next().transpose());
            let batch = next.and_then(|next| next).and_then(|next| {
                next.map(|batch| Ok(batch.cast::<ArrowBatch>()?.get().0.clone())).transpose()
            });
            batch.map_err(|error: PyErr| Error::Invalid(text_of(py, &error)))
        }))
    }

    fn report(&self) -> Arc<Report> {
        Arc::clone(&self.report)
    }
}

impl Drop for PythonBatches {
    fn drop(&mut self) {
        // A generator holds connections until it is closed.
        if let Ok(iterator) = &self.iterator {
            Python::try_attach(|py| {
                // A reader may drop its stream while an exception of its own is on the way.
                let raised = PyErr::take(py);
                let _ = iterator.bind(py).call_method0(intern!(py, "close"));
                if let Some(raised) = raised {
                    raised.restore(py);
                }
            });
        }
    }
}

#[pyfunction]
#[pyo3(signature = (open, **options))]
fn batch_stream(open: Py<PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<ArrowStream> {
    let schema = super::column_options(options)?.schema();
    Ok(ArrowStream::new(schema, move |wanted| Box::new(PythonBatches::open(&open, wanted))))
}

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(batch_stream, m)?)
}
