//! Arrow IPC files and streams, without any Arrow library on the Python side.
use crate::arrow::{ArrowBatch, ArrowStream};
use crate::errors::PyLogError;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::ArrowError;
use kraftlog_log::Error;
use pyo3::prelude::*;
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

type Sink = BufWriter<File>;

enum Writer {
    File(FileWriter<Sink>),
    Stream(StreamWriter<Sink>),
}

/// Writes batches of one schema to a file, or to stdout.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
struct ArrowFileWriter {
    path: PathBuf,
    /// None once it is closed.
    writer: Mutex<Option<Writer>>,
}

impl ArrowFileWriter {
    fn error(&self, error: ArrowError) -> PyErr {
        let error = match error {
            ArrowError::IoError(_, source) => Error::io("write", &self.path, source),
            other => Error::Invalid(format!("{}: {other}", self.path.display())),
        };
        PyLogError(error).into()
    }
}

#[pymethods]
impl ArrowFileWriter {
    #[new]
    #[pyo3(signature = (path, schema, *, stream=false))]
    fn new(path: Option<PathBuf>, schema: &ArrowStream, stream: bool) -> PyResult<Self> {
        let shown = path.clone().unwrap_or_else(|| PathBuf::from("<stdout>"));
        let file = match path {
            Some(path) => File::create(path),
            // A descriptor of our own: closing it leaves Python's open.
            None => std::io::stdout().as_fd().try_clone_to_owned().map(File::from),
        };
        let file = file.map_err(|source| PyLogError(Error::io("create", &shown, source)))?;
        let sink = BufWriter::new(file);
        let this = Self { path: shown, writer: Mutex::new(None) };
        let writer = if stream {
            StreamWriter::try_new(sink, schema.schema()).map(Writer::Stream)
        } else {
            FileWriter::try_new(sink, schema.schema()).map(Writer::File)
        };
        let writer = writer.map_err(|error| this.error(error))?;
        *this.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
        Ok(this)
    }

    fn write(&self, py: Python<'_>, batch: &ArrowBatch) -> PyResult<()> {
        let written =
            py.detach(|| match self.writer.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                Some(Writer::File(writer)) => writer.write(&batch.0),
                Some(Writer::Stream(writer)) => writer.write(&batch.0),
                None => Err(ArrowError::IpcError("the writer is closed".to_owned())),
            });
        written.map_err(|error| self.error(error))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let finished = py.detach(|| match writer {
            Some(Writer::File(mut writer)) => writer.finish(),
            Some(Writer::Stream(mut writer)) => writer.finish(),
            None => Ok(()),
        });
        finished.map_err(|error| self.error(error))
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ArrowFileWriter>()
}
