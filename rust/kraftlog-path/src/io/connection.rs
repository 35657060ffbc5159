//! One connection: its bytes, its requests and its answers.
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::adoption::Adoption;
use super::event::{Frame, IoEvent};
use super::input::{cut, Cut, Input, Pool, SCRATCH_BYTES};
use super::limits::Limits;
use super::output::{size_bytes, OutputQueue, Sent};
use super::request_queue::{Owner, RequestQueue};
use super::request_room::RequestRoom;
use super::session::Session;
use super::socket_status::SocketStatus;
use crate::admission::Admitted;
use crate::exchange::{ConnectionId, Outcome, Output, Peer, RequestId, RequestNumber, Service, FETCH};

mod together;

/// What a connection uses of its thread while it is served.
pub(super) struct Desk<'a, S> {
    pub(super) service: &'a mut S,
    pub(super) scratch: &'a mut [u8],
    pub(super) pool: &'a mut Pool,
    pub(super) events: &'a mut Vec<IoEvent>,
    pub(super) outcomes: &'a mut Vec<Outcome>,
    pub(super) limits: &'a Limits,
    /// Other connections wait for room for what they hand over.
    pub(super) is_room_contended: bool,
    /// What this connection may use now.
    pub(super) frames_left: usize,
    /// As above.
    pub(super) end: Instant,
    pub(super) now: Instant,
}

impl<S> Desk<'_, S> {
    fn is_used_up(&self) -> bool {
        self.frames_left == 0 || self.now >= self.end
    }
}

/// Why the handling of frames ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Everything that came is handled.
    All,
    /// The slice is used up, and there may be more to do.
    Bounded,
    /// An answer has to become known or to be sent first.
    Blocked,
    /// The connection ends, for this reason.
    Close(Option<String>),
}

/// What became of one frame.
enum Handled {
    Done,
    HandOver(RequestId),
    /// It has to be handed over, for which there is no room. Nothing was done.
    NoRoom,
}

/// A socket and what belongs to it.
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) status: Arc<SocketStatus>,
    /// The thread has it in its queue.
    pub(super) is_queued: bool,
    /// Answers wait to be sent at the end of the turn.
    pub(super) is_dirty: bool,
    /// Frames wait until an answer is known or sent.
    pub(super) is_blocked: bool,
    socket: OwnedFd,
    peer: Peer,
    input: Input,
    requests: RequestQueue,
    output: OutputQueue,
    /// The kernel may have bytes; it tells only when more come.
    is_readable: bool,
    is_writable: bool,
    /// The peer sends no more: the end of the stream is there to be read.
    is_hung_up: bool,
    is_stopping: bool,
    /// The first unhandled frame waits until Python has begun all requests that it was given.
    waits_for_begun: bool,
    /// The first unhandled frame waits for room among those that are in Python's hands.
    pub(super) waits_for_room: bool,
    /// It is in the thread's list of those that do.
    pub(super) is_room_queued: bool,
    /// A quota lets the peer wait: no frame is handled or received.
    pub(super) is_muted: bool,
    /// Its turn to have room has come.
    pub(super) is_admitted: bool,
    room: Arc<RequestRoom>,
    /// How long the peer may send requests.
    pub(super) session: Session,
    /// Its place among the connections of the node, if the thread has to give it back.
    pub(super) place: Option<Admitted>,
    last_active: Instant,
}

