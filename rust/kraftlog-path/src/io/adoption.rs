//! A connection that an I/O thread is given.
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::admission::Admitted;
use crate::exchange::Peer;

/// A connected, non-blocking socket and what its earlier owner knows of it.
#[derive(Debug)]
pub struct Adoption {
    /// The socket.
    pub socket: OwnedFd,
    /// Who is at the other end.
    pub peer: Peer,
    /// Its place among the connections of the node; the thread gives it back when the connection is closed.
    pub place: Option<Admitted>,
    /// Bytes that were received and not handled: whole frames or the start of one.
    pub received: Vec<u8>,
    /// Bytes of answers that the kernel has not taken.
    pub unsent: Vec<u8>,
    /// How long the session of the peer lasts (KIP-368); `None` if it does not end.
    pub session_left: Option<Duration>,
}

impl Adoption {
    /// A connection of which nothing was read or written.
    pub fn new(socket: OwnedFd, peer: Peer) -> Self {
        Self { socket, peer, place: None, received: Vec::new(), unsent: Vec::new(), session_left: None }
    }
}
