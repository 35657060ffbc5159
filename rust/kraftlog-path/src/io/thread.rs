//! The loop of one I/O thread.
use std::collections::VecDeque;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{epoll, Timespec};
use rustix::io::Errno;

use super::acceptor::{Acceptor, Listener, LISTENER_SLOT};
use super::adoption::Adoption;
use super::connection::{Connection, Desk, Served};
use super::event::{Inbox, IoEvent};
use super::input::{Pool, SCRATCH_BYTES};
use super::limits::Limits;
use super::request_room::RequestRoom;
use super::session::Session;
use super::slots::Slots;
use super::socket::SocketCommand;
use super::socket_status::SocketStatus;
use super::sole_connection::SoleConnection;
use crate::exchange::{Answered, ConnectionId, Outcome, RequestId, RequestNumber, Service};
use crate::mailbox::Mailbox;

/// What other threads ask of an I/O thread.
pub(super) enum Command<M> {
    /// Own a connected, non-blocking socket.
    Adopt {
        connection: ConnectionId,
        status: Arc<SocketStatus>,
        adoption: Box<Adoption>,
    },
    /// Of a connection.
    Socket(SocketCommand),
    /// Accept the connections of a listener.
    Listen(Listener),
    /// Close the listener of this number.
    EndListener(u16),
    /// There is room for requests that Python answers: the end of the turn looks.
    Room,
    Message(M),
    Stop,
}

const EVENTS_PER_WAKE_UP: usize = 256;
/// Time for all slices of a turn, if they are many, and what each gets at least.
const TURN: Duration = Duration::from_millis(4);
const SHORTEST_SLICE: Duration = Duration::from_micros(100);
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_IDLE_CHECK: Duration = Duration::from_secs(30);
const BELL: u64 = u64::MAX;

pub(super) struct IoThread<S: Service> {
    mailbox: Arc<Mailbox<Command<S::Message>>>,
    slots: Arc<Slots>,
    acceptor: Acceptor<S::Message>,
    inbox: Arc<dyn Inbox>,
    limits: Limits,
    service: S,
    epoll: OwnedFd,
    /// By slot; boxed, so that one can be taken out while it is served.
    connections: Vec<Option<Box<Connection>>>,
    /// Slots of connections with work, in the order in which their turn comes.
    queue: VecDeque<u32>,
    /// Slots of connections with answers to send in this turn.
    dirty: Vec<u32>,
    /// Connections that wait for room for what they hand over, in the order in which they began.
    room_waiters: VecDeque<ConnectionId>,
    room: Arc<RequestRoom>,
    sole: SoleConnection,
    commands: Vec<Command<S::Message>>,
    scratch: Box<[u8]>,
    pool: Pool,
    events: Vec<IoEvent>,
    /// Memory for those of frames that are handled together.
    outcomes: Vec<Outcome>,
    answered: Vec<Answered>,
    next_trim: Option<Instant>,
    next_idle_check: Option<Instant>,
    is_stopped: bool,
}

