//! Appends of clients and coordinators: checked without the lock, appended under it.
use std::sync::Arc;

use kraftlog_log::log::{AppendOptions, PreparedAppend};
use kraftlog_log::producer_state::Origin;
use kraftlog_log::Error;

use super::{lock, Ack, AckToken, AppendError, Appended, Listener, Partition};
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
        let end_offset = info.last_offset + 1;
        if !info.is_duplicate {
            state.core.on_appended(end_offset);
            Self::tell_followers(&state);
        }
        let is_committed = state.core.high_watermark() >= end_offset;
        if let (-1, false, Some((listener, token))) = (acks, is_committed, ack) {
            state.core.wait_for_ack(end_offset, Ack { listener: Arc::clone(listener), token });
        }
        let mut needs_flush = self.carry_out(&mut state).needs_flush;
        if !info.is_duplicate {
            let unflushed = end_offset.saturating_sub(state.core.flushed_offset());
            needs_flush |= unflushed >= state.settings.flush_messages;
            if state.settings.flushes_in_time && !state.is_flush_timed {
                state.is_flush_timed = true;
                self.inbox.send(PythonEvent::Unflushed { partition: self.number });
            }
        }
        Ok(Appended { info, leader_epoch, is_committed, needs_flush })
    }

    pub(super) fn refuse(&self, error: Error) -> AppendError {
        let is_failure = matches!(error, Error::Io { .. } | Error::Poisoned { .. });
        if is_failure && !error.is_out_of_descriptors() {
            self.on_log_failed(&error.to_string());
        }
        AppendError::Log(error)
    }
}
