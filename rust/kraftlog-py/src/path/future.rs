//! The copy of a partition's log in another data directory, as Python drives it.
use std::path::PathBuf;

use kraftlog_path::partition::CopyError;
use pyo3::prelude::*;

use super::flush_pool::FlushPool;
use super::partition::Partition;
use crate::errors::PyLogError;

/// Outcome ("", "gone", "source" or "target"), end of the copy, end of the log before, copied bytes, and the error.
type Copied = (&'static str, i64, i64, u64, Option<Py<PyAny>>);

fn failure(py: Python<'_>, error: CopyError) -> (&'static str, Option<Py<PyAny>>) {
    let (outcome, error) = match error {
        CopyError::Gone => return ("gone", None),
        CopyError::Source(error) => ("source", error),
        CopyError::Target(error) => ("target", error),
    };
    (outcome, Some(PyErr::from(PyLogError(error)).into_value(py).into_any()))
}

/// Copy the next part of a partition's log.
#[pyfunction]
#[pyo3(signature = (partition, *, max_bytes, now_ms))]
pub(crate) fn copy_to_future(py: Python<'_>, partition: &Partition, max_bytes: u64, now_ms: i64) -> Copied {
    match py.detach(|| partition.partition.copy_to_future(max_bytes, now_ms)) {
        Ok(copied) => ("", copied.future_end_offset, copied.log_end_offset, copied.size_bytes, None),
        Err(error) => {
            let (outcome, error) = failure(py, error);
            (outcome, -1, -1, 0, error)
        }
    }
}

/// Let the copy take the place of the log. Outcome as above, or "behind" while more than `max_bytes` is left.
#[pyfunction]
#[pyo3(signature = (partition, *, retired, pool, max_bytes, now_ms))]
pub(crate) fn replace_with_future(
    py: Python<'_>,
    partition: &Partition,
    retired: PathBuf,
    pool: &FlushPool,
    max_bytes: u64,
    now_ms: i64,
) -> (&'static str, Option<Py<PyAny>>) {
    let replaced =
        py.detach(|| partition.partition.replace_with_future(&retired, &pool.pool, max_bytes, now_ms));
    match replaced {
        Ok(true) => ("", None),
        Ok(false) => ("behind", None),
        Err(error) => failure(py, error),
    }
}
