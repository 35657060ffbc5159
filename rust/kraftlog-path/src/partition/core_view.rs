//! Looks at the state machine of a partition.
use super::Ack;
use crate::core::PartitionCore;

/// Facts of the state machine that only its lock makes one moment.
pub struct CoreView<'a>(pub(super) &'a PartitionCore<Ack>);

impl CoreView<'_> {
    /// `min.insync.replicas` in force.
    pub fn min_insync_replicas(&self) -> i32 {
        self.0.min_insync_replicas()
    }

    /// The partition epoch the metadata gives, -1 before any.
    pub fn partition_epoch(&self) -> i32 {
        self.0.partition_epoch()
    }

    /// Exclusive end of what is known to be durable.
    pub fn flushed_offset(&self) -> i64 {
        self.0.flushed_offset()
    }

    /// Members of the in-sync set as the controller confirmed it; empty on a follower.
    pub fn isr(&self) -> Vec<i32> {
        self.0.isr().to_vec()
    }

    /// The in-sync set with the replica that was proposed as a member, which the controller may have accepted already.
    pub fn maximal_isr(&self) -> Vec<i32> {
        self.0.maximal_isr().collect()
    }

    /// Whether too few replicas are in sync to commit; false on a follower.
    pub fn is_under_min_isr(&self) -> bool {
        self.0.is_under_min_isr()
    }

    /// Whether an assigned replica is not in sync; false on a follower.
    pub fn is_under_replicated(&self) -> bool {
        self.0.is_under_replicated()
    }

    /// Whether just enough replicas are in sync to commit; false on a follower.
    pub fn is_at_min_isr(&self) -> bool {
        self.0.is_at_min_isr()
    }

    /// The other members of the in-sync set that have `offset`: id, log end and when each was caught up.
    pub fn in_sync_followers_with(&self, offset: i64) -> Vec<(i32, i64, i64)> {
        self.0.in_sync_followers_with(offset)
    }

    /// The smallest log start over the leader and its live followers.
    pub fn low_watermark(&self, own_log_start: i64) -> i64 {
        self.0.low_watermark(own_log_start)
    }
}
