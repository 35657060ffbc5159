//! Accepts connections on the first I/O thread, for all of them.
//!
//! Python binds and hands listening sockets over. It hears of each connection before the thread that gets the connection
//! does, and so before the first frame that it has to answer.
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{acceptfrom_with, sockopt, SocketFlags};
use rustix::process::{getrlimit, Resource};
use rustix::time::{clock_gettime, ClockId};

use super::adoption::Adoption;
use super::event::{Inbox, IoEvent};
use super::thread::Command;
use super::threads::{assign, Thread};
use crate::admission::{Admission, Admitted};
use crate::exchange::Peer;

/// The place in the table of connections that no connection has: in the data of an epoll event it means a listener, whose
/// number stands where a connection has its generation.
pub(super) const LISTENER_SLOT: u32 = u32::MAX;
/// Of all listeners in one turn, so that the connections of the thread are served meanwhile.
const ACCEPTS_PER_TURN: usize = 64;
/// Connections, accepted or refused, of which Python has not heard: further ones wait in the kernel's queue.
const UNHEARD_MAX: usize = 256;
const UNHEARD_PAUSE: Duration = Duration::from_millis(5);
/// While a listener has all the connections that it may have.
const SLOT_CHECK: Duration = Duration::from_millis(50);
/// Of one listener; further ones are closed at once, so that an address with a quota cannot use up the descriptors.
const HELD_MAX: usize = 1024;
const OUT_OF_FILES_PAUSE: Duration = Duration::from_secs(1);
/// Descriptors that connections leave for the files of the logs, as long as the limit is large enough to share.
const RESERVED_DESCRIPTORS: u64 = 256;
const RESERVED_SHARE: u64 = 4;

/// A listening socket, and what counts for its connections.
#[derive(Debug)]
pub struct Listener {
    /// Names it in events and in [`Peer::listener`].
    pub number: u16,
    /// Names it in [`Admission`].
    pub name: Arc<str>,
    /// Bound, listening and non-blocking.
    pub socket: OwnedFd,
    /// Of the whole node.
    pub admission: Arc<Admission>,
    /// `socket.send.buffer.bytes`; `None` leaves it to the kernel.
    pub send_buffer_bytes: Option<usize>,
}

/// Counts an event of which Python has not heard, as long as the event exists.
#[derive(Debug)]
pub struct Unheard {
    count: Arc<AtomicUsize>,
}

impl Unheard {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self { count: Arc::clone(count) }
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A listener and where it stands.
struct Listening {
    listener: Listener,
    /// The kernel reported connections.
    is_ready: bool,
    /// It is out of the epoll set until then.
    paused_until: Option<Instant>,
    /// Accepted, but above the rate or the slots of its listener.
    waiting: Option<(OwnedFd, SocketAddr)>,
    /// Python was told that descriptors are short.
    is_short: bool,
    /// Of addresses that connect too often, by when they are closed.
    held: BTreeMap<(Instant, RawFd), OwnedFd>,
}

/// What a turn did, to be told and done at its end.
struct Turn<M> {
    events: Vec<IoEvent>,
    /// By index of the thread.
    adoptions: Vec<Vec<Command<M>>>,
}

/// The listeners of a thread.
pub(super) struct Acceptor<M> {
    threads: Vec<Arc<Thread<M>>>,
    listening: Vec<Listening>,
    unheard: Arc<AtomicUsize>,
    has_ready: bool,
}

impl<M> Acceptor<M> {
    /// Accepts for `threads`, the first of which calls.
    pub(super) fn new(threads: Vec<Arc<Thread<M>>>) -> Self {
        Self { threads, listening: Vec::new(), unheard: Arc::default(), has_ready: false }
    }

    /// Accept from here on; connections that came before wait in the kernel's queue.
    pub(super) fn listen(&mut self, listener: Listener, now: Instant) {
        // The next turn puts it into the epoll set.
        let paused_until = Some(now);
        self.listening.push(Listening {
            listener,
            is_ready: false,
            paused_until,
            waiting: None,
            is_short: false,
            held: BTreeMap::new(),
        });
    }

