//! Partitions elsewhere: Python lists their objects and fetches ranges of them, the engine does the rest.
use crate::raw::arrow_buffer;
use arrow_buffer::Buffer;
use kraftlog_log::scan::{
    self, Directory, ObjectKind, PendingRead, PositionHint, RangeReader, ReadFailure, RemoteObject,
};
use pyo3::exceptions::{PyException, PyFileNotFoundError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// A Python object with `begin(object, start, end, check)`, which gives a future of bytes.
#[derive(Debug)]
struct PythonReader(Py<PyAny>);

/// What `begin` gave or raised. The GIL is held only to ask and to take over the bytes: a future waits without it.
#[derive(Debug)]
struct PythonRead(Result<Py<PyAny>, ReadFailure>);

impl RangeReader for PythonReader {
    fn begin(&self, object: usize, start: u64, end: u64, check: bool) -> Box<dyn PendingRead> {
        let asked = Python::try_attach(|py| {
            let future = self.0.bind(py).call_method1(intern!(py, "begin"), (object, start, end, check));
            future.map(Bound::unbind).map_err(|error| failure(py, &error))
        });
        Box::new(PythonRead(asked.unwrap_or_else(|| Err(ended()))))
    }
}

impl PendingRead for PythonRead {
    fn wait(self: Box<Self>) -> Result<Buffer, ReadFailure> {
        let future = self.0?;
        let bytes = Python::try_attach(|py| {
            let bytes = future.bind(py).call_method0(intern!(py, "result"));
            bytes.and_then(|bytes| arrow_buffer(&bytes)).map_err(|error| failure(py, &error))
        });
        bytes.unwrap_or_else(|| Err(ended()))
    }
}

fn ended() -> ReadFailure {
    ReadFailure { is_missing: false, reason: "the interpreter has ended".to_owned() }
}

fn failure(py: Python<'_>, error: &PyErr) -> ReadFailure {
    if !error.is_instance_of::<PyException>(py) {
        // An interrupt: the scan ends with an error of its own, and Python raises this one again at once.
        if let Ok(module) = py.import("_thread") {
            let _ = module.call_method0("interrupt_main");
        }
    }
    let text = error.value(py).to_string();
    let name = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    let reason = if text.is_empty() { name } else { text };
    ReadFailure { is_missing: error.is_instance_of::<PyFileNotFoundError>(py), reason }
}

/// Kind, offset, exclusive end offset, URL and bytes of an object.
type ObjectTuple = (String, i64, Option<i64>, String, u64);

/// A partition whose objects are fetched by Python.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct RemoteDirectory(Arc<scan::RemoteDirectory>);

#[pymethods]
impl RemoteDirectory {
    #[new]
    #[pyo3(signature = (reader, url, objects, *, hint=None, window_bytes=8 << 20))]
    fn new(
        reader: Py<PyAny>,
        url: String,
        objects: Vec<ObjectTuple>,
        hint: Option<(i64, u64, u64)>,
        window_bytes: u64,
    ) -> PyResult<Self> {
        let object = |(kind, offset, end_offset, url, size_bytes): ObjectTuple| {
            let kind = ObjectKind::parse(&kind)
                .ok_or_else(|| PyValueError::new_err(format!("no kind of object {kind:?}")))?;
            let (end_offset, url) = (end_offset.unwrap_or(i64::MAX), PathBuf::from(url));
            PyResult::Ok(RemoteObject { kind, offset, end_offset, url, size_bytes })
        };
        let objects = objects.into_iter().map(object).collect::<PyResult<Vec<_>>>()?;
        let hint = hint.map(|(base_offset, position, end_position)| PositionHint {
            base_offset,
            position,
            end_position,
        });
        let reader = Arc::new(PythonReader(reader));
        Ok(Self(Arc::new(scan::RemoteDirectory::new(reader, url.into(), objects, hint, window_bytes))))
    }
}

/// A directory as an argument: a path, or an object whose `__kraftlog_directory__` gives a [`RemoteDirectory`].
pub(crate) struct DirectoryArg(pub(crate) Directory);

impl<'py> FromPyObject<'_, 'py> for DirectoryArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if let Some(method) = object.getattr_opt(intern!(py, "__kraftlog_directory__"))? {
            let made = method.call0()?;
            let remote = made.cast::<RemoteDirectory>()?;
            return Ok(Self(Directory::Remote(Arc::clone(&remote.get().0))));
        }
        Ok(Self(Directory::Local(object.extract()?)))
    }
}

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<RemoteDirectory>()
}
