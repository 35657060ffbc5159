//! What a replica wants done; the shell carries effects out in their order.

/// One thing to do. `T` is what a caller gave to wait for an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<T> {
    /// Make the log durable up to `end_offset` (exclusive), then call
    /// [`PartitionCore::on_flushed`](super::PartitionCore::on_flushed).
    FlushLog {
        /// Exclusive.
        end_offset: i64,
    },
    /// Write (leader epoch, start offset) into the leader epoch checkpoint before any append of that epoch.
    AssignEpochStart {
        /// The new epoch.
        leader_epoch: i32,
        /// Offset of its first record.
        start_offset: i64,
    },
    /// Records below `high_watermark` (exclusive) are committed: waiting fetches may have something to read.
    HighWatermarkAdvanced {
        /// Exclusive end of what is committed.
        high_watermark: i64,
    },
    /// All members have more than what is committed, but a replica outside of the in-sync set may join soon and is waited
    /// for. It is so only for some time: the next fetch of each follower has to be recorded, or nobody notices its end.
    HighWatermarkHeld,
    /// Epoch or leader changed: fetches that wait here end with an error.
    LeadershipChanged {
        /// The epoch now.
        leader_epoch: i32,
        /// The leader now, [`NO_LEADER`](super::NO_LEADER) for none.
        leader_id: i32,
    },
    /// The controller confirmed another in-sync set.
    IsrChanged,
    /// A wait for acks=all is over.
    AckCompleted {
        /// What was given to [`PartitionCore::wait_for_ack`](super::PartitionCore::wait_for_ack).
        token: T,
        /// 0 when the records are committed, else why they may not be.
        error_code: i16,
    },
}