impl<S: Service> IoThread<S> {
    pub(super) fn new(
        mailbox: Arc<Mailbox<Command<S::Message>>>,
        slots: Arc<Slots>,
        acceptor: Acceptor<S::Message>,
        inbox: Arc<dyn Inbox>,
        limits: Limits,
        room: Arc<RequestRoom>,
        service: S,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, mailbox.bell(), epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Self {
            mailbox,
            slots,
            acceptor,
            inbox,
            limits,
            service,
            epoll,
            connections: Vec::new(),
            queue: VecDeque::new(),
            dirty: Vec::new(),
            room_waiters: VecDeque::new(),
            room,
            sole: SoleConnection::new(Instant::now()),
            commands: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            pool: Pool::default(),
            events: Vec::new(),
            outcomes: Vec::new(),
            answered: Vec::new(),
            next_trim: None,
            next_idle_check: None,
            is_stopped: false,
        })
    }

    /// Serve until told to stop.
    pub(super) fn run(&mut self) -> std::io::Result<()> {
        let mut ready = Vec::with_capacity(EVENTS_PER_WAKE_UP);
        while !self.is_stopped {
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut ready), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            let mut is_told = false;
            for event in ready.drain(..) {
                if event.data.u64() == BELL {
                    is_told = true;
                } else {
                    self.socket_event(event.data.u64(), event.flags);
                }
            }
            if is_told {
                self.take_commands(now);
            }
            for adoption in self.acceptor.turn(&self.epoll, &self.inbox, now) {
                self.obey(adoption, now);
            }
            self.serve_round(now);
            self.end_turn();
            self.tick(now);
            if !self.events.is_empty() {
                self.inbox.post(&mut self.events);
            }
        }
        self.close_all();
        Ok(())
    }

    fn timeout(&self) -> Option<Timespec> {
        if !self.queue.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let deadlines = [
            self.service.next_deadline(),
            self.acceptor.next_deadline(),
            self.next_trim,
            self.next_idle_check,
        ];
        let first = deadlines.into_iter().flatten().min()?;
        let left = first.saturating_duration_since(Instant::now());
        Timespec::try_from(left).ok()
    }

    /// Obey what other threads asked for; how many commands that were.
    fn take_commands(&mut self, now: Instant) -> usize {
        let mut commands = mem::take(&mut self.commands);
        self.mailbox.take(&mut commands);
        let count = commands.len();
        for command in commands.drain(..) {
            self.obey(command, now);
        }
        self.commands = commands;
        count
    }

    fn socket_event(&mut self, data: u64, flags: epoll::EventFlags) {
        let (slot, generation) = (data as u32, (data >> 32) as u32);
        if slot == LISTENER_SLOT {
            self.acceptor.became_ready(generation as u16);
            return;
        }
        let Some(Some(connection)) = self.connections.get_mut(slot as usize) else { return };
        if connection.id.generation != generation {
            return;
        }
        let is_dead = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        if is_dead && (connection.is_blocked || connection.is_muted || connection.is_stopping()) {
            self.close(slot, None);
            return;
        }
        if flags.contains(epoll::EventFlags::OUT) {
            connection.became_writable();
        }
        if is_dead || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP) {
            connection.became_readable(is_dead || flags.contains(epoll::EventFlags::RDHUP));
        }
        self.enqueue(slot);
    }

    /// Give a connection a slice in the next round.
    fn enqueue(&mut self, slot: u32) {
        if let Some(Some(connection)) = self.connections.get_mut(slot as usize) {
            if !connection.is_queued {
                connection.is_queued = true;
                self.queue.push_back(slot);
            }
        }
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(id.slot as usize)?.as_deref_mut()?;
        (connection.id.generation == id.generation).then_some(connection)
    }

    fn obey(&mut self, command: Command<S::Message>, now: Instant) {
        match command {
            Command::Adopt { connection, status, adoption } => {
                let room = Arc::clone(&self.room);
                let connection = Connection::new(connection, *adoption, status, room, &mut self.pool, now);
                self.adopt(connection);
            }
            Command::Socket(command) => self.obey_socket(command, now),
            Command::Listen(listener) => self.acceptor.listen(listener, now),
            Command::EndListener(listener) => {
                if self.acceptor.end(&self.epoll, listener) {
                    self.events.push(IoEvent::ListenerEnded { listener });
                }
            }
            Command::Room => {}
            Command::Message(message) => {
                self.service.message(message, now, &mut self.answered);
                self.apply_answered(now);
            }
            Command::Stop => self.is_stopped = true,
        }
    }

    fn obey_socket(&mut self, command: SocketCommand, now: Instant) {
        match command {
            SocketCommand::Answer { request, outcome } => self.answer(request, outcome, true, now),
            SocketCommand::Begun(RequestId { connection: id, number }) => self.begun(id, number),
            SocketCommand::Taken(RequestId { connection: id, number }) => {
                if let Some(connection) = self.find(id) {
                    connection.taken(number);
                }
            }
            SocketCommand::Close { connection: id, reason } => {
                if self.find(id).is_some() {
                    self.send(id.slot);
                    self.close(id.slot, reason);
                }
            }
            SocketCommand::StopReading(id) => {
                if let Some(connection) = self.find(id) {
                    connection.stop_reading();
                }
            }
            SocketCommand::Session { connection: id, left } => {
                if let Some(connection) = self.find(id) {
                    connection.session = Session::new(left, now);
                }
            }
            SocketCommand::Mute { connection: id, is_on } => {
                if let Some(connection) = self.find(id) {
                    connection.is_muted = is_on;
                    self.go_on(id.slot);
                }
            }
        }
    }

    fn adopt(&mut self, connection: Connection) {
        let (id, has_work) = (connection.id, connection.has_work());
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = u64::from(id.slot) | u64::from(id.generation) << 32;
        let added = epoll::add(&self.epoll, connection.socket(), epoll::EventData::new_u64(data), flags);
        let index = id.slot as usize;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        if let Some(place) = self.connections.get_mut(index) {
            *place = Some(Box::new(connection));
        }
        if let Err(error) = added {
            self.close(id.slot, Some(format!("epoll failed: {error}")));
        } else if has_work {
            self.enqueue(id.slot);
        }
        if let Some(max_idle) = self.limits.max_idle {
            self.next_idle_check
                .get_or_insert_with(|| Instant::now() + (max_idle / 4).min(LONGEST_IDLE_CHECK));
        }
    }

    fn begun(&mut self, id: ConnectionId, number: RequestNumber) {
        if let Some(connection) = self.find(id) {
            connection.begun(number);
            self.go_on(id.slot);
        }
    }

    fn answer(&mut self, request: RequestId, outcome: Outcome, is_counted: bool, now: Instant) {
        let Some(connection) = self.find(request.connection) else { return };
        if let Err(reason) = connection.answer(request.number, outcome, is_counted, now) {
            self.send(request.connection.slot);
            self.close(request.connection.slot, Some(reason));
            return;
        }
        if !connection.is_dirty && connection.has_output() {
            connection.is_dirty = true;
            self.dirty.push(request.connection.slot);
        }
        self.go_on(request.connection.slot);
    }

    /// Queue a connection whose frames waited, if they need not wait any more.
    fn go_on(&mut self, slot: u32) {
        let limits = &self.limits;
        if let Some(Some(connection)) = self.connections.get_mut(slot as usize) {
            if connection.may_go_on(limits) {
                connection.is_blocked = false;
                self.enqueue(slot);
            }
        }
    }

    fn apply_answered(&mut self, now: Instant) {
        let mut answered = mem::take(&mut self.answered);
        for Answered { request, outcome } in answered.drain(..) {
            self.answer(request, outcome, false, now);
        }
        self.answered = answered;
    }

    /// A slice for each connection that had work when the round began.
    fn serve_round(&mut self, now: Instant) {
        let count = self.queue.len();
        let share = TURN / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        let time = share.clamp(SHORTEST_SLICE, self.limits.slice.time.max(SHORTEST_SLICE));
        let mut now = now;
        for _ in 0..count {
            let Some(slot) = self.queue.pop_front() else { return };
            now = self.serve(slot, now, time);
        }
    }

    fn serve(&mut self, slot: u32, now: Instant, time: Duration) -> Instant {
        let Some(mut connection) = self.connections.get_mut(slot as usize).and_then(Option::take) else {
            return now;
        };
        connection.is_queued = false;
        self.sole.served(connection.id, now);
        let mut desk = Desk {
            service: &mut self.service,
            scratch: &mut self.scratch,
            pool: &mut self.pool,
            events: &mut self.events,
            outcomes: &mut self.outcomes,
            limits: &self.limits,
            is_room_contended: !self.room_waiters.is_empty(),
            frames_left: self.limits.slice.frames,
            end: now + time,
            now,
        };
        let served = if connection.is_blocked { Served::Blocked } else { connection.serve(&mut desk) };
        let now = desk.now;
        connection.is_blocked = served == Served::Blocked;
        if served == Served::Blocked && connection.waits_for_room && !connection.is_room_queued {
            connection.is_room_queued = true;
            self.room_waiters.push_back(connection.id);
        }
        if let Some(place) = self.connections.get_mut(slot as usize) {
            *place = Some(connection);
        }
        self.send(slot);
        match served {
            Served::Bounded => self.enqueue(slot),
            Served::Close(reason) => self.close(slot, reason),
            Served::All | Served::Blocked => {}
        }
        now
    }

    /// Send the answers of one connection.
    fn send(&mut self, slot: u32) {
        let Some(Some(connection)) = self.connections.get_mut(slot as usize) else { return };
        connection.is_dirty = false;
        match connection.send(&self.limits) {
            Ok((has_more, is_drained)) => {
                if is_drained {
                    self.events.push(IoEvent::Drained(connection.id));
                }
                if has_more {
                    self.enqueue(slot);
                }
                self.go_on(slot);
            }
            Err(reason) => self.close(slot, reason),
        }
    }

    /// What the service put off, and the answers that became known in this turn.
    fn end_turn(&mut self) {
        let now = Instant::now();
        if self.service.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.service.on_time(now, &mut self.answered);
        }
        let is_alone = self.sole.is_alone(now);
        if is_alone {
            // What the service does itself now it need not be told through the kernel.
            self.mailbox.attend();
        }
        self.service.end_turn(now, is_alone, &mut self.answered);
        self.apply_answered(now);
        if is_alone && self.take_commands(Instant::now()) > 0 {
            // They may have given the service work that it puts off again.
            self.service.end_turn(now, false, &mut self.answered);
            self.apply_answered(now);
        }
        self.admit_waiters();
        let mut dirty = mem::take(&mut self.dirty);
        for slot in dirty.drain(..) {
            self.send(slot);
        }
        self.dirty = dirty;
    }

    /// Let connections go on that waited for room, as many as may find some.
    fn admit_waiters(&mut self) {
        if self.room_waiters.is_empty() || !self.room.is_free_or_wanted() {
            return;
        }
        for _ in 0..self.room.free_requests() {
            let Some(id) = self.room_waiters.pop_front() else { return };
            if let Some(connection) = self.find(id) {
                connection.is_room_queued = false;
                connection.is_admitted = true;
                self.go_on(id.slot);
            }
        }
    }

    /// Work that recurs: unused memory, idle connections.
    fn tick(&mut self, now: Instant) {
        if self.pool.has_memory() {
            if self.next_trim.is_some_and(|at| at <= now) {
                self.pool.trim();
                self.next_trim = None;
            }
            if self.next_trim.is_none() && self.pool.has_memory() {
                self.next_trim = Some(now + TRIM_INTERVAL);
            }
        } else {
            self.next_trim = None;
        }
        let Some(max_idle) = self.limits.max_idle else { return };
        if self.next_idle_check.is_some_and(|at| at <= now) {
            for slot in 0..self.connections.len() {
                let reason = match self.connections.get(slot) {
                    Some(Some(connection)) => connection.idle_reason(now, max_idle),
                    _ => None,
                };
                if let Some(reason) = reason {
                    self.close(slot as u32, reason);
                }
            }
            let has_any = self.connections.iter().any(Option::is_some);
            self.next_idle_check = has_any.then(|| now + (max_idle / 4).min(LONGEST_IDLE_CHECK));
        }
    }

    fn close(&mut self, slot: u32, reason: Option<String>) {
        let Some(mut connection) = self.connections.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        let id = connection.id;
        connection.free(&mut self.pool);
        // A place is given away only when nothing of this thread names it any more.
        if connection.is_queued {
            self.queue.retain(|queued| *queued != slot);
        }
        if connection.is_dirty {
            self.dirty.retain(|dirty| *dirty != slot);
        }
        // Another one may take it before Python hears of this.
        drop(connection.place.take());
        drop(connection);
        self.service.connection_lost(id);
        self.slots.give_back(id);
        self.events.push(IoEvent::Lost { connection: id, reason });
    }

    fn close_all(&mut self) {
        for slot in 0..self.connections.len() {
            self.close(slot as u32, None);
        }
        self.inbox.post(&mut self.events);
    }
}
