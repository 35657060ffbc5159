//! A connection of an I/O thread, as other threads see it.
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::output::size_bytes;
use super::socket_status::SocketStatus;
use crate::exchange::{ConnectionId, Outcome, Output, RequestId, RequestNumber};

/// What other threads ask of one connection.
pub(super) enum SocketCommand {
    /// Python's answer; its bytes are counted in the status of the socket already.
    Answer {
        request: RequestId,
        outcome: Outcome,
    },
    /// Requests up to this one have begun in Python.
    Begun(RequestId),
    /// Requests up to this one wait for Python no more.
    Taken(RequestId),
    Close {
        connection: ConnectionId,
        reason: Option<String>,
    },
    StopReading(ConnectionId),
    /// The peer has authenticated again; how long its session lasts, `None` if it does not end.
    Session {
        connection: ConnectionId,
        left: Option<Duration>,
    },
    /// Handle and receive no more requests, or go on.
    Mute {
        connection: ConnectionId,
        is_on: bool,
    },
}

/// What was asked of the connections of one thread since [`super::IoThreads::flush`].
pub(super) type Batch = Mutex<Vec<SocketCommand>>;

/// A connection of an I/O thread, in Python's hands. What is asked of it is sent by [`super::IoThreads::flush`]; after
/// the connection is lost nothing of it reaches anyone.
pub struct Socket {
    batch: Arc<Batch>,
    connection: ConnectionId,
    status: Arc<SocketStatus>,
}

impl Socket {
    pub(super) fn new(batch: Arc<Batch>, connection: ConnectionId, status: Arc<SocketStatus>) -> Self {
        Self { batch, connection, status }
    }

    /// Names the connection in events.
    pub fn id(&self) -> ConnectionId {
        self.connection
    }

    /// What is unsent and owed.
    pub fn status(&self) -> &SocketStatus {
        &self.status
    }

    fn ask(&self, command: SocketCommand) {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner).push(command);
    }

    /// Answer a request that was handed over; `None` if the protocol wants no answer.
    pub fn answer(&self, number: RequestNumber, outputs: Option<Vec<Output>>) {
        let request = RequestId { connection: self.connection, number };
        let outcome = match outputs {
            Some(outputs) => {
                self.status.add_unsent(size_bytes(&outputs));
                Outcome::Answer(outputs)
            }
            None => Outcome::NoAnswer,
        };
        self.ask(SocketCommand::Answer { request, outcome });
    }

    /// The requests up to this one have begun: later ones may be served by the thread.
    pub fn begun(&self, number: RequestNumber) {
        self.ask(SocketCommand::Begun(RequestId { connection: self.connection, number }));
    }

    /// The requests up to this one wait for the loop no more: their frames were decoded, or they wait for an earlier one
    /// of their connection. [`Self::begun`] and [`Self::answer`] imply it.
    pub fn taken(&self, number: RequestNumber) {
        self.ask(SocketCommand::Taken(RequestId { connection: self.connection, number }));
    }

    /// Close after the answers that were given before; `reason` comes back in [`super::IoEvent::Lost`].
    pub fn close(&self, reason: Option<String>) {
        self.ask(SocketCommand::Close { connection: self.connection, reason });
    }

    /// Handle and receive no more requests until told otherwise; what is pending is still answered.
    pub fn mute(&self, is_on: bool) {
        self.ask(SocketCommand::Mute { connection: self.connection, is_on });
    }

    /// The session of the peer lasts for so long from when the thread hears of it; `None` if it does not end. Until
    /// then the thread hands every frame over once the earlier session is over, or a frame asked for another one.
    pub fn set_session(&self, left: Option<Duration>) {
        self.ask(SocketCommand::Session { connection: self.connection, left });
    }

    /// Handle no more requests; what is pending is still answered.
    pub fn stop_reading(&self) {
        self.ask(SocketCommand::StopReading(self.connection));
    }
}

impl Debug for Socket {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Socket({:?})", self.connection)
    }
}