impl Connection {
    pub(super) fn new(
        id: ConnectionId,
        adoption: Adoption,
        status: Arc<SocketStatus>,
        room: Arc<RequestRoom>,
        pool: &mut Pool,
        now: Instant,
    ) -> Self {
        let Adoption { socket, peer, place, received, unsent, session_left } = adoption;
        let mut input = Input::default();
        input.append(&received, pool);
        let mut output = OutputQueue::default();
        status.add_unsent(unsent.len());
        output.push_bytes(unsent);
        Self {
            id,
            status,
            is_queued: false,
            is_dirty: false,
            is_blocked: false,
            socket,
            peer,
            input,
            requests: RequestQueue::default(),
            output,
            is_readable: false,
            is_writable: true,
            is_hung_up: false,
            is_stopping: false,
            waits_for_begun: false,
            waits_for_room: false,
            is_room_queued: false,
            is_muted: false,
            is_admitted: false,
            room,
            session: Session::new(session_left, now),
            place,
            last_active: now,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether its earlier owner left something to handle or to send.
    pub(super) fn has_work(&self) -> bool {
        !self.input.is_empty() || !self.output.is_empty()
    }

    /// The kernel has bytes, or the end of the stream.
    pub(super) fn became_readable(&mut self, is_hung_up: bool) {
        self.is_readable = true;
        self.is_hung_up |= is_hung_up;
    }

    pub(super) fn became_writable(&mut self) {
        self.is_writable = true;
    }

    /// Handle nothing more; what is pending is still answered.
    pub(super) fn stop_reading(&mut self) {
        self.is_stopping = true;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Whether no further request is handled before an answer is known or sent.
    pub(super) fn is_full(&self, limits: &Limits) -> bool {
        self.requests.len() >= limits.max_in_flight
            || self.requests.handed_over() >= limits.max_handed_over
            || self.requests.handed_over_bytes() >= limits.max_handed_over_bytes
            || self.status.unsent_bytes() > limits.high_water_bytes
            || self.is_muted
    }

    /// Whether frames that had to wait need not wait any more.
    pub(super) fn may_go_on(&self, limits: &Limits) -> bool {
        self.is_blocked
            && !self.is_full(limits)
            && !(self.waits_for_begun && self.requests.has_unbegun())
            && (!self.waits_for_room || self.is_admitted)
    }

    /// Handle what was received, and receive, within the bounds of the desk.
    pub(super) fn serve<S: Service>(&mut self, desk: &mut Desk<'_, S>) -> Served {
        loop {
            if self.is_stopping {
                return Served::All;
            }
            let served = self.handle_input(desk);
            if served != Served::All {
                return served;
            }
            if !self.is_readable {
                return Served::All;
            }
            if self.is_full(desk.limits) {
                return Served::Blocked;
            }
            if desk.is_used_up() {
                return Served::Bounded;
            }
            let served = self.receive(desk);
            if served != Served::All {
                return served;
            }
        }
    }

    fn receive<S: Service>(&mut self, desk: &mut Desk<'_, S>) -> Served {
        if let Ok(Cut::Partial(missing)) = cut(self.input.unhandled(), desk.limits.max_frame_bytes) {
            if self.input.unhandled().len() + missing > SCRATCH_BYTES {
                return self.receive_in_place(missing, desk.pool, desk.now);
            }
        }
        let scratch = mem::take(&mut desk.scratch);
        let served = match rustix::net::recv(&self.socket, &mut *scratch, RecvFlags::empty()) {
            Ok((received, _)) => {
                self.received(received, scratch.len() - received, desk.now).unwrap_or_else(|| {
                    let data = scratch.get(..received).unwrap_or_default();
                    self.handle_received(data, desk)
                })
            }
            Err(error) => self.receive_failed(error),
        };
        desk.scratch = scratch;
        served
    }

    /// Receive the rest of a large frame into the frame's own memory.
    fn receive_in_place(&mut self, missing: usize, pool: &mut Pool, now: Instant) -> Served {
        let buffer = self.input.room(missing, pool);
        match rustix::net::recv(&self.socket, spare_capacity(buffer), RecvFlags::empty()) {
            Ok((received, _)) => {
                let free = buffer.capacity() - buffer.len();
                self.received(received, free, now).unwrap_or(Served::All)
            }
            Err(error) => self.receive_failed(error),
        }
    }

    /// Note that bytes came and how much room they left; the end of the stream if none came.
    fn received(&mut self, received: usize, free: usize, now: Instant) -> Option<Served> {
        if received == 0 {
            let is_partial = !self.input.is_empty();
            return Some(Served::Close(
                is_partial.then(|| "peer closed the connection inside a frame".to_owned()),
            ));
        }
        self.last_active = now;
        // Nothing more is there, unless it came meanwhile, which the kernel tells; the end was told already.
        self.is_readable = free == 0 || self.is_hung_up;
        None
    }

    fn receive_failed(&mut self, error: Errno) -> Served {
        match error {
            Errno::AGAIN => {
                self.is_readable = false;
                Served::All
            }
            Errno::INTR => Served::All,
            _ => {
                let is_partial = !self.input.is_empty();
                Served::Close(is_partial.then(|| format!("receive failed: {}", text_of(&error.into()))))
            }
        }
    }

    fn handle_received<S: Service>(&mut self, mut data: &[u8], desk: &mut Desk<'_, S>) -> Served {
        if !self.input.is_empty() {
            while let Ok(Cut::Partial(missing)) = cut(self.input.unhandled(), desk.limits.max_frame_bytes) {
                let (part, rest) = data.split_at(missing.min(data.len()));
                if part.is_empty() {
                    return Served::All;
                }
                self.input.append(part, desk.pool);
                data = rest;
            }
            let served = self.handle_input(desk);
            if served != Served::All {
                self.input.append(data, desk.pool);
                return served;
            }
        }
        while !data.is_empty() {
            let size = match cut(data, desk.limits.max_frame_bytes) {
                Ok(Cut::Whole(size)) => size,
                Ok(Cut::Partial(_)) => break,
                Err(reason) => return Served::Close(Some(reason)),
            };
            let (frame, rest) = data.get(4..).unwrap_or_default().split_at(size);
            if let Some(served) = self.may_not_handle(frame, desk) {
                self.input.append(data, desk.pool);
                return served;
            }
            match self.handle_together(frame, rest, desk) {
                Ok(0) => {}
                Ok(handled) => {
                    data = data.get(handled..).unwrap_or_default();
                    continue;
                }
                Err(reason) => return Served::Close(Some(reason)),
            }
            match self.handle(frame, desk) {
                Ok(Handled::Done) => {}
                Ok(Handled::HandOver(request)) => {
                    let frame = Frame::new(frame.to_vec(), 0);
                    desk.events.push(IoEvent::HandedOver { request, frame });
                }
                Ok(Handled::NoRoom) => {
                    self.input.append(data, desk.pool);
                    return Served::Blocked;
                }
                Err(reason) => return Served::Close(Some(reason)),
            }
            data = rest;
        }
        self.input.append(data, desk.pool);
        Served::All
    }

    /// Handle the whole frames that were kept.
    fn handle_input<S: Service>(&mut self, desk: &mut Desk<'_, S>) -> Served {
        while !self.input.is_empty() {
            let mut input = mem::take(&mut self.input);
            let served = self.handle_first(&mut input, desk);
            self.input = input;
            match served {
                None => {}
                Some(served) => return served,
            }
        }
        Served::All
    }

    /// Handle the first frame of a buffer; `None` if that was done.
    fn handle_first<S: Service>(&mut self, input: &mut Input, desk: &mut Desk<'_, S>) -> Option<Served> {
        let size = match cut(input.unhandled(), desk.limits.max_frame_bytes) {
            Ok(Cut::Whole(size)) => size,
            Ok(Cut::Partial(_)) => return Some(Served::All),
            Err(reason) => return Some(Served::Close(Some(reason))),
        };
        let frame = input.unhandled().get(4..4 + size).unwrap_or_default();
        if let Some(served) = self.may_not_handle(frame, desk) {
            return Some(served);
        }
        match self.handle(frame, desk) {
            Ok(Handled::Done) => input.consume(4 + size, desk.pool),
            Ok(Handled::NoRoom) => return Some(Served::Blocked),
            Ok(Handled::HandOver(request)) => {
                let (buffer, start) = input.take_frame(size, desk.pool);
                desk.events.push(IoEvent::HandedOver { request, frame: Frame::new(buffer, start) });
            }
            Err(reason) => return Some(Served::Close(Some(reason))),
        }
        None
    }

    /// Why the next frame has to wait, if it has to.
    fn may_not_handle<S: Service>(&mut self, frame: &[u8], desk: &mut Desk<'_, S>) -> Option<Served> {
        if self.is_full(desk.limits) {
            return Some(Served::Blocked);
        }
        if desk.is_used_up() {
            return Some(Served::Bounded);
        }
        self.waits_for_begun = self.requests.has_unbegun() && desk.service.serves(api_key(frame));
        self.waits_for_begun.then_some(Served::Blocked)
    }

    /// Handle one frame.
    fn handle<S: Service>(&mut self, frame: &[u8], desk: &mut Desk<'_, S>) -> Result<Handled, String> {
        let request = RequestId { connection: self.id, number: self.requests.next_number() };
        self.waits_for_room = false;
        let outcome = if self.session.hands_over(api_key(frame), desk.now) {
            Outcome::HandOver
        } else {
            desk.service.handle(request, &self.peer, frame, desk.now)
        };
        desk.frames_left -= 1;
        desk.now = Instant::now();
        self.settle(request, frame, outcome, desk.is_room_contended)
    }

    /// Note what became of the frame of the next request.
    fn settle(
        &mut self,
        request: RequestId,
        frame: &[u8],
        outcome: Outcome,
        is_room_contended: bool,
    ) -> Result<Handled, String> {
        match outcome {
            Outcome::Answer(outputs) => {
                self.status.add_unsent(size_bytes(&outputs));
                if let Some(outputs) = self.requests.answer_next(outputs) {
                    self.output.push(outputs)?;
                }
            }
            Outcome::NoAnswer => {
                self.requests.answer_next(Vec::new());
            }
            Outcome::Pending => {
                let is_long_poll = api_key(frame) == FETCH;
                self.requests.wait(Owner::Service { is_long_poll });
                if !is_long_poll {
                    self.status.owe();
                }
            }
            Outcome::HandOver => {
                // Connections that wait already come first.
                let is_next = self.is_admitted || !is_room_contended;
                self.is_admitted = false;
                self.waits_for_room = !is_next || !self.room.is_free_or_wanted();
                if self.waits_for_room {
                    return Ok(Handled::NoRoom);
                }
                self.room.enter(frame.len(), !self.requests.has_queued());
                self.requests.wait(Owner::Python { frame_bytes: frame.len() });
                return Ok(Handled::HandOver(request));
            }
            Outcome::Close(reason) => return Err(reason),
        }
        Ok(Handled::Done)
    }

    /// Python has taken up the requests up to this one: they wait for it no more.
    pub(super) fn taken(&mut self, number: RequestNumber) {
        if let Some(bytes) = self.requests.taken(number) {
            self.room.leave(bytes, !self.requests.has_queued());
        }
    }

    /// Python has begun the requests up to this one.
    pub(super) fn begun(&mut self, number: RequestNumber) {
        self.taken(number);
        self.requests.begun(number);
    }

    /// An answer became known.
    ///
    /// # Errors
    /// Why the connection ends.
    pub(super) fn answer(
        &mut self,
        number: RequestNumber,
        outcome: Outcome,
        is_counted: bool,
        now: Instant,
    ) -> Result<(), String> {
        let outputs: Vec<Output> = match outcome {
            Outcome::Answer(outputs) => outputs,
            Outcome::NoAnswer => Vec::new(),
            Outcome::Close(reason) => return Err(reason),
            Outcome::Pending | Outcome::HandOver => {
                return Err("internal error: a late answer is none".to_owned());
            }
        };
        let size = size_bytes(&outputs);
        if !is_counted {
            self.status.add_unsent(size);
        }
        match self.requests.answer(number, outputs) {
            Some(Owner::Service { is_long_poll: false }) => self.status.settle(),
            Some(Owner::Service { is_long_poll: true }) => {}
            Some(Owner::Python { .. }) => self.taken(number),
            None => return Err(format!("internal error: request {number} waits for no answer")),
        }
        while let Some(outputs) = self.requests.pop_known() {
            self.output.push(outputs)?;
        }
        self.last_active = now;
        Ok(())
    }

    /// Whether [`Self::send`] could do anything now.
    pub(super) fn has_output(&self) -> bool {
        self.is_writable && !self.output.is_empty()
    }

    /// Send answers. Gives whether more could be sent at once, and whether Python wants to hear that they were.
    ///
    /// # Errors
    /// Why the connection ends; `None` if the peer closed it.
    pub(super) fn send(&mut self, limits: &Limits) -> Result<(bool, bool), Option<String>> {
        if !self.has_output() {
            return Ok((false, false));
        }
        let (status, low_water_bytes) = (&self.status, limits.high_water_bytes / 2);
        let mut is_drained = false;
        let count = |sent| is_drained |= status.sent(sent, low_water_bytes);
        match self.output.send(self.socket.as_fd(), limits.slice.sent_bytes, count) {
            Ok(Sent::All) => Ok((false, is_drained)),
            Ok(Sent::Blocked) => {
                self.is_writable = false;
                Ok((false, is_drained))
            }
            Ok(Sent::Bounded) => Ok((true, is_drained)),
            Err(error) => {
                let is_peer = matches!(
                    error.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
                );
                Err((!is_peer).then(|| format!("send failed: {}", text_of(&error))))
            }
        }
    }

    /// The reason to close a connection that was silent for too long, if it was; `Some(None)` is not logged.
    pub(super) fn idle_reason(&self, now: Instant, max_idle: Duration) -> Option<Option<String>> {
        if now.saturating_duration_since(self.last_active) < max_idle {
            return None;
        }
        if !self.input.is_empty() && !self.is_blocked {
            let max_idle_ms = max_idle.as_millis();
            return Some(Some(format!("no bytes for connections.max.idle.ms={max_idle_ms} inside a frame")));
        }
        if self.waits_for_room {
            return None;
        }
        (self.requests.len() == 0 || self.status.unsent_bytes() > 0).then_some(None)
    }

    /// Give memory and room back before the connection is dropped.
    pub(super) fn free(&mut self, pool: &mut Pool) {
        self.taken(RequestNumber::MAX);
        self.input.clear(pool);
    }
}

fn api_key(frame: &[u8]) -> i16 {
    frame.first_chunk().map_or(-1, |key| i16::from_be_bytes(*key))
}

/// The text of an error of the operating system, without its number.
fn text_of(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}
