//! The I/O threads of a node, as other threads see them.
use std::any::Any;
use std::fmt::{self, Debug, Formatter};
use std::os::fd::OwnedFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::event::{Inbox, IoEvent};
use super::limits::Limits;
use super::output::size_bytes;
use super::request_room::RequestRoom;
use super::slots::Slots;
use super::socket_status::SocketStatus;
use super::thread::{Command, IoThread};
use crate::exchange::{ConnectionId, Outcome, Output, Peer, RequestId, RequestNumber, Service};
use crate::mailbox::Mailbox;

/// Threads that own sockets; `M` is the message of their services.
pub struct IoThreads<M> {
    threads: Vec<Arc<Thread<M>>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// One thread, seen from outside.
struct Thread<M> {
    mailbox: Arc<Mailbox<Command<M>>>,
    slots: Arc<Slots>,
    /// Commands that [`IoThreads::flush`] sends.
    batch: Mutex<Vec<Command<M>>>,
}

impl<M> Thread<M> {
    fn batch(&self) -> MutexGuard<'_, Vec<Command<M>>> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves messages for the service of one thread.
pub struct ServiceSender<M> {
    mailbox: Arc<Mailbox<Command<M>>>,
}

impl<M> ServiceSender<M> {
    /// Leave one message.
    pub fn send(&self, message: M) {
        self.mailbox.send(Command::Message(message));
    }

    /// Leave several, with one wake-up.
    pub fn send_all(&self, messages: impl IntoIterator<Item = M>) {
        self.mailbox.send_all(&mut messages.into_iter().map(Command::Message).collect());
    }
}

impl<M> Clone for ServiceSender<M> {
    fn clone(&self) -> Self {
        Self { mailbox: Arc::clone(&self.mailbox) }
    }
}

impl<M> Debug for ServiceSender<M> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServiceSender")
    }
}

impl<M: Send + 'static> IoThreads<M> {
    /// Start `count` threads, each with a service that `make_service` makes for it.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub fn start<S: Service<Message = M>>(
        count: u16,
        limits: Limits,
        inbox: &Arc<dyn Inbox>,
        mut make_service: impl FnMut(ServiceSender<M>) -> S,
    ) -> std::io::Result<Self> {
        let mut threads = Self { threads: Vec::new(), handles: Mutex::new(Vec::new()) };
        let room = Arc::new(RequestRoom::new(&limits));
        for index in 0..count.max(1) {
            let mailbox: Arc<Mailbox<Command<M>>> = Arc::new(Mailbox::new()?);
            let told = Arc::clone(&mailbox);
            room.add_waker(Box::new(move || told.send(Command::Room)));
            let slots = Arc::new(Slots::default());
            let service = make_service(ServiceSender { mailbox: Arc::clone(&mailbox) });
            let mut thread = IoThread::new(
                Arc::clone(&mailbox),
                Arc::clone(&slots),
                Arc::clone(inbox),
                limits,
                Arc::clone(&room),
                service,
            )?;
            let inbox = Arc::clone(inbox);
            let handle = Builder::new().name(format!("kraftlog-io-{index}")).spawn(move || {
                let failure = match catch_unwind(AssertUnwindSafe(|| thread.run())) {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => error.to_string(),
                    Err(panic) => text_of(panic.as_ref()),
                };
                inbox.post(&mut vec![IoEvent::Failed(failure)]);
            })?;
            threads.threads.push(Arc::new(Thread { mailbox, slots, batch: Mutex::default() }));
            threads.handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        }
        Ok(threads)
    }

    /// Give a connected, non-blocking socket to the thread that has the fewest.
    pub fn adopt(&self, socket: OwnedFd, peer: Peer) -> Option<Socket<M>> {
        let (index, thread) =
            self.threads.iter().enumerate().min_by_key(|(_, thread)| thread.slots.taken())?;
        let connection = thread.slots.take(u16::try_from(index).unwrap_or(u16::MAX));
        let status = Arc::new(SocketStatus::default());
        thread.mailbox.send(Command::Adopt { connection, socket, peer, status: Arc::clone(&status) });
        Some(Socket { thread: Arc::clone(thread), connection, status })
    }

    /// Tell the threads what was asked of sockets since the last call.
    pub fn flush(&self) {
        for thread in &self.threads {
            let mut batch = thread.batch();
            if !batch.is_empty() {
                thread.mailbox.send_all(&mut batch);
            }
        }
    }
}

impl<M> IoThreads<M> {
    /// Close all connections and end the threads; waits for them.
    pub fn stop(&self) {
        for thread in &self.threads {
            let mut batch = thread.batch();
            batch.push(Command::Stop);
            thread.mailbox.send_all(&mut batch);
        }
        let handles = std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        for handle in handles {
            // A panic of the thread was caught in it.
            let _ = handle.join();
        }
    }
}

impl<M> Drop for IoThreads<M> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<M> Debug for IoThreads<M> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "IoThreads({})", self.threads.len())
    }
}

/// A connection of an I/O thread, in Python's hands. What is asked of it is sent by [`IoThreads::flush`]; after the
/// connection is lost nothing of it reaches anyone.
pub struct Socket<M> {
    thread: Arc<Thread<M>>,
    connection: ConnectionId,
    status: Arc<SocketStatus>,
}

impl<M> Socket<M> {
    /// Names the connection in events.
    pub fn id(&self) -> ConnectionId {
        self.connection
    }

    /// What is unsent and owed.
    pub fn status(&self) -> &SocketStatus {
        &self.status
    }

    fn ask(&self, command: Command<M>) {
        self.thread.batch().push(command);
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
        self.ask(Command::Answer { request, outcome });
    }

    /// The requests up to this one have begun: later ones may be served by the thread.
    pub fn begun(&self, number: RequestNumber) {
        self.ask(Command::Begun(RequestId { connection: self.connection, number }));
    }

    /// The requests up to this one wait for the loop no more: their frames were decoded, or they wait for an earlier one
    /// of their connection. [`Self::begun`] and [`Self::answer`] imply it.
    pub fn taken(&self, number: RequestNumber) {
        self.ask(Command::Taken(RequestId { connection: self.connection, number }));
    }

    /// Close after the answers that were given before; `reason` comes back in [`IoEvent::Lost`].
    pub fn close(&self, reason: Option<String>) {
        self.ask(Command::Close { connection: self.connection, reason });
    }

    /// Handle and receive no more requests until told otherwise; what is pending is still answered.
    pub fn mute(&self, is_on: bool) {
        self.ask(Command::Mute { connection: self.connection, is_on });
    }

    /// Handle no more requests; what is pending is still answered.
    pub fn stop_reading(&self) {
        self.ask(Command::StopReading(self.connection));
    }
}

impl<M> Debug for Socket<M> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Socket({:?})", self.connection)
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
