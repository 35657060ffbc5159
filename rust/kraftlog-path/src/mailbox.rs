//! A queue into a thread that sleeps in `epoll_wait`: many senders, one reader, one eventfd write per sleep.
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{eventfd, EventfdFlags};

/// Messages of type `M` for one reader.
#[derive(Debug)]
pub struct Mailbox<M> {
    state: Mutex<State<M>>,
    bell: OwnedFd,
}

#[derive(Debug)]
struct State<M> {
    messages: Vec<M>,
    /// The bell was rung since the reader last looked.
    is_rung: bool,
}

impl<M> Mailbox<M> {
    /// An empty mailbox.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::new(State { messages: Vec::new(), is_rung: false }), bell })
    }

    /// Readable while messages wait that the reader has not been told of.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Leave a message.
    pub fn send(&self, message: M) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.messages.push(message);
        self.ring(&mut state);
    }

    /// Leave all messages of `messages`, which is empty afterwards.
    pub fn send_all(&self, messages: &mut Vec<M>) {
        if messages.is_empty() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.messages.append(messages);
        self.ring(&mut state);
    }

    fn ring(&self, state: &mut State<M>) {
        if !state.is_rung {
            state.is_rung = true;
            // Only a full counter could refuse, and one is written per look of the reader.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Take everything, in the order of arrival; `into` is cleared first and gives its memory to the mailbox.
    pub fn take(&self, into: &mut Vec<M>) {
        into.clear();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_rung {
            state.is_rung = false;
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.bell, &mut count);
        }
        std::mem::swap(&mut state.messages, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_order_and_the_bell_is_rung_once() {
        let mailbox = Mailbox::new().unwrap();
        let mut taken = vec![9];
        mailbox.take(&mut taken);
        assert!(taken.is_empty());
        mailbox.send(1);
        mailbox.send_all(&mut vec![2, 3]);
        let mut count = [0; 8];
        rustix::io::read(mailbox.bell(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        mailbox.take(&mut taken);
        assert_eq!(taken, [1, 2, 3]);
        mailbox.send(4);
        rustix::io::read(mailbox.bell(), &mut count).unwrap();
        mailbox.take(&mut taken);
        assert_eq!(taken, [4]);
    }
}
