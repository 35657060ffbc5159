//! A log and the state machine of its replica under one lock, and those who wait for it to move.
//!
//! The lock order is partition, then its copy in another directory, then log. Listeners are called under the partition's lock and only leave a message.
use std::fmt;
use std::sync::Arc;

use kraftlog_log::log::{AppendInfo, Log};
use kraftlog_log::Error;

use crate::core::{
    check_leader_epoch, Assignment, Effect, LiveBroker, PartitionCore, ReplicaStart, NO_LEADER,
};
use crate::error_code;
use crate::flush::{FlushPool, Flushable, Round};
use crate::python_inbox::{PythonEvent, PythonInbox};
use crate::sync::{lock, AtomicBool, AtomicI64, AtomicU64, Mutex, MutexGuard, Ordering};

/// A partition by its topic's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey {
    /// The topic.
    pub topic_id: [u8; 16],
    /// Which of its partitions.
    pub index: i32,
}

/// What a listener gave to recognise an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckToken {
    /// The listener's own number of a pending request.
    pub id: u64,
    /// Which partition of that request.
    pub position: u32,
}

/// Waits for a partition. Called under the partition's lock: it may only leave a message.
pub trait Listener: Send + Sync {
    /// A wait for acks=all is over.
    fn acknowledged(&self, token: AckToken, error_code: i16);

    /// The high watermark, the leadership or the log start moved, or the partition was withdrawn.
    fn moved(&self, token: u64);
}

/// What belongs to a partition from its beginning.
pub struct PartitionParts {
    /// Topic id and index.
    pub key: PartitionKey,
    /// The topic's name.
    pub topic: String,
    /// The log, open.
    pub log: Arc<Log>,
    /// What the replica begins with.
    pub start: ReplicaStart,
    /// Flushes the logs of its directory.
    pub pool: Arc<FlushPool>,
    /// Where Python hears of failures.
    pub inbox: Arc<PythonInbox>,
    /// Python's number of it in events.
    pub number: u64,
}

/// Settings of the topic that a partition looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// `flush.messages`: an append that leaves so many offsets behind the last flush asks for one.
    pub flush_messages: i64,
    /// Whether the topic has `flush.ms`: Python hears of the first append behind a flush.
    pub flushes_in_time: bool,
    /// Whether fetches of followers are answered without Python; a throttled replica's (KIP-73) need its quota.
    pub answers_followers: bool,
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Of the log.
    pub info: AppendInfo,
    /// The epoch under which it was appended.
    pub leader_epoch: i32,
    /// Everything is committed already: no acknowledgement was registered, and none is to be waited for.
    pub is_committed: bool,
    /// The caller has to ask for a flush, once for all appends of a turn.
    pub needs_flush: bool,
}

/// Why an append was refused. Nothing was appended.
#[derive(Debug)]
pub enum AppendError {
    /// Not the leader, or too few replicas in sync.
    Refused(i16),
    /// The batch is damaged or refused, or the log takes no writes.
    Log(Error),
}

impl AppendError {
    /// The error code for a client.
    pub fn error_code(&self) -> i16 {
        match self {
            Self::Refused(code) | Self::Log(Error::Rejected { code, .. }) => *code,
            Self::Log(Error::Corrupt { .. }) => error_code::CORRUPT_MESSAGE,
            Self::Log(_) => error_code::KAFKA_STORAGE_ERROR,
        }
    }
}

/// What a new assignment leaves to its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// A flush has to be asked for.
    pub needs_flush: bool,
    /// Epoch and first offset to be written into the leader epoch checkpoint, unless the log has them already.
    pub epoch_start: Option<(i32, i64)>,
}

#[derive(Clone)]
struct Ack {
    listener: Arc<dyn Listener>,
    token: AckToken,
}

