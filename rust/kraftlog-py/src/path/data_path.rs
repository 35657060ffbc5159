//! `DataPath`: the I/O threads of a node and what they tell its event loop.
use std::collections::hash_map::RandomState;
use std::ffi::c_int;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kraftlog_path::exchange::Peer;
use kraftlog_path::io::{self, Frame, IoEvent, IoThreads, Limits};
use kraftlog_path::python_inbox::PythonInbox;
use kraftlog_path::serve::{DataMessage, DataService, ServiceSettings, ServiceShared};
use kraftlog_path::session::SessionLimits;
use kraftlog_path::wire::produce::BrokerAddress;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use super::data_socket::{key_of, DataSocket};
use super::inbox::Inbox;
use super::partition::Partitions;
use crate::raw;

/// Key of the connection, number of the request or kind of the event, and what belongs to it.
pub(super) type SocketEvent<'py> = (u64, i64, Option<Bound<'py, PyAny>>);

/// Id, host, port and rack.
type Broker = (i32, String, i32, Option<String>);

/// Threads that own the sockets of clients.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct DataPath {
    threads: IoThreads<DataMessage>,
    shared: Arc<ServiceShared>,
}

#[pymethods]
impl DataPath {
    /// Kind of an event: the peer took answers again.
    #[classattr]
    const DRAINED: i64 = -1;
    /// Kind of an event: the connection is closed.
    #[classattr]
    const LOST: i64 = -2;
    /// Kind of an event: a thread ended by a defect.
    #[classattr]
    const FAILED: i64 = -3;

    #[allow(clippy::too_many_arguments)]
    #[new]
    #[pyo3(signature = (partitions, inbox, *, threads, max_frame_bytes, max_idle_ms, fetch_max_bytes, fetch_sessions_max,
        fetch_session_eviction_ms))]
    fn new(
        partitions: &Partitions,
        inbox: &Inbox,
        threads: u8,
        max_frame_bytes: usize,
        max_idle_ms: i64,
        fetch_max_bytes: i32,
        fetch_sessions_max: usize,
        fetch_session_eviction_ms: i64,
    ) -> PyResult<Self> {
        let shared = Arc::new(ServiceShared::new(
            Arc::clone(&partitions.partitions),
            ServiceSettings {
                fetch_max_bytes,
                sessions: SessionLimits {
                    max_slots: fetch_sessions_max,
                    eviction_ms: fetch_session_eviction_ms,
                },
            },
            Box::new(wall_clock_ms),
            RandomState::new().hash_one(0),
        ));
        let max_idle = u64::try_from(max_idle_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        let as_inbox: Arc<dyn io::Inbox> = Arc::<PythonInbox>::clone(&inbox.inbox);
        let limits = Limits::new(max_frame_bytes, max_idle);
        let threads = IoThreads::start(u16::from(threads), limits, &as_inbox, |sender| {
            DataService::new(Arc::clone(&shared), Arc::new(sender))
        })?;
        Ok(Self { threads, shared })
    }

    /// Give a connected, non-blocking socket away.
    #[pyo3(signature = (fd, *, listener, host))]
    fn adopt(&self, fd: i32, listener: u16, host: String) -> PyResult<DataSocket> {
        let socket = raw::own_descriptor(fd)?;
        let adopted = self.threads.adopt(socket, Peer { listener, host });
        let socket = adopted.ok_or_else(|| PyRuntimeError::new_err("there are no I/O threads"))?;
        Ok(DataSocket::new(socket))
    }

    /// Tell the threads what was asked of sockets since the last call.
    fn flush(&self) {
        self.threads.flush();
    }

    /// Brokers by listener: id, host, port and rack.
    fn publish_brokers(&self, by_listener: Vec<Vec<Broker>>) {
        let address = |(broker_id, host, port, rack)| BrokerAddress { broker_id, host, port, rack };
        let lists = by_listener.into_iter().map(|brokers| brokers.into_iter().map(address).collect());
        self.shared.publish_brokers(lists.collect());
    }

    /// Close all sockets and end the threads.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.threads.stop());
    }
}

/// Milliseconds since 1970.
fn wall_clock_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Frames from here on are shared with Python: to copy one of a hundred megabytes takes tens of milliseconds.
const SHARED_FRAME_BYTES_MIN: usize = 64 * 1024;

/// A large frame that was handed over.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
struct SharedFrame(Frame);

#[pymethods]
impl SharedFrame {
    // PyO3 asks for the keyword; what it is about happens in `raw`.
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        raw::export_bytes(slf.as_any(), slf.get().0.as_slice(), view, flags)
    }
}

/// The frame as `bytes`, or as a memoryview if it is large.
fn frame_object(py: Python<'_>, frame: Frame) -> PyResult<Bound<'_, PyAny>> {
    if frame.as_slice().len() < SHARED_FRAME_BYTES_MIN {
        return Ok(PyBytes::new(py, frame.as_slice()).into_any());
    }
    let shared = Bound::new(py, SharedFrame(frame))?;
    Ok(PyMemoryView::from(shared.as_any())?.into_any())
}

pub(super) fn event_of(py: Python<'_>, event: IoEvent) -> SocketEvent<'_> {
    let text = |text: String| text.into_pyobject(py).map(Bound::into_any).ok();
    match event {
        IoEvent::HandedOver { request, frame } => (
            key_of(request.connection),
            i64::try_from(request.number).unwrap_or(i64::MAX),
            frame_object(py, frame).ok(),
        ),
        IoEvent::Drained(connection) => (key_of(connection), DataPath::DRAINED, None),
        IoEvent::Lost { connection, reason } => (key_of(connection), DataPath::LOST, reason.and_then(text)),
        IoEvent::Failed(reason) => (u64::MAX, DataPath::FAILED, text(reason)),
    }
}
