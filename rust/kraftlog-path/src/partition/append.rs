//! Appends of clients and coordinators: checked without the lock, appended under it.
use std::sync::Arc;

use kraftlog_log::log::{AppendInfo, AppendOptions, PreparedAppend};
use kraftlog_log::producer_state::Origin;
use kraftlog_log::Error;

use super::{lock, Ack, AckToken, AppendError, Appended, Listener, Partition, State};
use crate::error_code;
use crate::python_inbox::PythonEvent;
use crate::sync::Ordering;

impl Partition {
    /// Append one batch: role, in-sync replicas and epoch are checked under the lock that the append holds. The batch
    /// is validated before the lock is taken.
    ///
    /// With acks=-1 and `ack` the listener gets a message once everything is committed, or can no longer be; not if
    /// `Appended::is_committed`.
    pub fn append(
        &self,
        records: &[u8],
        acks: i16,
        now_ms: i64,
        origin: Origin,
        ack: Option<(&Arc<dyn Listener>, AckToken)>,
    ) -> Result<Appended, AppendError> {
        self.append_with(records, acks, AppendOptions::new(-1, now_ms, origin), ack)
    }

    /// Like [`Self::append`], with what only transactions need to say; the leader epoch of `options` is not used.
    pub fn append_with(
        &self,
        records: &[u8],
        acks: i16,
        options: AppendOptions,
        ack: Option<(&Arc<dyn Listener>, AckToken)>,
    ) -> Result<Appended, AppendError> {
        self.append_prepared(self.prepare_append(records, acks, options)?, acks, ack)
    }

    /// Check a batch before its append; takes no lock.
    ///
    /// # Errors
    /// As [`Self::append_with`], and `Error::OverBudget` for more uncompressed bytes than `options` allow.
    pub fn prepare_append<'a>(
        &self,
        records: &'a [u8],
        acks: i16,
        options: AppendOptions,
    ) -> Result<PreparedAppend<'a>, AppendError> {
        // First, as a client of another leader has to hear that whatever it sent; it is checked again under the lock.
        if !self.is_leader() {
            return Err(AppendError::Refused(error_code::NOT_LEADER_OR_FOLLOWER));
        }
        if acks == -1 && self.is_under_min_isr.load(Ordering::Acquire) {
            return Err(AppendError::Refused(error_code::NOT_ENOUGH_REPLICAS));
        }
        self.log.prepare_append(records, options).map_err(|error| self.refuse(error))
    }

    /// Append what [`Self::prepare_append`] checked.
    pub fn append_prepared(
        &self,
        prepared: PreparedAppend<'_>,
        acks: i16,
        ack: Option<(&Arc<dyn Listener>, AckToken)>,
    ) -> Result<Appended, AppendError> {
        let mut state = lock(&self.state);
        let refusal = state.core.check_append(acks);
        if refusal != error_code::NONE {
            return Err(AppendError::Refused(refusal));
        }
        let leader_epoch = state.core.leader_epoch();
        let info = match self.log.commit_append(prepared, leader_epoch) {
            Ok(info) => info,
            Err(error) => {
                drop(state);
                return Err(self.refuse(error));
            }
        };
        let needs_flush = if info.is_duplicate { false } else { self.note_end(&mut state, &info) };
        let mut appended = Self::appended(&mut state, info, acks, ack);
        appended.needs_flush = self.carry_out(&mut state).needs_flush | needs_flush;
        Ok(appended)
    }

    /// Append what [`Self::prepare_append`] checked for several requests, in their order; a result for each, as
    /// [`Self::append_prepared`] gives it. A refused request does not end those after it.
    ///
    /// With acks=-1 the listener is told of each with the token at the same place.
    pub fn append_all_prepared(
        &self,
        prepared: Vec<PreparedAppend<'_>>,
        acks: i16,
        listener: &Arc<dyn Listener>,
        tokens: &[AckToken],
    ) -> Vec<Result<Appended, AppendError>> {
        let mut state = lock(&self.state);
        let refusal = state.core.check_append(acks);
        if refusal != error_code::NONE {
            return prepared.iter().map(|_| Err(AppendError::Refused(refusal))).collect();
        }
        let leader_epoch = state.core.leader_epoch();
        let infos = self.log.commit_appends(prepared, leader_epoch);
        let newest = infos.iter().rev().flatten().find(|info| !info.is_duplicate);
        let mut needs_flush = newest.is_some_and(|info| self.note_end(&mut state, info));
        let mut results = Vec::with_capacity(infos.len());
        for (info, token) in infos.into_iter().zip(tokens) {
            let ack = (acks == -1).then_some((listener, *token));
            results.push(info.map(|info| Self::appended(&mut state, info, acks, ack)));
        }
        needs_flush |= self.carry_out(&mut state).needs_flush;
        drop(state);
        let finish = |appended: Appended| Appended { needs_flush, ..appended };
        results.into_iter().map(|result| result.map(finish).map_err(|error| self.refuse(error))).collect()
    }

    /// The log ends behind this append now. Whether it has to be flushed.
    fn note_end(&self, state: &mut State, info: &AppendInfo) -> bool {
        let end_offset = info.last_offset + 1;
        state.core.on_appended(end_offset);
        Self::tell_followers(state);
        if state.settings.flushes_in_time && !state.is_flush_timed {
            state.is_flush_timed = true;
            self.inbox.send(PythonEvent::Unflushed { partition: self.number });
        }
        end_offset.saturating_sub(state.core.flushed_offset()) >= state.settings.flush_messages
    }

    /// What a request learns of its append, which waits for its acknowledgement if that is still to come.
    fn appended(
        state: &mut State,
        info: AppendInfo,
        acks: i16,
        ack: Option<(&Arc<dyn Listener>, AckToken)>,
    ) -> Appended {
        let end_offset = info.last_offset + 1;
        let is_committed = state.core.high_watermark() >= end_offset;
        if let (-1, false, Some((listener, token))) = (acks, is_committed, ack) {
            state.core.wait_for_ack(end_offset, Ack { listener: Arc::clone(listener), token });
        }
        Appended { info, leader_epoch: state.core.leader_epoch(), is_committed, needs_flush: false }
    }

    pub(super) fn refuse(&self, error: Error) -> AppendError {
        let is_failure = matches!(error, Error::Io { .. } | Error::Poisoned { .. });
        if is_failure && !error.is_out_of_descriptors() {
            self.on_log_failed(&error.to_string());
        }
        AppendError::Log(error)
    }
}