struct State {
    core: PartitionCore<Ack>,
    effects: Vec<Effect<Ack>>,
    listeners: Vec<(Arc<dyn Listener>, u64)>,
    /// Told of each append, for followers that wait.
    append_listener: Option<(Arc<dyn Listener>, u64)>,
    following: Vec<Following>,
    /// Replicas that a reassignment adds.
    adding: Vec<i32>,
    settings: PartitionSettings,
    /// Python was told of an unflushed record and has not asked for the flush yet.
    is_flush_timed: bool,
    is_failed: bool,
    is_withdrawn: bool,
}

/// One partition of this node; always in an [`Arc`]. Every method may be called from any thread.
pub struct Partition {
    key: PartitionKey,
    topic: String,
    log: Arc<Log>,
    node_id: i32,
    /// Of the directory that holds the log.
    pool: Mutex<Arc<FlushPool>>,
    future: Mutex<Option<FutureLog>>,
    inbox: Arc<PythonInbox>,
    number: u64,
    round: Round,
    state: Mutex<State>,
    /// Leader epoch in the upper half, leader id in the lower: both of one moment.
    role: AtomicU64,
    high_watermark: AtomicI64,
    epoch_start_offset: AtomicI64,
    is_under_min_isr: AtomicBool,
    is_published: AtomicBool,
    serves_followers: AtomicBool,
    is_held: AtomicBool,
    recompresses: AtomicBool,
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition")
            .field("topic", &self.topic)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

fn pack_role(leader_epoch: i32, leader_id: i32) -> u64 {
    u64::from(leader_epoch.cast_unsigned()) << 32 | u64::from(leader_id.cast_unsigned())
}

fn unpack_role(role: u64) -> (i32, i32) {
    (((role >> 32) as u32).cast_signed(), (role as u32).cast_signed())
}

impl Partition {
    /// A partition that nobody leads yet and that is not published.
    pub fn new(parts: PartitionParts) -> Arc<Self> {
        let start = parts.start;
        let settings = PartitionSettings {
            min_insync_replicas: start.min_insync_replicas,
            flush_messages: i64::MAX,
            flushes_in_time: false,
            answers_followers: true,
        };
        let state = State {
            core: PartitionCore::new(start),
            effects: Vec::new(),
            listeners: Vec::new(),
            append_listener: None,
            following: Vec::new(),
            adding: Vec::new(),
            settings,
            is_flush_timed: false,
            is_failed: false,
            is_withdrawn: false,
        };
        let recompresses = parts.log.config().compression.is_some();
        Arc::new(Self {
            key: parts.key,
            topic: parts.topic,
            log: parts.log,
            node_id: start.node_id,
            pool: Mutex::new(parts.pool),
            future: Mutex::new(None),
            inbox: parts.inbox,
            number: parts.number,
            round: Round::default(),
            state: Mutex::new(state),
            role: AtomicU64::new(pack_role(-1, NO_LEADER)),
            high_watermark: AtomicI64::new(start.high_watermark),
            epoch_start_offset: AtomicI64::new(-1),
            is_under_min_isr: AtomicBool::new(false),
            is_published: AtomicBool::new(false),
            serves_followers: AtomicBool::new(true),
            is_held: AtomicBool::new(false),
            recompresses: AtomicBool::new(recompresses),
        })
    }

    // --- facts, without a lock ---

