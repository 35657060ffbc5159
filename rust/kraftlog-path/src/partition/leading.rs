//! What a leader does for the replicas that follow it.
use std::sync::Arc;

use super::{Listener, Partition, State};
use crate::core::{FollowerFetch, IsrProposal, LiveBroker};
use crate::error_code;
use crate::sync::lock;

/// What a follower says about itself when it fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerPosition {
    /// Who, from where, under which registration, and when.
    pub fetch: FollowerFetch,
    /// The leader epoch that it believes, -1 where it does not say.
    pub current_leader_epoch: i32,
    /// Epoch of the record before its fetch offset, -1 where it has none.
    pub last_fetched_epoch: i32,
}

/// What the leader answers, all of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowerAnswer {
    /// 0, or why it may not replicate from here; nothing was recorded then.
    pub error_code: i16,
    /// Epoch and exclusive end offset to truncate to; nothing was recorded then.
    pub diverging_epoch: Option<(i32, i64)>,
    /// Before this fetch was recorded.
    pub high_watermark: i64,
    /// First readable offset.
    pub log_start_offset: i64,
    /// Exclusive end of what may be read.
    pub log_end_offset: i64,
    /// For the controller: this follower is to join the in-sync set.
    pub proposal: Option<IsrProposal>,
}

impl Partition {
    /// Check and record a follower's fetch (Kafka's `Partition.fetchRecords` and `updateFollowerFetchState`).
    ///
    /// Once per request: a later look of the same request records nothing (ISR-16), see [`Self::look_for_follower`].
    pub fn follower_fetch(&self, position: &FollowerPosition) -> FollowerAnswer {
        self.answer_follower(position, true)
    }

    /// What a follower's fetch that waits would be answered now.
    pub fn look_for_follower(&self, position: &FollowerPosition) -> FollowerAnswer {
        self.answer_follower(position, false)
    }

    fn answer_follower(&self, position: &FollowerPosition, records: bool) -> FollowerAnswer {
        let fetch = &position.fetch;
        let mut state = lock(&self.state);
        let core = &mut state.core;
        let mut answer = FollowerAnswer {
            high_watermark: core.high_watermark(),
            log_start_offset: self.log.log_start_offset(),
            log_end_offset: core.log_end_offset(),
            ..FollowerAnswer::default()
        };
        answer.error_code = core.check_leader_epoch(position.current_leader_epoch, true);
        if answer.error_code == error_code::NONE && !core.knows_follower(fetch.replica_id) {
            answer.error_code = core.follower_refusal(position.current_leader_epoch);
        }
        if answer.error_code == error_code::NONE && core.is_stale_broker(fetch.replica_id, fetch.broker_epoch)
        {
            answer.error_code = error_code::NOT_LEADER_OR_FOLLOWER;
        }
        if answer.error_code != error_code::NONE {
            return answer;
        }
        if position.last_fetched_epoch >= 0 {
            if fetch.fetch_offset < answer.log_start_offset {
                answer.error_code = error_code::OFFSET_OUT_OF_RANGE;
                return answer;
            }
            let (epoch, end_offset) = self.log.end_offset_for_epoch(position.last_fetched_epoch);
            if epoch < 0 {
                answer.error_code = error_code::OFFSET_OUT_OF_RANGE;
                return answer;
            }
            if epoch < position.last_fetched_epoch || end_offset < fetch.fetch_offset {
                answer.diverging_epoch = Some((epoch, end_offset));
                return answer;
            }
        }
        if fetch.fetch_offset < answer.log_start_offset || fetch.fetch_offset > answer.log_end_offset {
            answer.error_code = error_code::OFFSET_OUT_OF_RANGE;
            return answer;
        }
        if records {
            answer.proposal = core.on_follower_fetch(fetch);
            self.carry_out(&mut state);
        }
        answer
    }

    /// Propose that members which fell behind leave the in-sync set.
    pub fn propose_shrink(&self, now_ms: i64) -> Option<IsrProposal> {
        lock(&self.state).core.propose_shrink(now_ms)
    }

    /// Whether the answer to a proposal is still awaited.
    pub fn is_proposal_pending(&self, number: u64) -> bool {
        lock(&self.state).core.pending_proposal() == Some(number)
    }

    /// The controller confirmed a proposal; false for one that metadata has overtaken.
    pub fn isr_committed(&self, number: u64, leader_epoch: i32, partition_epoch: i32, isr: Vec<i32>) -> bool {
        let mut state = lock(&self.state);
        let is_current = state.core.on_isr_committed(number, leader_epoch, partition_epoch, isr);
        self.publish_in_sync(&state);
        self.carry_out(&mut state);
        is_current
    }

    /// The controller refused a proposal; another one may follow.
    pub fn isr_refused(&self, number: u64) {
        let mut state = lock(&self.state);
        state.core.on_isr_refused(number);
        self.carry_out(&mut state);
    }

    /// The brokers among the replicas that are registered and not fenced.
    pub fn update_live_brokers(&self, live_brokers: Vec<LiveBroker>) {
        let mut state = lock(&self.state);
        state.core.update_live_brokers(live_brokers);
        self.carry_out(&mut state);
    }

    /// `replica.lag.time.max.ms`.
    pub fn update_lag_max_ms(&self, lag_max_ms: i64) {
        lock(&self.state).core.update_lag_max_ms(lag_max_ms);
    }

    /// Write the beginning of the epoch that this replica leads into the checkpoint; nothing happens once it does not
    /// lead in that epoch any more.
    pub fn write_epoch_start(&self, leader_epoch: i32, start_offset: i64) -> kraftlog_log::Result<()> {
        let _state = lock(&self.state);
        if !self.is_leader() || self.leader_epoch() != leader_epoch {
            return Ok(());
        }
        self.log.assign_epoch_start(leader_epoch, start_offset)
    }

    /// Call [`Listener::moved`] with `token` after each append or change of leaders from now on, for followers that
    /// wait. `None` ends that.
    pub fn watch_appends(&self, listener: Option<(Arc<dyn Listener>, u64)>) {
        lock(&self.state).append_listener = listener;
    }

    pub(super) fn tell_followers(state: &State) {
        if let Some((listener, token)) = &state.append_listener {
            listener.moved(*token);
        }
    }
}
