//! What a thread tells Python.
use std::fmt::{self, Debug, Formatter};
use std::net::SocketAddr;

use super::acceptor::Unheard;
use super::socket::Socket;
use crate::exchange::{ConnectionId, RequestId};
use crate::mailbox::Mailbox;

/// A frame that Python answers.
pub struct Frame {
    /// Of the whole buffer; the frame begins at `start`.
    buffer: Vec<u8>,
    start: usize,
}

impl Frame {
    pub(super) fn new(buffer: Vec<u8>, start: usize) -> Self {
        Self { buffer, start }
    }

    /// The frame without its length prefix.
    pub fn as_slice(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }
}

impl Debug for Frame {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Frame({} bytes)", self.as_slice().len())
    }
}

/// An event of a connection, of a listener, or of a whole thread.
#[derive(Debug)]
pub enum IoEvent {
    /// A connection was accepted; comes before all else of it.
    Accepted {
        /// Number of the listener.
        listener: u16,
        /// The connection.
        socket: Socket,
        /// The peer's.
        address: SocketAddr,
        /// Counts it until Python has taken it.
        unheard: Unheard,
    },
    /// A connection was accepted from the kernel and closed at once.
    Refused {
        /// Number of the listener.
        listener: u16,
        /// The peer's.
        address: SocketAddr,
        /// The bound that it would have passed.
        reason: String,
        /// Counts it until Python has taken it.
        unheard: Unheard,
    },
    /// A listener accepts no more until descriptors are free. Comes once, until it accepts again.
    Paused {
        /// Number of the listener.
        listener: u16,
        /// What is short.
        reason: String,
    },
    /// A listener accepts again.
    Resumed {
        /// Number of the listener.
        listener: u16,
    },
    /// A listener was closed, as [`super::IoThreads::end_listener`] asked; it accepts nothing after this.
    ListenerEnded {
        /// Number of the listener.
        listener: u16,
    },
    /// A request that was handed over. Those of one connection come in the order of arrival.
    HandedOver {
        /// Which.
        request: RequestId,
        /// Its bytes.
        frame: Frame,
    },
    /// The peer took answers again, as [`super::SocketStatus::ask_for_drained`] asked to be told.
    Drained(ConnectionId),
    /// The connection is closed; nothing of it comes after this.
    Lost {
        /// Which.
        connection: ConnectionId,
        /// What to log; `None` if the peer closed it between two frames, or Python did.
        reason: Option<String>,
    },
    /// The thread ended by a defect: its connections are gone.
    Failed(String),
}

/// Where events go.
pub trait Inbox: Send + Sync + 'static {
    /// Leave all of `events`, which is empty afterwards.
    fn post(&self, events: &mut Vec<IoEvent>);
}

impl<M: From<IoEvent> + Send + 'static> Inbox for Mailbox<M> {
    fn post(&self, events: &mut Vec<IoEvent>) {
        let mut messages: Vec<M> = events.drain(..).map(M::from).collect();
        self.send_all(&mut messages);
    }
}
