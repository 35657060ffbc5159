//! One replica of a topic partition: its leader, its in-sync replicas, what is committed, which waits have ended.
//!
//! Decides and never acts: calls tell it what happened (an append, a flush, a follower's fetch, new metadata), effects
//! say what the shell has to do. Time arrives as an argument.
//!
//! The high watermark is the smallest log end offset over the in-sync replicas, where the leader itself counts with its
//! *flushed* offset when acknowledgements wait for the flush. It never goes back, and it does not advance while the
//! in-sync set is smaller than [`PartitionCore::effective_min_insync_replicas`].
use std::collections::{HashMap, VecDeque};

use crate::error_code;

mod effect;
mod follower;
mod in_sync;

pub use effect::Effect;
pub use follower::{FollowerFetch, LiveBroker};
pub use in_sync::IsrProposal;

use follower::Follower;
use in_sync::Pending;

/// The leader id of a partition without a leader.
pub const NO_LEADER: i32 = -1;

/// What the metadata says about a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The leader, [`NO_LEADER`] for none.
    pub leader_id: i32,
    /// Raised with every election.
    pub leader_epoch: i32,
    /// Raised with every change.
    pub partition_epoch: i32,
    /// All replicas.
    pub replicas: Vec<i32>,
    /// Those in sync.
    pub isr: Vec<i32>,
}

/// With what a replica begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaStart {
    /// This node.
    pub node_id: i32,
    /// Whether the leader's own records count as replicated only once they are durable.
    pub flush_on_ack: bool,
    /// The topic's `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// Offset the next record gets.
    pub log_end_offset: i64,
    /// Exclusive end of what is durable.
    pub flushed_offset: i64,
    /// As the checkpoint had it, at most `log_end_offset`.
    pub high_watermark: i64,
}

/// `replica.lag.time.max.ms` by default.
const LAG_MAX_MS: i64 = 30_000;

/// The state machine of one replica. `T` is what callers give to recognise an acknowledgement.
#[derive(Debug)]
pub struct PartitionCore<T> {
    node_id: i32,
    flush_on_ack: bool,
    min_insync_replicas: i32,
    log_end_offset: i64,
    flushed_offset: i64,
    high_watermark: i64,
    leader_id: i32,
    leader_epoch: i32,
    partition_epoch: i32,
    epoch_start_offset: i64,
    replicas: Vec<i32>,
    /// As the controller last confirmed it.
    isr: Vec<i32>,
    pending: Option<Pending>,
    proposal_count: u64,
    live_brokers: Vec<LiveBroker>,
    lag_max_ms: i64,
    /// The latest time that any call gave.
    now_ms: i64,
    followers: HashMap<i32, Follower>,
    /// Ends and tokens, in the order of the ends.
    pending_acks: VecDeque<(i64, T)>,
    effects: Vec<Effect<T>>,
}