    /// Topic id and index.
    pub fn key(&self) -> &PartitionKey {
        &self.key
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Leader epoch and leader id of one moment.
    pub fn role(&self) -> (i32, i32) {
        unpack_role(self.role.load(Ordering::Acquire))
    }

    /// The epoch the metadata gives, -1 before any.
    pub fn leader_epoch(&self) -> i32 {
        self.role().0
    }

    /// Whether this node leads.
    pub fn is_leader(&self) -> bool {
        self.role().1 == self.node_id
    }

    /// Exclusive end of what is committed.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    /// Exclusive end of what a read_committed consumer may see.
    pub fn last_stable_offset(&self) -> i64 {
        // The high watermark first: what begins a transaction lies behind it.
        let high_watermark = self.high_watermark();
        self.log.first_unstable_offset().map_or(high_watermark, |offset| offset.min(high_watermark))
    }

    /// Whether the high watermark has come to this epoch; before, latest offsets could go back (LEPO-29).
    pub fn is_high_watermark_settled(&self) -> bool {
        self.high_watermark() >= self.epoch_start_offset.load(Ordering::Acquire)
    }

    /// The epoch check of KIP-320: 0, or the error code for the client. See [`check_leader_epoch`].
    pub fn check_leader_epoch(&self, current_leader_epoch: i32, needs_leader: bool) -> i16 {
        let (leader_epoch, leader_id) = self.role();
        check_leader_epoch(leader_epoch, leader_id == self.node_id, current_leader_epoch, needs_leader)
    }

    /// The error code for a fetch from a broker that may not replicate from here (LEPO-16).
    pub fn follower_refusal(&self, current_leader_epoch: i32) -> i16 {
        match self.check_leader_epoch(current_leader_epoch, true) {
            error_code::NONE if current_leader_epoch >= 0 => error_code::UNKNOWN_LEADER_EPOCH,
            error_code::NONE => error_code::NOT_LEADER_OR_FOLLOWER,
            code => code,
        }
    }

    /// Whether the topic asks for a codec, so that a batch may have to be compressed anew.
    pub fn recompresses(&self) -> bool {
        self.recompresses.load(Ordering::Relaxed)
    }

    /// Whether appends may be answered without Python: not while Python has slow ones in its queue.
    pub fn is_published(&self) -> bool {
        self.is_readable() && !self.is_held.load(Ordering::Acquire)
    }

    /// Whether fetches may: not while it is being opened, of internal topics, nor once it is withdrawn.
    pub fn is_readable(&self) -> bool {
        self.is_published.load(Ordering::Acquire)
    }

    /// Whether fetches of followers may be answered without Python: not of a throttled replica, nor once it is withdrawn.
    pub fn serves_followers(&self) -> bool {
        self.serves_followers.load(Ordering::Acquire)
    }

    /// Tell `listener` once everything below `end_offset` is committed, or can no longer be. What is known already is
    /// returned instead.
    ///
    /// `leader_epoch` is that of the append: under another one the records may be gone.
    pub fn wait_for_ack(
        &self,
        end_offset: i64,
        leader_epoch: i32,
        listener: &Arc<dyn Listener>,
        token: AckToken,
    ) -> Option<i16> {
        let mut state = lock(&self.state);
        if !state.core.is_leader() || state.core.leader_epoch() != leader_epoch {
            return Some(error_code::NOT_LEADER_OR_FOLLOWER);
        }
        if state.core.high_watermark() >= end_offset {
            return Some(error_code::NONE);
        }
        if state.is_failed {
            return Some(error_code::KAFKA_STORAGE_ERROR);
        }
        state.core.wait_for_ack(end_offset, Ack { listener: Arc::clone(listener), token });
        None
    }

    pub(crate) fn pool(&self) -> Arc<FlushPool> {
        Arc::clone(&lock(&self.pool))
    }

    /// Make what was appended durable soon.
    pub fn request_flush(self: &Arc<Self>) {
        self.pool().request(self);
    }

    /// The same, on this thread and now.
    pub fn flush_here(self: &Arc<Self>) {
        self.pool().flush_here(self);
    }

    /// `flush.ms` is over since Python was told of an unflushed record.
    pub fn flush_in_time(self: &Arc<Self>) {
        let is_unflushed = {
            let mut state = lock(&self.state);
            state.is_flush_timed = false;
            !state.is_withdrawn && state.core.flushed_offset() < state.core.log_end_offset()
        };
        if is_unflushed {
            self.request_flush();
        }
    }

    // --- who waits ---

    /// Call [`Listener::moved`] with `token` once per move from now on. The caller looks at the offsets again
    /// afterwards: what moved before is not told.
    pub fn subscribe(&self, listener: &Arc<dyn Listener>, token: u64) {
        lock(&self.state).listeners.push((Arc::clone(listener), token));
    }

    /// End a subscription.
    pub fn unsubscribe(&self, listener: &Arc<dyn Listener>, token: u64) {
        let mut state = lock(&self.state);
        let is_it = |(other, of): &(Arc<dyn Listener>, u64)| {
            *of == token && std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(listener))
        };
        if let Some(position) = state.listeners.iter().position(is_it) {
            state.listeners.swap_remove(position);
        }
    }

