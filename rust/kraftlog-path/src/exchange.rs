//! The seam between an I/O thread, which owns sockets, and the service that answers frames on the same thread.
use std::time::Instant;

use kraftlog_log::log::FileSlice;

/// API key of Produce.
pub const PRODUCE: i16 = 0;
/// API key of Fetch.
pub const FETCH: i16 = 1;
/// API key of SaslHandshake.
pub const SASL_HANDSHAKE: i16 = 17;

/// A connection of one I/O thread. A number is used again after a connection was closed, with another generation, so
/// that a late answer never reaches a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    /// Which I/O thread owns the socket.
    pub thread: u16,
    /// Place in that thread's table.
    pub slot: u32,
    /// How often the place was taken before.
    pub generation: u32,
}

/// A request within its connection: 0, 1, 2 in the order of arrival. Answers leave in this order.
pub type RequestNumber = u64;

/// A request that is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// Who asked.
    pub connection: ConnectionId,
    /// Which of its requests.
    pub number: RequestNumber,
}

/// A piece of an answer, sent in order.
#[derive(Debug)]
pub enum Output {
    /// Bytes of memory; the length prefix of the frame is among them.
    Bytes(Vec<u8>),
    /// Batches of a segment, by sendfile.
    File(FileSlice),
}

/// What becomes of a frame.
#[derive(Debug)]
pub enum Outcome {
    /// The whole answer.
    Answer(Vec<Output>),
    /// The protocol wants no answer (acks=0).
    NoAnswer,
    /// [`Service`] will say later: an acknowledgement, a long poll.
    Pending,
    /// Nothing has been done; Python answers it.
    HandOver,
    /// Not a request, or one that the protocol answers by closing the connection; the reason is logged.
    Close(String),
}

/// An answer to a request whose outcome was [`Outcome::Pending`].
#[derive(Debug)]
pub struct Answered {
    /// Which.
    pub request: RequestId,
    /// The answer, [`Outcome::NoAnswer`] or [`Outcome::Close`]; never pending or handed over.
    pub outcome: Outcome,
}

/// Where a frame came from, for a service.
#[derive(Debug)]
pub struct Peer {
    /// Index of the listener in the published list: decides which end points an answer names.
    pub listener: u16,
    /// The client's address without its port.
    pub host: String,
    /// Its authenticated identity, as ACLs name it.
    pub principal: String,
}

impl Peer {
    /// The principal of a client that did not authenticate.
    pub const ANONYMOUS: &'static str = "User:ANONYMOUS";

    /// A client of a listener without authentication.
    pub fn anonymous(listener: u16, host: impl Into<String>) -> Self {
        Self { listener, host: host.into(), principal: Self::ANONYMOUS.to_owned() }
    }
}

/// Answers frames on one I/O thread. Never blocks but on a file; takes no interpreter lock.
pub trait Service: Send + 'static {
    /// What other threads tell this one: an acknowledgement, a partition that moved.
    type Message: Send + 'static;

    /// Whether [`Self::handle`] may answer a request of this API. While an earlier request of the connection was
    /// handed over and has not begun in Python, such a request waits; others are handed over in order.
    fn serves(&self, api_key: i16) -> bool {
        api_key == PRODUCE || api_key == FETCH
    }

    /// Handle one frame, which starts behind its length prefix.
    fn handle(&mut self, request: RequestId, peer: &Peer, frame: &[u8], now: Instant) -> Outcome;

    /// Handle Produce frames that came together, of the requests `first`, the one after it and so on: an outcome for each
    /// from the first on, never that of a frame that is handed over. Frames without an outcome are given to
    /// [`Self::handle`], one by one.
    fn handle_together(
        &mut self,
        _first: RequestId,
        _peer: &Peer,
        _frames: &[&[u8]],
        _now: Instant,
        _outcomes: &mut Vec<Outcome>,
    ) {
    }

    /// Handle a message; requests that it ended are pushed on `answered`.
    fn message(&mut self, message: Self::Message, now: Instant, answered: &mut Vec<Answered>);

    /// When [`Self::on_time`] wants to be called next.
    fn next_deadline(&self) -> Option<Instant>;

    /// Time has passed; requests that it ended are pushed on `answered`.
    fn on_time(&mut self, now: Instant, answered: &mut Vec<Answered>);

    /// Called once after the frames and messages of a wake-up, before answers are sent: what those put off (flushes
    /// that were asked for, long polls that moved) happens now.
    ///
    /// `is_alone`: lately the thread had requests of one connection only, so that a short wait delays nobody else. The
    /// thread takes its messages afterwards without being told.
    fn end_turn(&mut self, now: Instant, is_alone: bool, answered: &mut Vec<Answered>);

    /// The connection is gone: nothing waits for its pending requests any more.
    fn connection_lost(&mut self, connection: ConnectionId);
}
