//! What a leader does for the replicas that follow it.
use std::sync::Arc;

use super::{Following, Listener, Partition, State};
use crate::core::{FollowerFetch, IsrProposal, LiveBroker};
use crate::error_code;
use crate::python_inbox::PythonEvent;
use crate::sync::{lock, MutexGuard};

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
    /// A reassignment adds this follower.
    pub is_adding: bool,
}

impl Partition {
    /// The answer, and whether the position was recorded.
    pub(super) fn answer_follower(
        &self,
        state: &mut MutexGuard<'_, State>,
        position: &FollowerPosition,
        records: bool,
    ) -> (FollowerAnswer, bool) {
        let fetch = &position.fetch;
        let is_adding = state.adding.contains(&fetch.replica_id);
        let core = &mut state.core;
        let mut answer = FollowerAnswer {
            high_watermark: core.high_watermark(),
            log_start_offset: self.log.log_start_offset(),
            log_end_offset: core.log_end_offset(),
            is_adding,
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
            return (answer, false);
        }
        if position.last_fetched_epoch >= 0 {
            if fetch.fetch_offset < answer.log_start_offset {
                answer.error_code = error_code::OFFSET_OUT_OF_RANGE;
                return (answer, false);
            }
            let (epoch, end_offset) = self.log.end_offset_for_epoch(position.last_fetched_epoch);
            if epoch < 0 {
                answer.error_code = error_code::OFFSET_OUT_OF_RANGE;
                return (answer, false);
            }
            if epoch < position.last_fetched_epoch || end_offset < fetch.fetch_offset {
                answer.diverging_epoch = Some((epoch, end_offset));
                return (answer, false);
            }
        }
        if fetch.fetch_offset < answer.log_start_offset || fetch.fetch_offset > answer.log_end_offset {
            answer.error_code = error_code::OFFSET_OUT_OF_RANGE;
            return (answer, false);
        }
        if records {
            answer.proposal = core.on_follower_fetch(fetch);
            self.carry_out(state);
        }
        (answer, records)
    }

    /// Let Python take the count of bytes that followers were sent.
    pub fn tell_replicated(&self) {
        self.inbox.send(PythonEvent::Replicated);
    }

    /// Let Python send a proposal to the controller.
    pub fn propose(&self, proposal: IsrProposal) {
        self.inbox.send(PythonEvent::InSyncProposed { key: self.key, proposal });
    }

    /// Propose that members which fell behind leave the in-sync set.
    pub fn propose_shrink(&self, now_ms: i64) -> Option<IsrProposal> {
        let mut state = lock(&self.state);
        state.note_repeated_fetches();
        let proposal = state.core.propose_shrink(now_ms);
        self.carry_out(&mut state);
        proposal
    }

    /// Whether the answer to a proposal is still awaited.
    pub fn is_proposal_pending(&self, number: u64) -> bool {
        lock(&self.state).core.pending_proposal() == Some(number)
    }

    /// The controller confirmed a proposal; false for one that metadata has overtaken.
    pub fn isr_committed(&self, number: u64, leader_epoch: i32, partition_epoch: i32, isr: Vec<i32>) -> bool {
        let mut state = lock(&self.state);
        state.note_repeated_fetches();
        let is_current = state.core.on_isr_committed(number, leader_epoch, partition_epoch, isr);
        self.publish_in_sync(&state);
        self.carry_out(&mut state);
        state.review_followers();
        is_current
    }

    /// The controller refused a proposal; another one may follow.
    pub fn isr_refused(&self, number: u64) {
        let mut state = lock(&self.state);
        state.note_repeated_fetches();
        state.core.on_isr_refused(number);
        self.carry_out(&mut state);
        state.review_followers();
    }

    /// The brokers among the replicas that are registered and not fenced.
    pub fn update_live_brokers(&self, live_brokers: Vec<LiveBroker>) {
        let mut state = lock(&self.state);
        state.note_repeated_fetches();
        state.core.update_live_brokers(live_brokers);
        self.carry_out(&mut state);
        state.review_followers();
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
        state.following.iter().for_each(Following::tell_appended);
    }
}
