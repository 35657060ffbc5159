//! Bounds of what one connection may hold and use.
use std::time::Duration;

/// Bounds per connection; see [`Slice`] for those of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest frame without its length prefix (`socket.request.max.bytes`).
    pub max_frame_bytes: usize,
    /// A connection is closed after this long without a frame or an answer (`connections.max.idle.ms`); `None` closes none.
    pub max_idle: Option<Duration>,
    /// Requests that are not answered yet, from either side.
    pub max_in_flight: usize,
    /// Those of them that were handed over.
    pub max_handed_over: usize,
    /// Bytes of the frames that were handed over and are not answered.
    pub max_handed_over_bytes: usize,
    /// Connections, of all threads, that may have requests that were handed over and that Python has not taken up
    /// (`queued.max.requests`).
    pub max_queued_requests: usize,
    /// Above this many bytes of frames that were handed over and that Python has not taken up, of all connections, none
    /// is handed over (`queued.max.request.bytes`).
    pub max_queued_bytes: Option<usize>,
    /// Above this many bytes of answers that the peer has not taken, no further request is handled.
    pub high_water_bytes: usize,
    /// What a connection may use before the turn of another one comes.
    pub slice: Slice,
}

/// Bounds of the work for one connection in one turn. Each is checked between two frames.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Frames handled.
    pub frames: usize,
    /// Time used, if no other connection has work; with many at work each gets less.
    pub time: Duration,
    /// Bytes sent to the kernel.
    pub sent_bytes: usize,
}

impl Limits {
    /// The bounds that a node has.
    pub fn new(max_frame_bytes: usize, max_idle: Option<Duration>) -> Self {
        Self {
            max_frame_bytes,
            max_idle,
            max_in_flight: 256,
            max_handed_over: 64,
            max_handed_over_bytes: 32 << 20,
            max_queued_requests: 500,
            max_queued_bytes: None,
            high_water_bytes: 4 << 20,
            slice: Slice { frames: 128, time: Duration::from_millis(2), sent_bytes: 2 << 20 },
        }
    }
}
