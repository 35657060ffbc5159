//! The threads that make the logs of a directory durable.
use std::sync::Arc;

use kraftlog_path::flush;
use pyo3::prelude::*;

use super::inbox::Inbox;
use crate::log::Log;

/// Up to `threads_max` fsyncs at a time.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct FlushPool {
    pub(super) pool: Arc<flush::FlushPool>,
}

#[pymethods]
impl FlushPool {
    #[new]
    #[pyo3(signature = (name, *, threads_max=8))]
    fn new(name: String, threads_max: usize) -> Self {
        Self { pool: Arc::new(flush::FlushPool::new(name, threads_max)) }
    }

    #[staticmethod]
    fn stepped(name: String) -> Self {
        Self { pool: Arc::new(flush::FlushPool::stepped(name)) }
    }

    #[getter]
    fn queued_count(&self) -> usize {
        self.pool.queued_count()
    }

    fn run_next(&self, py: Python<'_>, index: usize) -> bool {
        py.detach(|| self.pool.run_next(index))
    }

    #[getter]
    fn thread_count(&self, py: Python<'_>) -> usize {
        py.detach(|| self.pool.thread_count())
    }

    fn request_log(&self, py: Python<'_>, log: &Log, inbox: &Inbox, token: u64) {
        let (log, inbox) = (Arc::clone(&log.log), Arc::clone(&inbox.inbox));
        py.detach(|| self.pool.request_log(log, inbox, token));
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.pool.stop());
    }
}