    /// The log start moved.
    pub fn log_start_moved(&self) {
        Self::tell_moved(&lock(&self.state));
    }

    fn tell_moved(state: &State) {
        for (listener, token) in &state.listeners {
            listener.moved(*token);
        }
        state.following.iter().for_each(Following::tell_moved);
    }

    // --- metadata ---

    /// Follow the metadata. Once this has returned nothing of an older epoch can be appended.
    ///
    /// If an epoch has to be begun, the partition is held ([`Self::hold`]) until its caller has written that.
    pub fn assign(&self, assignment: Assignment, now_ms: i64) -> Assigned {
        self.assign_among(assignment, None, now_ms)
    }

    /// As [`Self::assign`], and `live_brokers` as for [`Self::update_live_brokers`], both of one moment: an I/O thread that
    /// answers a follower in between would take a fetch of its broker's earlier life for one of the present.
    pub fn assign_among(
        &self,
        assignment: Assignment,
        live_brokers: Option<Vec<LiveBroker>>,
        now_ms: i64,
    ) -> Assigned {
        let mut state = lock(&self.state);
        if state.is_withdrawn {
            return Assigned::default();
        }
        state.note_repeated_fetches();
        state.core.handle_assignment(assignment, now_ms);
        if let Some(live_brokers) = live_brokers {
            state.core.update_live_brokers(live_brokers);
        }
        self.publish_in_sync(&state);
        let mut assigned = self.carry_out(&mut state);
        state.review_followers();
        if assigned.epoch_start.is_some_and(|(epoch, _)| self.log.latest_epoch() == Some(epoch)) {
            assigned.epoch_start = None;
        }
        if assigned.epoch_start.is_some() {
            self.is_held.store(true, Ordering::Release);
        }
        assigned
    }

    /// Follow the topic's settings; those of the log are the log's.
    pub fn update(&self, settings: PartitionSettings) {
        self.recompresses.store(self.log.config().compression.is_some(), Ordering::Relaxed);
        let mut state = lock(&self.state);
        let is_other_minimum = settings.min_insync_replicas != state.settings.min_insync_replicas;
        state.settings = settings;
        self.serves_followers.store(settings.answers_followers && !state.is_withdrawn, Ordering::Release);
        state.core.update_min_insync_replicas(settings.min_insync_replicas);
        self.publish_in_sync(&state);
        self.carry_out(&mut state);
        if is_other_minimum {
            // What was held may be committed now, which the next fetch of a follower notices (ISR-71).
            state.note_repeated_fetches();
            state.review_followers();
        }
    }

    fn publish_in_sync(&self, state: &State) {
        let refusal = state.core.check_append(-1);
        self.is_under_min_isr.store(refusal == error_code::NOT_ENOUGH_REPLICAS, Ordering::Release);
    }

    /// Let requests be answered without Python, or not any more.
    pub fn publish(&self, is_published: bool) {
        let state = lock(&self.state);
        self.is_published.store(is_published && !state.is_withdrawn && !state.is_failed, Ordering::Release);
        if !is_published {
            Self::tell_moved(&state);
        }
    }

