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
}
