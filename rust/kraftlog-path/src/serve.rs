//! Produce and Fetch of clients, from the frame to the answer, without an interpreter.
//!
//! A [`DataService`] runs on one I/O thread. It answers a request only if every partition of it is plain; otherwise it
//! hands the whole frame over before anything was appended. Its answers equal those of the Python handlers byte for byte.
//! On a node with an authorizer the requests that it answers are those for which the client has all [`grants`].
//! While client quotas may apply, it serves followers only.
use std::sync::Arc;
use std::time::Instant;

use crate::exchange::{Answered, ConnectionId, Outcome, Peer, RequestId, Service};
use crate::io::ServiceSender;
use crate::mailbox::Mailbox;
use crate::partition::{AckToken, Listener, Partition};
use crate::session::FetchSession;
use crate::wire::{RequestHeader, FETCH_KEY, PRODUCE_KEY};

mod fetch;
mod flush_here;
mod follower;
#[cfg(test)]
mod follower_tests;
#[cfg(test)]
mod grant_tests;
pub mod grants;
mod pending;
pub mod probe;
mod produce;
mod read;
mod shared;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod together_tests;

pub use shared::{ServiceSettings, ServiceShared};

use fetch::{FetchCall, FetchScratch};
use flush_here::FlushHere;
use pending::PendingTable;
use produce::{PlannedAppend, ProduceRun, ProduceWait};
use shared::SettingsView;

/// What other threads tell a [`DataService`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataMessage {
    /// A partition of a produce request is committed, or cannot be any more.
    Acknowledged {
        /// Which request and which of its partitions.
        token: AckToken,
        /// 0, or the protocol's code.
        error_code: i16,
    },
    /// Something moved for a fetch that waits.
    Moved {
        /// Which fetch.
        token: u64,
    },
}

impl Listener for Mailbox<DataMessage> {
    fn acknowledged(&self, token: AckToken, error_code: i16) {
        self.send(DataMessage::Acknowledged { token, error_code });
    }

    fn moved(&self, token: u64) {
        self.send(DataMessage::Moved { token });
    }
}

impl Listener for ServiceSender<DataMessage> {
    fn acknowledged(&self, token: AckToken, error_code: i16) {
        self.send(DataMessage::Acknowledged { token, error_code });
    }

    fn moved(&self, token: u64) {
        self.send(DataMessage::Moved { token });
    }
}

/// A request that is answered later.
#[derive(Debug)]
enum Pending {
    Produce(ProduceWait),
    Fetch(FetchCall),
}

impl Pending {
    fn request(&self) -> RequestId {
        match self {
            Self::Produce(wait) => wait.request,
            Self::Fetch(call) => call.request(),
        }
    }
}

/// Answers plain Produce and Fetch frames on one I/O thread.
pub struct DataService {
    shared: Arc<ServiceShared>,
    settings: SettingsView,
    /// Leaves messages for this service.
    listener: Arc<dyn Listener>,
    pending: PendingTable<Pending>,
    /// Fetches that have to look again in this turn.
    looks: Vec<u64>,
    /// Partitions that have to be flushed after this turn.
    unflushed: Vec<Arc<Partition>>,
    flush_here: FlushHere,
    planned: Vec<PlannedAppend>,
    produce_run: ProduceRun,
    fetch_scratch: FetchScratch,
    /// Stands where a fetch has no session yet.
    no_session: Arc<FetchSession>,
}

impl DataService {
    /// A service of one thread; `listener` leaves [`DataMessage`]s for it.
    pub fn new(shared: Arc<ServiceShared>, listener: Arc<dyn Listener>) -> Self {
        Self {
            settings: SettingsView::new(&shared),
            shared,
            listener,
            pending: PendingTable::default(),
            looks: Vec::new(),
            unflushed: Vec::new(),
            flush_here: FlushHere::default(),
            planned: Vec::new(),
            produce_run: ProduceRun::default(),
            fetch_scratch: FetchScratch::default(),
            no_session: Arc::new(FetchSession::new(None)),
        }
    }

    /// Requests that wait for an answer.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    fn flush_later(&mut self, partition: &Arc<Partition>) {
        if !self.unflushed.last().is_some_and(|last| Arc::ptr_eq(last, partition)) {
            self.unflushed.push(Arc::clone(partition));
        }
    }

    fn acknowledged(&mut self, token: AckToken, error_code: i16, answered: &mut Vec<Answered>) {
        let Some(Pending::Produce(wait)) = self.pending.get_mut(token.id) else { return };
        if wait.acknowledged(token.position, error_code) {
            if let Some(Pending::Produce(wait)) = self.pending.remove(token.id) {
                answered.push(wait.into_answered(&self.shared));
            }
        }
    }
}

impl Service for DataService {
    type Message = DataMessage;

    fn handle(&mut self, request: RequestId, peer: &Peer, frame: &[u8], now: Instant) -> Outcome {
        match RequestHeader::peek(frame) {
            Some((PRODUCE_KEY, _)) if self.shared.hands_over_clients() => Outcome::HandOver,
            Some((PRODUCE_KEY, _)) => self.produce(request, peer, frame, now),
            Some((FETCH_KEY, _)) => self.fetch(request, peer, frame, now),
            _ => Outcome::HandOver,
        }
    }

    fn handle_together(
        &mut self,
        first: RequestId,
        peer: &Peer,
        frames: &[&[u8]],
        now: Instant,
        outcomes: &mut Vec<Outcome>,
    ) {
        if !self.shared.hands_over_clients() {
            self.produce_together(first, peer, frames, now, outcomes);
        }
    }

    fn message(&mut self, message: DataMessage, _now: Instant, answered: &mut Vec<Answered>) {
        match message {
            DataMessage::Acknowledged { token, error_code } => self.acknowledged(token, error_code, answered),
            DataMessage::Moved { token } => self.looks.push(token),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.pending.next_deadline()
    }

    fn on_time(&mut self, now: Instant, answered: &mut Vec<Answered>) {
        while let Some(id) = self.pending.take_due(now) {
            match self.pending.get_mut(id) {
                Some(Pending::Produce(wait)) => {
                    wait.time_out();
                    if let Some(Pending::Produce(wait)) = self.pending.remove(id) {
                        answered.push(wait.into_answered(&self.shared));
                    }
                }
                Some(Pending::Fetch(_)) => self.look_again(id, true, answered),
                None => {}
            }
        }
    }

    fn end_turn(&mut self, now: Instant, is_alone: bool, answered: &mut Vec<Answered>) {
        let flushes_here = is_alone && self.unflushed.len() == 1 && self.flush_here.is_allowed(now);
        if !flushes_here {
            for partition in self.unflushed.drain(..) {
                partition.request_flush();
            }
        }
        let mut looks = std::mem::take(&mut self.looks);
        for id in looks.drain(..) {
            self.look_again(id, false, answered);
        }
        self.looks = looks;
        if let Some(partition) = self.unflushed.pop() {
            let began = Instant::now();
            partition.flush_here();
            self.flush_here.ended(began, Instant::now());
        }
    }

    fn connection_lost(&mut self, connection: ConnectionId) {
        self.pending.remove_if(|pending| pending.request().connection == connection);
    }
}