impl<T> PartitionCore<T> {
    /// A replica that follows nobody yet.
    pub fn new(start: ReplicaStart) -> Self {
        Self {
            node_id: start.node_id,
            flush_on_ack: start.flush_on_ack,
            min_insync_replicas: start.min_insync_replicas,
            log_end_offset: start.log_end_offset,
            flushed_offset: start.flushed_offset,
            high_watermark: start.high_watermark,
            leader_id: NO_LEADER,
            leader_epoch: -1,
            partition_epoch: -1,
            epoch_start_offset: -1,
            replicas: Vec::new(),
            isr: Vec::new(),
            pending: None,
            proposal_count: 0,
            live_brokers: Vec::new(),
            lag_max_ms: LAG_MAX_MS,
            now_ms: i64::MIN,
            followers: HashMap::new(),
            pending_acks: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    /// The topic's `min.insync.replicas`.
    pub fn min_insync_replicas(&self) -> i32 {
        self.min_insync_replicas
    }

    /// Offset the next record gets.
    pub fn log_end_offset(&self) -> i64 {
        self.log_end_offset
    }

    /// Exclusive end of what is durable.
    pub fn flushed_offset(&self) -> i64 {
        self.flushed_offset
    }

    /// Exclusive end of what is committed.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// The leader the metadata names, [`NO_LEADER`] for none.
    pub fn leader_id(&self) -> i32 {
        self.leader_id
    }

    /// The epoch the metadata gives, -1 before any.
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// The partition epoch the metadata gives, -1 before any.
    pub fn partition_epoch(&self) -> i32 {
        self.partition_epoch
    }

    /// Where the epoch that this node leads began, -1 before any.
    pub fn epoch_start_offset(&self) -> i64 {
        self.epoch_start_offset
    }

    /// When a follower last had everything, milliseconds; `None` for a replica that this leader does not know.
    pub fn last_caught_up_ms(&self, replica_id: i32) -> Option<i64> {
        self.followers.get(&replica_id).map(|follower| follower.last_caught_up_ms)
    }

    /// Whether this node leads the partition.
    pub fn is_leader(&self) -> bool {
        self.leader_id == self.node_id
    }

    /// The smallest in-sync set that may commit: the topic's setting, at most the number of replicas (Kafka 4.3.1,
    /// `Partition.effectiveMinIsr`).
    pub fn effective_min_insync_replicas(&self) -> i32 {
        self.min_insync_replicas.min(i32::try_from(self.replicas.len()).unwrap_or(i32::MAX))
    }

    /// Whether too few members are confirmed to be in sync; never on a follower.
    pub fn is_under_min_isr(&self) -> bool {
        self.is_leader() && self.is_too_few(self.isr.len())
    }

    fn is_too_few(&self, count: usize) -> bool {
        i32::try_from(count).unwrap_or(i32::MAX) < self.effective_min_insync_replicas()
    }

    /// Whether one more member that leaves would stop commits; false on a follower (ISR-08).
    pub fn is_at_min_isr(&self) -> bool {
        self.is_leader()
            && i32::try_from(self.isr.len()).is_ok_and(|count| count == self.effective_min_insync_replicas())
    }

    /// Members of the in-sync set as the controller confirmed it; empty on a follower (ISR-06).
    pub fn isr(&self) -> &[i32] {
        if self.is_leader() {
            &self.isr
        } else {
            &[]
        }
    }

    /// Whether an assigned replica is missing in the in-sync set; false on a follower (ISR-08).
    pub fn is_under_replicated(&self) -> bool {
        self.is_leader() && self.replicas.iter().any(|replica| !self.isr.contains(replica))
    }

    /// The other members of the in-sync set that have `offset`: id, log end and when each was caught up, milliseconds.
    pub fn in_sync_followers_with(&self, offset: i64) -> Vec<(i32, i64, i64)> {
        let of = |replica: &i32| self.followers.get(replica).map(|follower| (*replica, follower));
        let has = |(_, follower): &(i32, &Follower)| {
            follower.log_start_offset <= offset && offset <= follower.log_end_offset
        };
        let followers = self.isr().iter().filter_map(of).filter(has);
        followers.map(|(id, follower)| (id, follower.log_end_offset, follower.last_caught_up_ms)).collect()
    }

    /// What a follower had at its last fetch, -1 before any; `None` for a replica that this leader does not know.
    pub fn follower_end_offset(&self, replica_id: i32) -> Option<i64> {
        self.followers.get(&replica_id).map(|follower| follower.log_end_offset)
    }

    /// The smallest log start over the leader, whose own is given, and its live followers (ISR-82, ISR-83).
    pub fn low_watermark(&self, own_log_start: i64) -> i64 {
        let is_live = |id: &i32| self.live_brokers.iter().any(|broker| broker.broker_id == *id);
        let followers = self.followers.iter().filter(|(id, _)| is_live(id));
        followers.map(|(_, follower)| follower.log_start_offset).fold(own_log_start, i64::min)
    }

    /// Hand out and forget what is to be done, in order; `into` is cleared first and gives its memory to the core.
    pub fn take_effects(&mut self, into: &mut Vec<Effect<T>>) {
        into.clear();
        std::mem::swap(&mut self.effects, into);
    }

    // --- metadata ---

    /// Follow the metadata; an older partition epoch, or an older leader epoch, changes nothing.
    ///
    /// A higher partition epoch within the same leader epoch keeps what is known of the followers and where the epoch
    /// started (LEPO-33, LEPO-34). The same partition epoch also keeps the change of the in-sync set that is in flight:
    /// the answer to AlterPartition may have come before the metadata of that epoch, and another change may have been
    /// proposed since, whose replica has to be waited for.
    pub fn handle_assignment(&mut self, assignment: Assignment, now_ms: i64) {
        if assignment.leader_epoch < self.leader_epoch
            || (assignment.leader_epoch == self.leader_epoch
                && assignment.partition_epoch < self.partition_epoch)
        {
            return;
        }
        let is_new_epoch = assignment.leader_epoch > self.leader_epoch;
        // Somebody else may have led in an epoch that this broker missed, and followers may have truncated for them.
        let is_epoch_missed = assignment.leader_epoch > self.leader_epoch + 1;
        if is_new_epoch || assignment.partition_epoch > self.partition_epoch {
            // The controller has said more than an answer to what is in flight could (ISR-07).
            self.pending = None;
        }
        let leader_changed = assignment.leader_id != self.leader_id;
        let was_leader = self.is_leader();
        self.now_ms = self.now_ms.max(now_ms);
        self.leader_id = assignment.leader_id;
        self.leader_epoch = assignment.leader_epoch;
        self.partition_epoch = assignment.partition_epoch;
        self.replicas = assignment.replicas;
        self.isr = assignment.isr;
        if is_new_epoch || leader_changed {
            self.effects.push(Effect::LeadershipChanged {
                leader_epoch: self.leader_epoch,
                leader_id: self.leader_id,
            });
        }
        if !self.is_leader() {
            self.followers.clear();
            if was_leader {
                self.fail_pending_acks(error_code::NOT_LEADER_OR_FOLLOWER);
            }
            return;
        }
        let known = std::mem::take(&mut self.followers);
        if is_new_epoch || !was_leader {
            self.epoch_start_offset = self.log_end_offset;
            self.effects.push(Effect::AssignEpochStart {
                leader_epoch: self.leader_epoch,
                start_offset: self.log_end_offset,
            });
        }
        for replica in self.replicas.iter().copied().filter(|replica| *replica != self.node_id) {
            let is_in_sync = self.isr.contains(&replica);
            let follower = match known.get(&replica) {
                Some(follower) if was_leader && !is_new_epoch => *follower,
                Some(follower) if was_leader && !is_epoch_missed => {
                    follower.renewed(is_in_sync, self.log_end_offset, now_ms)
                }
                _ => Follower::new(is_in_sync, now_ms),
            };
            self.followers.insert(replica, follower);
        }
        if self.flush_on_ack && self.flushed_offset < self.log_end_offset {
            self.effects.push(Effect::FlushLog { end_offset: self.log_end_offset });
        }
        self.advance_high_watermark();
    }

    /// The brokers among the replicas that are registered and not fenced, as the metadata has them now.
    pub fn update_live_brokers(&mut self, live_brokers: Vec<LiveBroker>) {
        self.live_brokers = live_brokers;
        self.advance_high_watermark();
    }

    /// `replica.lag.time.max.ms`.
    pub fn update_lag_max_ms(&mut self, lag_max_ms: i64) {
        self.lag_max_ms = lag_max_ms;
    }

    /// The topic's setting changed. The high watermark follows with the next append, fetch of a follower or change of the
    /// in-sync set (ISR-71).
    pub fn update_min_insync_replicas(&mut self, min_insync_replicas: i32) {
        self.min_insync_replicas = min_insync_replicas;
    }

    // --- checks ---

    /// Whether a client may append now: 0 or an error code.
    pub fn check_append(&self, acks: i16) -> i16 {
        if !self.is_leader() {
            error_code::NOT_LEADER_OR_FOLLOWER
        } else if acks == -1 && self.is_under_min_isr() {
            error_code::NOT_ENOUGH_REPLICAS
        } else {
            error_code::NONE
        }
    }

    /// The epoch check of KIP-320: 0, or the error code for the client. See [`check_leader_epoch`].
    pub fn check_leader_epoch(&self, current_leader_epoch: i32, needs_leader: bool) -> i16 {
        check_leader_epoch(self.leader_epoch, self.is_leader(), current_leader_epoch, needs_leader)
    }

    /// The error code for a fetch from a broker that may not replicate from here (LEPO-16). `current_leader_epoch` is
    /// what the broker believes, -1 when it does not say.
    pub fn follower_refusal(&self, current_leader_epoch: i32) -> i16 {
        match self.check_leader_epoch(current_leader_epoch, true) {
            error_code::NONE if current_leader_epoch >= 0 => error_code::UNKNOWN_LEADER_EPOCH,
            error_code::NONE => error_code::NOT_LEADER_OR_FOLLOWER,
            code => code,
        }
    }

    /// Whether the high watermark has come to this epoch; before, latest offsets could go back (LEPO-29).
    pub fn is_high_watermark_settled(&self) -> bool {
        self.high_watermark >= self.epoch_start_offset
    }

    // --- events ---

    /// The log of the leader grew.
    pub fn on_appended(&mut self, log_end_offset: i64) {
        self.log_end_offset = log_end_offset;
        if self.flush_on_ack {
            self.effects.push(Effect::FlushLog { end_offset: log_end_offset });
        } else {
            self.advance_high_watermark();
        }
    }

    /// Everything below `flushed_offset` is durable.
    pub fn on_flushed(&mut self, flushed_offset: i64) {
        if flushed_offset > self.flushed_offset {
            self.flushed_offset = flushed_offset;
            if self.is_leader() {
                self.advance_high_watermark();
            }
        }
    }

    /// Whether a fetch comes from an earlier life of its broker (ISR-14).
    pub fn is_stale_broker(&self, replica_id: i32, broker_epoch: i64) -> bool {
        let mut live = self.live_brokers.iter();
        broker_epoch >= 0 && live.any(|broker| broker.broker_id == replica_id && broker_epoch < broker.epoch)
    }

    /// Whether the metadata has a replica with this id beside the leader.
    pub fn knows_follower(&self, replica_id: i32) -> bool {
        self.followers.contains_key(&replica_id)
    }

    /// A follower of the current epoch asked for `fetch_offset`: it has everything below, durably. What is proposed
    /// to the controller is returned. A replica that this leader does not know changes nothing.
    pub fn on_follower_fetch(&mut self, fetch: &FollowerFetch) -> Option<IsrProposal> {
        self.now_ms = self.now_ms.max(fetch.now_ms);
        let follower = self.followers.get_mut(&fetch.replica_id)?;
        follower.record(fetch, self.log_end_offset);
        let proposal = self.propose_expand(fetch.replica_id);
        self.advance_high_watermark();
        proposal
    }

    /// A follower has fetched again at `at_ms` since [`Self::on_follower_fetch`], from the same position, and nothing was
    /// appended in between. An incremental fetch does not name such a partition, so a shell may say this late: before it
    /// says anything else of the follower, or asks who fell behind.
    pub fn on_repeated_fetch(&mut self, replica_id: i32, at_ms: i64) {
        if let Some(follower) = self.followers.get_mut(&replica_id) {
            self.now_ms = self.now_ms.max(at_ms);
            follower.repeat(at_ms);
        }
    }

    // --- a follower ---

    /// Records of the leader were appended; it said that those below `leader_high_watermark` are committed. The high
    /// watermark follows it, also back, within the log (RFET-30).
    pub fn on_replicated(&mut self, log_end_offset: i64, leader_high_watermark: i64, log_start_offset: i64) {
        self.log_end_offset = log_end_offset;
        let high_watermark = leader_high_watermark.min(log_end_offset).max(log_start_offset);
        self.set_high_watermark(high_watermark);
    }

    /// The log of a follower was cut and ends at `log_end_offset`; what is left is durable.
    pub fn on_truncated(&mut self, log_end_offset: i64) {
        self.log_end_offset = log_end_offset;
        self.flushed_offset = self.flushed_offset.min(log_end_offset);
        self.set_high_watermark(self.high_watermark.min(log_end_offset));
    }

    fn set_high_watermark(&mut self, high_watermark: i64) {
        if high_watermark != self.high_watermark {
            self.high_watermark = high_watermark;
            self.effects.push(Effect::HighWatermarkAdvanced { high_watermark });
        }
    }

    /// The log was emptied and starts at `start_offset`.
    pub fn on_truncated_fully(&mut self, start_offset: i64) {
        self.log_end_offset = start_offset;
        self.flushed_offset = start_offset;
        self.set_high_watermark(start_offset);
    }

    /// The log takes no more writes: what waits for durability never gets it.
    pub fn on_log_failed(&mut self) {
        self.fail_pending_acks(error_code::KAFKA_STORAGE_ERROR);
    }

    /// Report with [`Effect::AckCompleted`] when everything below `end_offset` is committed.
    pub fn wait_for_ack(&mut self, end_offset: i64, token: T) {
        if self.high_watermark >= end_offset {
            let error_code = self.committed_error();
            self.effects.push(Effect::AckCompleted { token, error_code });
            return;
        }
        // Nearly always at the end: an append registers its wait at once. A repeated batch waits for an older end.
        let later = self.pending_acks.iter().rev().take_while(|(end, _)| *end > end_offset).count();
        self.pending_acks.insert(self.pending_acks.len() - later, (end_offset, token));
    }

    /// The replica goes away: waiting requests are answered with NOT_LEADER_OR_FOLLOWER.
    pub fn close(&mut self) {
        self.leader_id = NO_LEADER;
        self.fail_pending_acks(error_code::NOT_LEADER_OR_FOLLOWER);
        self.effects
            .push(Effect::LeadershipChanged { leader_epoch: self.leader_epoch, leader_id: NO_LEADER });
    }

    // --- decisions ---

    fn advance_high_watermark(&mut self) {
        if !self.is_leader() || self.is_under_min_isr() {
            return;
        }
        let own = if self.flush_on_ack { self.flushed_offset } else { self.log_end_offset };
        let of = |replica| self.followers.get(&replica).map_or(-1, |follower| follower.log_end_offset);
        let is_other = |replica: &i32| *replica != self.node_id;
        let in_sync = self.maximal_isr().filter(is_other).map(of).fold(own, i64::min);
        // Those about to be proposed are waited for, or the high watermark would run ahead of them for ever (ISR-67).
        let is_waited_for = |replica: &i32| {
            !self.isr.contains(replica)
                && self.is_eligible(*replica)
                && self.followers.get(replica).is_some_and(|follower| {
                    follower.is_caught_up(self.log_end_offset, self.lag_max_ms, self.now_ms)
                })
        };
        let waited_for = self.replicas.iter().copied().filter(is_other).filter(is_waited_for);
        let high_watermark = waited_for.map(of).fold(in_sync, i64::min);
        if in_sync > self.high_watermark.max(high_watermark) {
            self.effects.push(Effect::HighWatermarkHeld);
        }
        if high_watermark <= self.high_watermark {
            return;
        }
        self.high_watermark = high_watermark;
        self.effects.push(Effect::HighWatermarkAdvanced { high_watermark });
        let error_code = self.committed_error();
        while self.pending_acks.front().is_some_and(|(end_offset, _)| *end_offset <= high_watermark) {
            if let Some((_, token)) = self.pending_acks.pop_front() {
                self.effects.push(Effect::AckCompleted { token, error_code });
            }
        }
    }

    fn committed_error(&self) -> i16 {
        if self.is_too_few(self.maximal_isr_len()) {
            error_code::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        } else {
            error_code::NONE
        }
    }

    fn fail_pending_acks(&mut self, error_code: i16) {
        let failed = self.pending_acks.drain(..).map(|(_, token)| Effect::AckCompleted { token, error_code });
        self.effects.extend(failed);
    }
}

/// The epoch check of KIP-320: 0, or the error code for the client.
///
/// `current_leader_epoch` is what the client believes, -1 when it does not say; any other negative number is an old epoch,
/// as in Kafka's `Partition.checkCurrentLeaderEpoch`. With `needs_leader` a follower refuses;
/// a wrong epoch comes before a wrong role (LEPO-05).
pub fn check_leader_epoch(
    leader_epoch: i32,
    is_leader: bool,
    current_leader_epoch: i32,
    needs_leader: bool,
) -> i16 {
    if current_leader_epoch != -1 && current_leader_epoch != leader_epoch {
        return if current_leader_epoch < leader_epoch {
            error_code::FENCED_LEADER_EPOCH
        } else {
            error_code::UNKNOWN_LEADER_EPOCH
        };
    }
    if needs_leader && !is_leader {
        return error_code::NOT_LEADER_OR_FOLLOWER;
    }
    error_code::NONE
}

#[cfg(test)]
mod tests;