    /// Stop listening; whether there was such a listener. Its connections stay.
    pub(super) fn end(&mut self, epoll: &OwnedFd, number: u16) -> bool {
        let Some(index) = self.listening.iter().position(|one| one.listener.number == number) else {
            return false;
        };
        let ended = self.listening.swap_remove(index);
        // To close it is not enough if a forked process has it too. While it pauses it is not in the set.
        let _ = epoll::delete(epoll, &ended.listener.socket);
        true
    }

    /// The kernel has connections.
    pub(super) fn became_ready(&mut self, number: u16) {
        if let Some(listening) = self.listening.iter_mut().find(|one| one.listener.number == number) {
            listening.is_ready = true;
            self.has_ready = true;
        }
    }

    /// When [`Self::turn`] has to be called though no listener became ready.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.listening.iter().filter_map(Listening::next_deadline).min()
    }

    /// Accept what is there, within bounds. Returns what the calling thread has to do itself.
    pub(super) fn turn(&mut self, epoll: &OwnedFd, inbox: &Arc<dyn Inbox>, now: Instant) -> Vec<Command<M>> {
        if !self.has_ready && self.next_deadline().is_none_or(|deadline| deadline > now) {
            return Vec::new();
        }
        self.has_ready = false;
        let mut turn =
            Turn { events: Vec::new(), adoptions: self.threads.iter().map(|_| Vec::new()).collect() };
        let Self { threads, listening, unheard, .. } = self;
        let ready = listening.iter().filter(|listening| listening.is_ready).count();
        for listening in listening {
            listening.close_held(now);
            if std::mem::take(&mut listening.is_ready) {
                listening.accept((ACCEPTS_PER_TURN / ready).max(1), threads, unheard, &mut turn, now);
                if listening.paused_until.is_some() {
                    // It is in the set, or would not have become ready.
                    let _ = epoll::delete(epoll, &listening.listener.socket);
                }
            } else if listening.paused_until.is_some_and(|at| at <= now) {
                listening.resume(epoll, threads, unheard, &mut turn, now);
            }
        }
        // Python hears of a connection before the thread that has it does.
        inbox.post(&mut turn.events);
        let mut own = Vec::new();
        for (index, (mut adoptions, thread)) in turn.adoptions.into_iter().zip(threads).enumerate() {
            if index == 0 {
                own = adoptions;
            } else {
                thread.mailbox.send_all(&mut adoptions);
            }
        }
        own
    }
}

impl Listening {
    /// When it has to do something although the kernel reports nothing.
    fn next_deadline(&self) -> Option<Instant> {
        let held_until = self.held.keys().next().map(|(until, _)| *until);
        [self.paused_until, held_until].into_iter().flatten().min()
    }

    /// Close the connections that were held for long enough.
    fn close_held(&mut self, now: Instant) {
        while self.held.first_key_value().is_some_and(|((until, _), _)| *until <= now) {
            self.held.pop_first();
        }
    }

