//! Threads that accept connections and own their sockets: frames in, answers out in the order of the requests.
//!
//! A thread sleeps in `epoll_wait`. Per wake-up it takes what other threads told it, gives each connection with work a
//! slice in a round, and sends the answers of a connection with one `sendmsg`. Whatever one connection sends, another
//! one waits for a slice of it and not for its requests.

mod acceptor;
mod adoption;
mod connection;
mod event;
mod hand_over_all;
mod input;
mod limits;
mod output;
mod request_queue;
mod request_room;
mod session;
mod slots;
mod socket;
mod socket_status;
mod sole_connection;
mod thread;
mod threads;

pub use acceptor::{Listener, Unheard};
pub use adoption::Adoption;
pub use event::{Frame, Inbox, IoEvent};
pub use hand_over_all::HandOverAll;
pub use limits::{Limits, Slice};
pub use socket::Socket;
pub use socket_status::SocketStatus;
pub use threads::{IoThreads, ServiceSender};

#[cfg(test)]
mod tests;
