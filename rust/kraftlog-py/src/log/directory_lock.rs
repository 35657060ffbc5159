//! The lock on a data directory.
use std::path::PathBuf;

use kraftlog_log::lock;
use pyo3::prelude::*;

use crate::errors::PyLogError;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<DirectoryLock>()?;
    m.add_function(wrap_pyfunction!(lock_directory, m)?)
}

/// A locked directory; unlocked when released or collected.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct DirectoryLock {
    lock: lock::DirectoryLock,
}

#[pyfunction]
fn lock_directory(path: PathBuf) -> Result<DirectoryLock, PyLogError> {
    Ok(DirectoryLock { lock: lock::DirectoryLock::acquire(&path)? })
}

#[pymethods]
impl DirectoryLock {
    #[getter]
    fn path(&self) -> PathBuf {
        self.lock.directory().to_owned()
    }

    fn release(&self) {
        self.lock.release();
    }
}