    /// Python has appends in its queue that later ones must not overtake, or no longer.
    pub fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Release);
    }

    /// The replica goes away: nothing can be appended once this has returned, and every wait ends. The log
    /// stays open.
    pub fn withdraw(&self) {
        let mut state = lock(&self.state);
        self.is_published.store(false, Ordering::Release);
        self.serves_followers.store(false, Ordering::Release);
        state.is_withdrawn = true;
        state.core.close();
        self.carry_out(&mut state);
    }

    // --- the disk ---

    /// Everything below `flushed_offset` is durable.
    pub fn on_flushed(&self, flushed_offset: i64) {
        let mut state = lock(&self.state);
        state.core.on_flushed(flushed_offset);
        self.carry_out(&mut state);
    }

    /// The log takes no more writes: requests that wait get KAFKA_STORAGE_ERROR, and Python gets one event.
    pub fn on_log_failed(&self, reason: &str) {
        let mut state = lock(&self.state);
        self.is_published.store(false, Ordering::Release);
        state.core.on_log_failed();
        self.carry_out(&mut state);
        if !std::mem::replace(&mut state.is_failed, true) {
            Self::tell_moved(&state);
            let reason = reason.to_owned();
            self.inbox.send(PythonEvent::StorageFailed { partition: self.number, reason });
        }
    }

    /// Look at the state machine, for tests and for what nobody asks often.
    pub fn with_core<R>(&self, look: impl FnOnce(&CoreView<'_>) -> R) -> R {
        let mut state = lock(&self.state);
        state.note_repeated_fetches();
        look(&CoreView(&state.core))
    }

    fn carry_out(&self, state: &mut MutexGuard<'_, State>) -> Assigned {
        let mut wanted = Assigned::default();
        let State { core, effects, .. } = &mut **state;
        core.take_effects(effects);
        if effects.is_empty() {
            return wanted;
        }
        let mut effects = std::mem::take(&mut state.effects);
        let (mut is_moved, mut is_held, mut has_new_leader) = (false, false, false);
        let core = &state.core;
        for effect in &effects {
            match effect {
                Effect::HighWatermarkAdvanced { high_watermark } => {
                    self.log.update_high_watermark(*high_watermark);
                    self.high_watermark.store(*high_watermark, Ordering::Release);
                    is_moved = true;
                }
                Effect::HighWatermarkHeld => is_held = true,
                Effect::FlushLog { .. } => wanted.needs_flush = true,
                Effect::AckCompleted { .. } | Effect::IsrChanged => {}
                Effect::LeadershipChanged { leader_epoch, leader_id } => {
                    self.epoch_start_offset.store(core.epoch_start_offset(), Ordering::Release);
                    self.role.store(pack_role(*leader_epoch, *leader_id), Ordering::Release);
                    (is_moved, has_new_leader) = (true, true);
                }
                Effect::AssignEpochStart { leader_epoch, start_offset } => {
                    wanted.epoch_start = Some((*leader_epoch, *start_offset));
                }
            }
        }
        if is_moved {
            Self::tell_moved(state);
        } else if is_held {
            state.following.iter().for_each(Following::tell_moved);
        }
        if has_new_leader {
            Self::tell_followers(state);
        }
        // A client that got its acknowledgement may fetch at once: its fetch session has to have heard of the move.
        for effect in effects.drain(..) {
            if let Effect::AckCompleted { token: Ack { listener, token }, error_code } = effect {
                listener.acknowledged(token, error_code);
            }
        }
        state.effects = effects;
        wanted
    }
}

impl Flushable for Partition {
    fn round(&self) -> &Round {
        &self.round
    }

    fn log(&self) -> &Arc<Log> {
        &self.log
    }

    fn flush_ended(&self, outcome: Result<i64, Error>) {
        match outcome {
            Ok(flushed_offset) => self.on_flushed(flushed_offset),
            Err(error) => self.on_log_failed(&error.to_string()),
        }
    }

    fn flush_delayed(&self, error: &Error) -> bool {
        let is_withdrawn = lock(&self.state).is_withdrawn;
        if !is_withdrawn {
            let reason = error.to_string();
            self.inbox.send(PythonEvent::FlushDelayed { partition: self.number, reason });
        }
        !is_withdrawn
    }
}

mod append;
mod core_view;
mod following;
mod future;
mod leading;
mod sessions;
#[cfg(test)]
mod tests;
pub use core_view::CoreView;
pub use following::{flush_all, Fetched, FollowError, Replicated};
use future::FutureLog;
pub use future::{Copied, CopyError};
pub use leading::{FollowerAnswer, FollowerPosition};
pub use sessions::FollowerSession;
use sessions::Following;
#[cfg(all(test, feature = "loom"))]
mod model;
