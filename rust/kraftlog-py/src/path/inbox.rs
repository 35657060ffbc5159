//! What an event loop is told by other threads.
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use kraftlog_path::python_inbox::{PythonEvent, PythonInbox};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::socket_event::{event_of, SocketEvent};
use crate::errors::PyLogError;

/// A mailbox; its descriptor is readable while something waits.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct Inbox {
    pub(crate) inbox: Arc<PythonInbox>,
}

type Taken<'py> = (Vec<(u64, i16)>, Vec<u64>, Bound<'py, PyList>, Vec<SocketEvent<'py>>);

#[pymethods]
impl Inbox {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self { inbox: Arc::new(PythonInbox::new()?) })
    }

    fn fileno(&self) -> RawFd {
        self.inbox.bell().as_raw_fd()
    }

    /// Acknowledgements, partitions that moved, all else by name, and events of sockets.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Taken<'py>> {
        let mut events = Vec::new();
        self.inbox.take(&mut events);
        let mut acknowledged = Vec::new();
        let mut moved = Vec::new();
        let others = PyList::empty(py);
        let mut sockets = Vec::new();
        for event in events {
            match event {
                PythonEvent::Acknowledged { token, error_code } => acknowledged.push((token, error_code)),
                PythonEvent::Moved { partition, is_told } => {
                    is_told.store(false, Ordering::Release);
                    moved.push(partition);
                }
                PythonEvent::Socket(event) => sockets.push(event_of(py, event)),
                other => others.append(named(py, other)?)?,
            }
        }
        Ok((acknowledged, moved, others, sockets))
    }
}

fn named(py: Python<'_>, event: PythonEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        PythonEvent::Acknowledged { token, error_code } => {
            ("acknowledged", token, error_code).into_pyobject(py)
        }
        PythonEvent::Moved { partition, .. } => ("moved", partition).into_pyobject(py),
        PythonEvent::Socket(event) => event_of(py, event).into_pyobject(py),
        PythonEvent::Unflushed { partition } => ("unflushed", partition).into_pyobject(py),
        PythonEvent::StorageFailed { partition, reason } => {
            ("storage_failed", partition, reason).into_pyobject(py)
        }
        PythonEvent::FlushDelayed { partition, reason } => {
            ("flush_delayed", partition, reason).into_pyobject(py)
        }
        PythonEvent::InSyncProposed { key, proposal } => {
            ("in_sync_proposed", key.topic_id.as_slice(), key.index, super::core::proposal(proposal))
                .into_pyobject(py)
        }
        PythonEvent::Replicated => ("replicated",).into_pyobject(py),
        PythonEvent::LogFlushed { token, outcome } => {
            let (end_offset, error) = match outcome {
                Ok(end_offset) => (end_offset, None),
                Err(error) => (-1, Some(PyErr::from(PyLogError(error)).into_value(py))),
            };
            ("log_flushed", token, end_offset, error).into_pyobject(py)
        }
    }
}
