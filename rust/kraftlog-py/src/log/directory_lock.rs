//! The lock on a data directory.
use std::path::PathBuf;

use kraftlog_log::lock;
use pyo3::prelude::*;

use crate::errors::PyLogError;
use crate::memory_disk::MemoryLock;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<DirectoryLock>()?;
    m.add_function(wrap_pyfunction!(lock_directory, m)?)
}

/// A locked directory; unlocked when released or collected.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct DirectoryLock {
    lock: Lock,
}

enum Lock {
    File(lock::DirectoryLock),
    Memory(MemoryLock),
}

#[pyfunction]
fn lock_directory(path: PathBuf) -> Result<DirectoryLock, PyLogError> {
    let lock = match MemoryLock::acquire(&path) {
        Some(lock) => Lock::Memory(lock?),
        None => Lock::File(lock::DirectoryLock::acquire(&path)?),
    };
    Ok(DirectoryLock { lock })
}

#[pymethods]
impl DirectoryLock {
    #[getter]
    fn path(&self) -> PathBuf {
        match &self.lock {
            Lock::File(lock) => lock.directory().to_owned(),
            Lock::Memory(lock) => lock.path().to_owned(),
        }
    }

    fn release(&self) {
        match &self.lock {
            Lock::File(lock) => lock.release(),
            Lock::Memory(lock) => lock.release(),
        }
    }
}
