//! The I/O threads of a node, as other threads see them.
use std::any::Any;
use std::fmt::{self, Debug, Formatter};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::acceptor::{Acceptor, Listener};
use super::adoption::Adoption;
use super::event::{Inbox, IoEvent};
use super::limits::Limits;
use super::request_room::RequestRoom;
use super::slots::Slots;
use super::socket::{Batch, Socket, SocketCommand};
use super::socket_status::SocketStatus;
use super::thread::{Command, IoThread};
use crate::exchange::Service;
use crate::mailbox::Mailbox;

/// Threads that own sockets; the first one accepts connections for all. `M` is the message of their services.
pub struct IoThreads<M> {
    threads: Vec<Arc<Thread<M>>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// One thread, seen from outside.
pub(super) struct Thread<M> {
    pub(super) mailbox: Arc<Mailbox<Command<M>>>,
    slots: Arc<Slots>,
    /// What [`IoThreads::flush`] sends.
    batch: Arc<Batch>,
}

impl<M> Thread<M> {
    fn batch(&self) -> MutexGuard<'_, Vec<SocketCommand>> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(&self) {
        let mut batch = self.batch();
        if !batch.is_empty() {
            self.mailbox.send_each(batch.drain(..).map(Command::Socket));
        }
    }
}

/// Choose the thread that has the fewest connections for a further one: its index, the handle of the connection, and what the
/// thread has to be told.
pub(super) fn assign<M>(
    threads: &[Arc<Thread<M>>],
    adoption: Adoption,
) -> Option<(usize, Socket, Command<M>)> {
    let (index, thread) = threads.iter().enumerate().min_by_key(|(_, thread)| thread.slots.taken())?;
    let connection = thread.slots.take(u16::try_from(index).unwrap_or(u16::MAX));
    let status = Arc::new(SocketStatus::default());
    let handle = Socket::new(Arc::clone(&thread.batch), connection, Arc::clone(&status));
    Some((index, handle, Command::Adopt { connection, status, adoption: Box::new(adoption) }))
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
        let room = Arc::new(RequestRoom::new(&limits));
        let mut threads = Vec::new();
        for _ in 0..count.max(1) {
            let mailbox: Arc<Mailbox<Command<M>>> = Arc::new(Mailbox::new()?);
            let told = Arc::clone(&mailbox);
            room.add_waker(Box::new(move || told.send(Command::Room)));
            threads.push(Arc::new(Thread { mailbox, slots: Arc::default(), batch: Arc::default() }));
        }
        let started = Self { threads, handles: Mutex::new(Vec::new()) };
        for (index, seen) in started.threads.iter().enumerate() {
            let service = make_service(ServiceSender { mailbox: Arc::clone(&seen.mailbox) });
            let mut thread = IoThread::new(
                Arc::clone(&seen.mailbox),
                Arc::clone(&seen.slots),
                Acceptor::new(started.threads.clone()),
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
            started.handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        }
        Ok(started)
    }

    /// Give a connection to the thread that has the fewest.
    pub fn adopt(&self, adoption: Adoption) -> Option<Socket> {
        let (index, handle, adoption) = assign(&self.threads, adoption)?;
        self.threads.get(index)?.mailbox.send(adoption);
        Some(handle)
    }

    /// Accept the connections of a listener from here on; each is told by [`IoEvent::Accepted`] or [`IoEvent::Refused`].
    pub fn listen(&self, listener: Listener) {
        if let Some(thread) = self.threads.first() {
            thread.mailbox.send(Command::Listen(listener));
        }
    }

    /// Close a listener; its connections stay. Answered by [`IoEvent::ListenerEnded`] if there is one of that number.
    pub fn end_listener(&self, number: u16) {
        if let Some(thread) = self.threads.first() {
            thread.mailbox.send(Command::EndListener(number));
        }
    }

    /// Tell the threads what was asked of sockets since the last call.
    pub fn flush(&self) {
        for thread in &self.threads {
            thread.flush();
        }
    }
}

impl<M> IoThreads<M> {
    /// Close all connections and end the threads; waits for them.
    pub fn stop(&self) {
        let handles = std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        // In turn: the first one gives connections to the others, which have to take them before they end.
        for (thread, handle) in self.threads.iter().zip(handles) {
            thread.flush();
            thread.mailbox.send(Command::Stop);
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

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
