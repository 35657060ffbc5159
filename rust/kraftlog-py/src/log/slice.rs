//! `FileSlice`: batches in a file, sent by descriptor or read once.
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use kraftlog_log::log as engine;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::errors::PyLogError;
use crate::raw;

/// Whole batches in a file.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct FileSlice {
    slice: engine::FileSlice,
    bytes: OnceLock<Vec<u8>>,
    reading: Mutex<()>,
}

impl FileSlice {
    pub(super) fn new(slice: engine::FileSlice) -> Self {
        Self { slice, bytes: OnceLock::new(), reading: Mutex::new(()) }
    }

    /// The slice of the engine.
    pub(crate) fn engine_slice(&self) -> &engine::FileSlice {
        &self.slice
    }

    /// The bytes, read on first use and kept.
    fn bytes(&self, py: Python<'_>) -> PyResult<&[u8]> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes);
        }
        let bytes = py.detach(|| {
            let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            match self.bytes.get() {
                Some(bytes) => Ok(bytes),
                None => self.slice.read().map(|bytes| self.bytes.get_or_init(|| bytes)),
            }
        });
        Ok(bytes.map_err(PyLogError)?)
    }
}

#[pymethods]
impl FileSlice {
    fn fileno(&self) -> PyResult<i32> {
        let descriptor = self.slice.descriptor().map(|descriptor| descriptor.as_raw_fd());
        descriptor.ok_or_else(|| PyValueError::new_err("an empty slice has no file descriptor"))
    }

    #[getter]
    fn position(&self) -> u64 {
        self.slice.position()
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.slice.size_bytes()
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.slice.size_bytes()
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.slice.path().to_owned()
    }

    fn part(&self, position: u64, size_bytes: u64) -> PyResult<Self> {
        let part = self.slice.part(position, size_bytes).map(Self::new);
        part.ok_or_else(|| {
            PyValueError::new_err(format!(
                "{size_bytes} bytes from {position} on are not in {}",
                self.__repr__()
            ))
        })
    }

    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(PyBytes::new(py, bytes));
        }
        let bytes = py.detach(|| self.slice.read()).map_err(PyLogError)?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.slice.size_bytes()).unwrap_or(usize::MAX)
    }

    fn __repr__(&self) -> String {
        format!(
            "FileSlice({:?}, position={}, size_bytes={})",
            self.slice.path().display().to_string(),
            self.slice.position(),
            self.slice.size_bytes()
        )
    }

    /// What Python 3.12 and later make of `__getbuffer__` themselves (PEP 688).
    fn __buffer__<'py>(slf: &Bound<'py, Self>, _flags: c_int) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    // PyO3 asks for the keyword; what it is about happens in `raw`.
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.get().bytes(slf.py())?;
        raw::export_bytes(slf.as_any(), bytes, view, flags)
    }
}