    fn accept<M>(
        &mut self,
        most: usize,
        threads: &[Arc<Thread<M>>],
        unheard: &Arc<AtomicUsize>,
        turn: &mut Turn<M>,
        now: Instant,
    ) {
        let first_reserved = first_reserved_descriptor();
        for _ in 0..most {
            if unheard.load(Ordering::Relaxed) >= UNHEARD_MAX {
                self.paused_until = Some(now + UNHEARD_PAUSE);
                return;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (socket, address) = match acceptfrom_with(&self.listener.socket, flags) {
                Ok(accepted) => accepted,
                Err(Errno::AGAIN) => return,
                Err(error) if is_of_one_connection(error) => continue,
                Err(error) => {
                    self.pause_for_descriptors(std::io::Error::from(error).to_string(), turn, now);
                    return;
                }
            };
            let Some(Ok(address)) = address.map(SocketAddr::try_from) else { continue };
            let number = u64::try_from(socket.as_raw_fd()).unwrap_or(u64::MAX);
            let (admission, name) = (&self.listener.admission, &self.listener.name);
            let delay_s = admission.arrived(name, monotonic_s());
            if delay_s > 0.0 || !admission.has_slot(name) {
                self.waiting = Some((socket, address));
                self.paused_until = Some(now + Duration::from_secs_f64(delay_s));
                return;
            }
            self.admit(socket, address, threads, unheard, turn, now);
            if number >= first_reserved {
                let reason =
                    format!("{first_reserved} file descriptors are in use, the others are kept for files");
                self.pause_for_descriptors(reason, turn, now);
                return;
            }
        }
    }

    /// Give a connection to a thread, unless it is held or refused.
    fn admit<M>(
        &mut self,
        socket: OwnedFd,
        address: SocketAddr,
        threads: &[Arc<Thread<M>>],
        unheard: &Arc<AtomicUsize>,
        turn: &mut Turn<M>,
        now: Instant,
    ) {
        let Listener { number, name, admission, send_buffer_bytes, .. } = &self.listener;
        let host = address.ip().to_string();
        let held_s = admission.held_for(&host, monotonic_s());
        if held_s > 0.0 {
            if self.held.len() < HELD_MAX {
                self.held.insert((now + Duration::from_secs_f64(held_s), socket.as_raw_fd()), socket);
            }
            return;
        }
        let (listener, unheard) = (*number, Unheard::new(unheard));
        let place = match Admitted::new(admission, name, &host) {
            Ok(place) => place,
            Err(refusal) => {
                let reason = refusal.to_string();
                turn.events.push(IoEvent::Refused { listener, address, reason, unheard });
                return;
            }
        };
        // If one of these fails the connection is broken, which is noticed when it is read.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        let _ = sockopt::set_socket_keepalive(&socket, true);
        if let Some(size_bytes) = send_buffer_bytes {
            let _ = sockopt::set_socket_send_buffer_size(&socket, *size_bytes);
        }
        let adoption =
            Adoption { place: Some(place), ..Adoption::new(socket, Peer::anonymous(listener, host)) };
        let Some((index, handle, adoption)) = assign(threads, adoption) else { return };
        turn.events.push(IoEvent::Accepted { listener, socket: handle, address, unheard });
        if let Some(adoptions) = turn.adoptions.get_mut(index) {
            adoptions.push(adoption);
        }
    }

    /// The pause is over: go on with the connection that waits, and with the kernel's queue.
    fn resume<M>(
        &mut self,
        epoll: &OwnedFd,
        threads: &[Arc<Thread<M>>],
        unheard: &Arc<AtomicUsize>,
        turn: &mut Turn<M>,
        now: Instant,
    ) {
        if let Some((socket, address)) = self.waiting.take() {
            if !self.listener.admission.has_slot(&self.listener.name) {
                self.waiting = Some((socket, address));
                self.paused_until = Some(now + SLOT_CHECK);
                return;
            }
            self.admit(socket, address, threads, unheard, turn, now);
        }
        if self.is_short {
            if lowest_free_descriptor() >= first_reserved_descriptor() {
                self.paused_until = Some(now + OUT_OF_FILES_PAUSE);
                return;
            }
            self.is_short = false;
            turn.events.push(IoEvent::Resumed { listener: self.listener.number });
        }
        self.paused_until = None;
        let data =
            epoll::EventData::new_u64(u64::from(LISTENER_SLOT) | u64::from(self.listener.number) << 32);
        if let Err(error) = epoll::add(epoll, &self.listener.socket, data, epoll::EventFlags::IN) {
            self.pause_for_descriptors(format!("epoll failed: {error}"), turn, now);
        }
    }

    /// Out of descriptors or memory: leave the queue alone for a moment instead of spinning on it.
    fn pause_for_descriptors<M>(&mut self, reason: String, turn: &mut Turn<M>, now: Instant) {
        self.paused_until = Some(now + OUT_OF_FILES_PAUSE);
        if !self.is_short {
            self.is_short = true;
            turn.events.push(IoEvent::Paused { listener: self.listener.number, reason });
        }
    }
}

/// Whether an error of `accept` is about a connection that is gone, or about the network below it; see accept(2).
fn is_of_one_connection(error: Errno) -> bool {
    matches!(
        error,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::PERM
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NONET
    )
}

/// The clock of Python's loop, which counts connections of other listeners.
fn monotonic_s() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// The descriptor number from which on no connection is accepted.
///
/// The kernel gives out the lowest free number: a socket with at least this number has at least as many open files and
/// sockets below it.
fn first_reserved_descriptor() -> u64 {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return u64::MAX };
    limit - RESERVED_DESCRIPTORS.min(limit / RESERVED_SHARE)
}

/// The number that the next file gets; a very large one if there is none.
fn lowest_free_descriptor() -> u64 {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_or(u64::MAX, |file| u64::try_from(file.as_raw_fd()).unwrap_or(u64::MAX))
}
