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
    bell: Bell,
}

/// How the reader hears of the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bell {
    /// The sender rings.
    Silent,
    /// It was rung since the reader last looked.
    Rung,
    /// The reader is awake and looks without being told.
    Attended,
}

impl<M> Mailbox<M> {
    /// An empty mailbox.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::new(State { messages: Vec::new(), bell: Bell::Silent }), bell })
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

    /// Leave what `messages` gives; it is asked under the lock of the mailbox and must send nothing itself.
    pub(crate) fn send_each(&self, messages: impl Iterator<Item = M>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.messages.extend(messages);
        self.ring(&mut state);
    }

    fn ring(&self, state: &mut State<M>) {
        if state.bell == Bell::Silent {
            state.bell = Bell::Rung;
            // Only a full counter could refuse, and one is written per look of the reader.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// For the reader: it will [`Self::take`] before it sleeps, and need not be told until then.
    pub fn attend(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.bell == Bell::Silent {
            state.bell = Bell::Attended;
        }
    }

    /// Take everything, in the order of arrival; `into` is cleared first and gives its memory to the mailbox.
    pub fn take(&self, into: &mut Vec<M>) {
        into.clear();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut state.bell, Bell::Silent) == Bell::Rung {
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

    #[test]
    fn an_attended_mailbox_rings_no_bell_until_it_was_taken() {
        let mailbox = Mailbox::new().unwrap();
        let mut taken = Vec::new();
        let mut count = [0; 8];
        mailbox.attend();
        mailbox.send(1);
        assert_eq!(rustix::io::read(mailbox.bell(), &mut count), Err(rustix::io::Errno::AGAIN));
        mailbox.take(&mut taken);
        assert_eq!(taken, [1]);
        mailbox.send(2);
        mailbox.attend();
        mailbox.send(3);
        mailbox.take(&mut taken);
        assert_eq!(taken, [2, 3]);
        mailbox.send(4);
        rustix::io::read(mailbox.bell(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1, "rung for 4 alone");
    }
}
