//! Reads what another broker asks for to replicate: checked and recorded under each partition's lock, up to the end of the
//! log.
use std::sync::Arc;

use super::read::{error_code_of, PartitionRead};
use crate::core::FollowerFetch;
use crate::error_code;
use crate::partition::{FollowerPosition, FollowerSession, Partition};
use crate::session::FollowingBroker;
use crate::wire::fetch::{FetchPartition, NAMES_LEADERS_FROM};

/// Who fetches, and when its request came.
#[derive(Clone, Copy, Debug)]
pub(super) struct FollowerCall {
    pub(super) broker: FollowingBroker,
    pub(super) now_ms: i64,
    pub(super) version: i16,
    /// The request has just arrived, and positions are recorded; every later look only reads (ISR-16).
    pub(super) is_arrival: bool,
}

impl FollowerCall {
    /// Read one partition, as [`PartitionRead::of`] does for a consumer. `session` is `None` for a fetch that goes
    /// without one.
    pub(super) fn read(
        &self,
        partition: &Partition,
        wanted: &FetchPartition,
        place: u32,
        session: Option<&Arc<dyn FollowerSession>>,
        remaining_bytes: i64,
        is_first: bool,
    ) -> PartitionRead {
        let fetch = FollowerFetch {
            replica_id: self.broker.replica_id,
            broker_epoch: self.broker.broker_epoch,
            fetch_offset: wanted.fetch_offset,
            log_start_offset: wanted.log_start_offset,
            now_ms: self.now_ms,
        };
        let position = FollowerPosition {
            fetch,
            current_leader_epoch: wanted.current_leader_epoch,
            last_fetched_epoch: wanted.last_fetched_epoch,
        };
        let answer = match (self.is_arrival, session) {
            (false, _) => partition.look_for_follower(&position),
            (true, None) => partition.follower_fetch(&position),
            (true, Some(session)) => partition.follower_fetch_in(&position, session, place),
        };
        if let Some(proposal) = answer.proposal {
            partition.propose(proposal);
        }
        if answer.error_code != error_code::NONE {
            return self.failed(place, partition, answer.error_code);
        }
        let mut read = PartitionRead {
            error_code: error_code::NONE,
            high_watermark: answer.high_watermark,
            last_stable_offset: partition.last_stable_offset().min(answer.high_watermark),
            log_start_offset: answer.log_start_offset,
            diverging_epoch: answer.diverging_epoch,
            is_adding: answer.is_adding,
            ..PartitionRead::failed(place, error_code::NONE)
        };
        if read.diverging_epoch.is_some() {
            return read; // and is looked at by the next request, too, until the follower has truncated
        }
        let has_more = wanted.fetch_offset < answer.log_end_offset;
        // What moved while the fetch waited may have to be recorded: the next request looks here, too.
        read.is_behind = has_more || !self.is_arrival;
        let max_bytes = i64::from(wanted.max_bytes).min(remaining_bytes);
        if has_more && (max_bytes > 0 || is_first) {
            let max_bytes = u64::try_from(max_bytes).unwrap_or(0);
            let log = partition.log();
            match log.read(wanted.fetch_offset, max_bytes, answer.log_end_offset, is_first) {
                Ok(slice) => read.take_records(slice),
                Err(error) => return self.failed(place, partition, error_code_of(&error)),
            }
        }
        read
    }

    /// An error, with the leader if that helps (KIP-951); a follower knows where the brokers are.
    fn failed(&self, place: u32, partition: &Partition, error_code: i16) -> PartitionRead {
        let mut read = PartitionRead::failed(place, error_code);
        let is_hinted =
            matches!(error_code, error_code::NOT_LEADER_OR_FOLLOWER | error_code::FENCED_LEADER_EPOCH);
        if is_hinted && self.version >= NAMES_LEADERS_FROM {
            let (leader_epoch, leader_id) = partition.role();
            read.current_leader = Some((leader_id, leader_epoch));
        }
        read
    }
}
