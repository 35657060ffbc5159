//! Changes of the in-sync set that a leader proposes to the controller (KIP-497), one at a time.
//!
//! A proposed member counts for the high watermark at once, a member proposed for removal until the controller has
//! confirmed that it is gone: any replica that the controller may elect next has what is committed.
use super::{Effect, PartitionCore};

/// A change of the in-sync set for the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrProposal {
    /// Recognises it in the answer.
    pub number: u64,
    /// Under which it was made.
    pub leader_epoch: i32,
    /// Of the state that it changes.
    pub partition_epoch: i32,
    /// The new members, each with the broker epoch of its last fetch; -1 where none is known, and for the leader.
    pub members: Vec<(i32, i64)>,
}

/// What is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// This replica is to join.
    Expand { number: u64, replica_id: i32 },
    /// Members are to leave; they count until that is confirmed.
    Shrink { number: u64 },
}

impl Pending {
    fn number(self) -> u64 {
        match self {
            Self::Expand { number, .. } | Self::Shrink { number } => number,
        }
    }
}

impl<T> PartitionCore<T> {
    /// The members that count for the high watermark: those confirmed, and one that is about to join (ISR-03, ISR-04).
    pub fn maximal_isr(&self) -> impl Iterator<Item = i32> + '_ {
        let joining = match self.pending {
            Some(Pending::Expand { replica_id, .. }) => Some(replica_id),
            _ => None,
        };
        self.isr.iter().copied().chain(joining)
    }

    pub(super) fn maximal_isr_len(&self) -> usize {
        self.isr.len() + usize::from(matches!(self.pending, Some(Pending::Expand { .. })))
    }

    /// Number of the proposal in flight.
    pub fn pending_proposal(&self) -> Option<u64> {
        self.pending.map(Pending::number)
    }

    /// Whether a replica may join: its broker is live, does not shut down, and fetched under its present registration
    /// (ISR-30).
    pub(super) fn is_eligible(&self, replica_id: i32) -> bool {
        let Some(follower) = self.followers.get(&replica_id) else { return false };
        self.live_brokers.iter().any(|broker| {
            broker.broker_id == replica_id
                && !broker.is_shutting_down
                && follower.broker_epoch.is_some_and(|epoch| epoch == -1 || epoch == broker.epoch)
        })
    }

    /// Propose that a follower joins, if it has what is committed and nothing is in flight (ISR-29, ISR-32).
    pub(super) fn propose_expand(&mut self, replica_id: i32) -> Option<IsrProposal> {
        if self.pending.is_some() || !self.is_leader() || self.isr.contains(&replica_id) {
            return None;
        }
        let follower = self.followers.get(&replica_id)?;
        let is_in_sync = follower.log_end_offset >= self.high_watermark
            && follower.log_end_offset >= self.epoch_start_offset;
        if !is_in_sync || !self.is_eligible(replica_id) {
            return None;
        }
        let mut isr = self.isr.clone();
        isr.push(replica_id);
        let number = self.next_proposal();
        self.pending = Some(Pending::Expand { number, replica_id });
        Some(self.proposal(number, &isr))
    }

    /// Propose that members which fell behind leave (ISR-21 to ISR-26).
    ///
    /// The high watermark stops waiting for a replica outside of the set whose time is over. No fetch may come that would
    /// notice it: the leader may be the only member.
    pub fn propose_shrink(&mut self, now_ms: i64) -> Option<IsrProposal> {
        self.now_ms = self.now_ms.max(now_ms);
        self.advance_high_watermark();
        if self.pending.is_some() || !self.is_leader() {
            return None;
        }
        let is_kept = |replica: &i32| {
            *replica == self.node_id
                || self.followers.get(replica).is_some_and(|follower| {
                    follower.is_caught_up(self.log_end_offset, self.lag_max_ms, now_ms)
                })
        };
        let isr: Vec<i32> = self.isr.iter().copied().filter(is_kept).collect();
        if isr.len() == self.isr.len() {
            return None;
        }
        let number = self.next_proposal();
        self.pending = Some(Pending::Shrink { number });
        Some(self.proposal(number, &isr))
    }

    fn next_proposal(&mut self) -> u64 {
        self.proposal_count += 1;
        self.proposal_count
    }

    fn proposal(&self, number: u64, isr: &[i32]) -> IsrProposal {
        let epoch_of = |replica: i32| {
            self.followers.get(&replica).and_then(|follower| follower.broker_epoch).unwrap_or(-1)
        };
        IsrProposal {
            number,
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            members: isr.iter().map(|replica| (*replica, epoch_of(*replica))).collect(),
        }
    }

    /// The controller confirmed a proposal. False, and nothing changes, for an answer that metadata has overtaken, of
    /// another leader epoch, or of an older partition epoch (ISR-45 to ISR-47).
    pub fn on_isr_committed(
        &mut self,
        number: u64,
        leader_epoch: i32,
        partition_epoch: i32,
        isr: Vec<i32>,
    ) -> bool {
        let is_current = self.pending_proposal() == Some(number)
            && leader_epoch == self.leader_epoch
            && partition_epoch >= self.partition_epoch;
        if is_current {
            self.pending = None;
            self.partition_epoch = partition_epoch;
            self.isr = isr;
            self.effects.push(Effect::IsrChanged);
            self.advance_high_watermark();
        }
        is_current
    }

    /// The controller refused a proposal in a way that allows another one: back to what is confirmed (ISR-48).
    pub fn on_isr_refused(&mut self, number: u64) {
        if self.pending_proposal() == Some(number) {
            self.pending = None;
            self.advance_high_watermark();
        }
    }
}
