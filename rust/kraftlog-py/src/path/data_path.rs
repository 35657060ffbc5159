//! `DataPath`: the I/O threads of a node and what they tell its event loop.
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kraftlog_path::admission::Admitted;
use kraftlog_path::exchange::Peer;
use kraftlog_path::io::{self, Adoption, IoThreads, Limits, Listener};
use kraftlog_path::python_inbox::PythonInbox;
use kraftlog_path::serve::{DataMessage, DataService, ServiceSettings, ServiceShared};
use kraftlog_path::session::SessionLimits;
use kraftlog_path::wire::produce::BrokerAddress;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::admission::Admission;
use super::data_socket::DataSocket;
use super::grants::GrantTable;
use super::inbox::Inbox;
use super::partition::Partitions;
use super::socket_event;
use crate::raw;

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
    const DRAINED: i64 = socket_event::DRAINED;
    /// Kind of an event: the connection is closed.
    #[classattr]
    const LOST: i64 = socket_event::LOST;
    /// Kind of an event: a thread ended by a defect.
    #[classattr]
    const FAILED: i64 = socket_event::FAILED;
    /// Kind of an event: a connection was accepted.
    #[classattr]
    const ACCEPTED: i64 = socket_event::ACCEPTED;
    /// Kind of an event: a connection was refused.
    #[classattr]
    const REFUSED: i64 = socket_event::REFUSED;
    /// Kind of an event: a listener is short of descriptors.
    #[classattr]
    const PAUSED: i64 = socket_event::PAUSED;
    /// Kind of an event: a listener accepts again.
    #[classattr]
    const RESUMED: i64 = socket_event::RESUMED;
    /// Kind of an event: a listener is closed.
    #[classattr]
    const LISTENER_ENDED: i64 = socket_event::LISTENER_ENDED;

    #[allow(clippy::too_many_arguments)]
    #[new]
    #[pyo3(signature = (partitions, inbox, *, threads, max_frame_bytes, max_idle_ms, fetch_max_bytes, fetch_sessions_max,
        fetch_session_eviction_ms, selects_replicas=false, max_queued_requests=500, max_queued_bytes=-1, grants=None))]
    fn new(
        partitions: &Partitions,
        inbox: &Inbox,
        threads: u8,
        max_frame_bytes: usize,
        max_idle_ms: i64,
        fetch_max_bytes: i32,
        fetch_sessions_max: usize,
        fetch_session_eviction_ms: i64,
        selects_replicas: bool,
        max_queued_requests: usize,
        max_queued_bytes: i64,
        grants: Option<&GrantTable>,
    ) -> PyResult<Self> {
        let shared = ServiceShared::new(
            Arc::clone(&partitions.partitions),
            ServiceSettings {
                fetch_max_bytes,
                sessions: SessionLimits {
                    max_slots: fetch_sessions_max,
                    eviction_ms: fetch_session_eviction_ms,
                },
                selects_replicas,
            },
            Box::new(wall_clock_ms),
            RandomState::new().hash_one(0),
        );
        let shared = Arc::new(shared.with_grants(grants.map(|table| Arc::clone(&table.grants))));
        let max_idle = u64::try_from(max_idle_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        let as_inbox: Arc<dyn io::Inbox> = Arc::<PythonInbox>::clone(&inbox.inbox);
        let limits = Limits {
            max_queued_requests,
            max_queued_bytes: usize::try_from(max_queued_bytes).ok().filter(|bytes| *bytes > 0),
            ..Limits::new(max_frame_bytes, max_idle)
        };
        let threads = IoThreads::start(u16::from(threads), limits, &as_inbox, |sender| {
            DataService::new(Arc::clone(&shared), Arc::new(sender))
        })?;
        Ok(Self { threads, shared })
    }

    /// Give a connected, non-blocking socket away.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (fd, *, listener, host, principal, received, unsent, place=None, session_ms=None))]
    fn adopt(
        &self,
        fd: i32,
        listener: u16,
        host: String,
        principal: String,
        received: &[u8],
        unsent: &[u8],
        place: Option<(Bound<'_, Admission>, String)>,
        session_ms: Option<u64>,
    ) -> PyResult<DataSocket> {
        // First of all: whatever fails below gives the place back.
        let place = place.map(|(admission, name)| {
            Admitted::taken_over(&admission.get().admission, &Arc::from(name), &host)
        });
        let adoption = Adoption {
            place,
            received: received.to_vec(),
            unsent: unsent.to_vec(),
            session_left: session_ms.map(Duration::from_millis),
            ..Adoption::new(raw::own_descriptor(fd)?, Peer { listener, host, principal })
        };
        let adopted = self.threads.adopt(adoption);
        let socket = adopted.ok_or_else(|| PyRuntimeError::new_err("there are no I/O threads"))?;
        Ok(DataSocket::new(socket))
    }

    /// Give a listening, non-blocking socket away: its connections are accepted from here on.
    #[pyo3(signature = (fd, *, listener, name, admission, send_buffer_bytes=-1))]
    fn listen(
        &self,
        fd: i32,
        listener: u16,
        name: &str,
        admission: &Admission,
        send_buffer_bytes: i64,
    ) -> PyResult<()> {
        self.threads.listen(Listener {
            number: listener,
            name: name.into(),
            socket: raw::own_descriptor(fd)?,
            admission: Arc::clone(&admission.admission),
            send_buffer_bytes: usize::try_from(send_buffer_bytes).ok().filter(|bytes| *bytes > 0),
        });
        Ok(())
    }

    /// Close a listener.
    #[pyo3(signature = (listener, /))]
    fn end_listener(&self, listener: u16) {
        self.threads.end_listener(listener);
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

    /// Whether Python answers every Produce and every consumer's Fetch.
    #[pyo3(signature = (is_on, /))]
    fn hand_over_clients(&self, is_on: bool) {
        self.shared.hand_over_clients(is_on);
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
