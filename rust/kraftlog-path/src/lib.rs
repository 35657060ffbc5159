//! The data path of a node: what Produce and Fetch need of partitions, sockets and disks, without an interpreter.
//!
//! * [`core`]: the state machine of one replica; knows no file, socket, clock or thread.
//! * [`partition`]: a log and its core under one lock; what waits for a high watermark to move.
//! * [`flush`]: group commit by a pool of threads.
//! * [`mailbox`]: messages to a thread that sleeps in `epoll_wait`, the event loop of Python included.
//! * [`wire`]: Produce, Fetch and OffsetCommit, parsed and encoded; nothing else of the protocol.
//! * [`serve`]: one request of a client, from its frame to what is sent.
//! * [`session`]: fetch sessions that look only at what moved.
//! * [`admission`]: which connections a node takes.
//! * [`io`]: threads that accept connections and own their sockets.

#![deny(unsafe_code)]

mod sync;
#[cfg(test)]
mod testing;

pub mod admission;
pub mod core;
pub mod error_code;
pub mod exchange;
pub mod flush;
pub mod io;
pub mod mailbox;
pub mod partition;
pub mod partitions;
pub mod python_inbox;
pub mod serve;
pub mod session;
pub mod wire;
