//! What a replica does that follows a leader: append what it fetched, cut what the leader does not have.
//!
//! Each call names the leader epoch it was fetched or decided under. Under the partition's lock it changes nothing unless
//! this replica still follows in that epoch, so that nothing lands behind a change of leaders.
use std::sync::{mpsc, Arc};

use kraftlog_log::Error;

use super::Partition;
use crate::flush::{Flushable, Round};
use crate::sync::lock;

/// Records of a leader for one partition.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    /// Whole batches; perhaps none.
    pub records: &'a [u8],
    /// Where the fetch began.
    pub fetch_offset: i64,
    /// Under which it was made.
    pub leader_epoch: i32,
    /// Of the leader.
    pub high_watermark: i64,
    /// Of the leader.
    pub log_start_offset: i64,
}

/// Where a follower's log stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replicated {
    /// Offset the next record gets.
    pub log_end_offset: i64,
    /// First readable offset.
    pub log_start_offset: i64,
    /// Of the last record, -1 where none is known.
    pub last_epoch: i32,
    /// As this replica knows it.
    pub high_watermark: i64,
    /// Records were appended that are not durable yet.
    pub is_unflushed: bool,
}

/// Why fetched records were not appended, or a log not cut. Nothing was changed.
#[derive(Debug)]
pub enum FollowError {
    /// This replica leads, follows in another epoch, or is gone: drop what was fetched.
    Superseded,
    /// The log does not end where the fetch began.
    OffsetMoved {
        /// Where it ends.
        log_end_offset: i64,
    },
    /// The records are damaged or refused, or the log takes no writes.
    Log(Error),
}

impl Partition {
    /// Append what was fetched, and follow the leader's log start and high watermark (RFET-28).
    pub fn append_fetched(&self, fetched: &Fetched<'_>, now_ms: i64) -> Result<Replicated, FollowError> {
        let mut state = lock(&self.state);
        if state.is_withdrawn || self.is_leader() || self.leader_epoch() != fetched.leader_epoch {
            return Err(FollowError::Superseded);
        }
        if state.is_failed {
            let reason = self.log.poisoned().unwrap_or("a write or an fsync failed").to_owned();
            return Err(FollowError::Log(Error::Poisoned { origin: self.topic.clone(), reason }));
        }
        let log_end_offset = self.log.log_end_offset();
        if log_end_offset != fetched.fetch_offset {
            return Err(FollowError::OffsetMoved { log_end_offset });
        }
        let log_start_offset = self.log.log_start_offset();
        // The log start moves first, as this log may have other records where the leader has deleted some. A fetch does
        // not show that: the leader has no epochs before its log start. No high watermark may commit those records.
        let appended = self.follow_log_start(fetched.log_start_offset).and_then(|()| {
            let is_unflushed = !fetched.records.is_empty() && self.append_or_restart(fetched, now_ms)?;
            self.follow_log_start(fetched.log_start_offset)?;
            Ok(is_unflushed)
        });
        let is_moved = self.log.log_start_offset() != log_start_offset;
        if appended.is_ok() {
            let log_end_offset = self.log.log_end_offset();
            state.core.on_replicated(log_end_offset, fetched.high_watermark, self.log.log_start_offset());
            self.carry_out(&mut state);
        }
        if is_moved {
            Self::tell_moved(&state);
        }
        match appended {
            Ok(is_unflushed) => Ok(self.replicated(state.core.high_watermark(), is_unflushed)),
            Err(error) => {
                drop(state);
                Err(self.follow_error(error))
            }
        }
    }

    /// Move the log start towards the leader's, as far as this log reaches.
    fn follow_log_start(&self, leader_log_start_offset: i64) -> kraftlog_log::Result<()> {
        let offset = leader_log_start_offset.min(self.log.log_end_offset());
        self.log.advance_log_start_offset(offset).map(|_| ())
    }

    /// Append at the end of the log. Returns whether it is still to be flushed.
    fn append_or_restart(&self, fetched: &Fetched<'_>, now_ms: i64) -> kraftlog_log::Result<bool> {
        let append = || self.log.append_as_follower(fetched.records, fetched.leader_epoch, now_ms);
        let info = match append() {
            Err(Error::OffsetOutOfRange { offset, .. }) if self.starts_inside(offset) => {
                // The leader's log starts within its first batch (RFET-39).
                self.log.truncate_fully_and_start_at(offset, now_ms)?;
                append()?
            }
            appended => appended?,
        };
        Ok(info.size_bytes > 0)
    }

    /// Whether the log is empty and starts behind `offset`.
    fn starts_inside(&self, offset: i64) -> bool {
        let log_end_offset = self.log.log_end_offset();
        self.log.log_start_offset() == log_end_offset && offset < log_end_offset
    }

    /// Drop all records at and after `offset`, durably. `keep_recovery_point` as that of
    /// [`Log::truncate_to_with`](kraftlog_log::log::Log::truncate_to_with).
    pub fn truncate_as_follower(
        &self,
        offset: i64,
        leader_epoch: i32,
        now_ms: i64,
        keep_recovery_point: &mut dyn FnMut(i64) -> kraftlog_log::Result<()>,
    ) -> Result<Replicated, FollowError> {
        self.cut(leader_epoch, now_ms, |partition| {
            partition.log.truncate_to_with(offset, now_ms, keep_recovery_point).map(|_| ())
        })
    }

    /// Drop everything and begin anew at `offset`, as the leader's log starts there.
    pub fn restart_as_follower(
        &self,
        offset: i64,
        leader_epoch: i32,
        now_ms: i64,
        keep_recovery_point: &mut dyn FnMut(i64) -> kraftlog_log::Result<()>,
    ) -> Result<Replicated, FollowError> {
        let replicated = self.cut(leader_epoch, now_ms, |partition| {
            partition.log.truncate_fully_and_start_at_with(offset, now_ms, keep_recovery_point)
        })?;
        let mut state = lock(&self.state);
        if self.leader_epoch() == leader_epoch && !self.is_leader() {
            state.core.on_truncated_fully(replicated.log_end_offset);
            self.carry_out(&mut state);
        }
        Ok(self.replicated(state.core.high_watermark(), false))
    }

    fn cut(
        &self,
        leader_epoch: i32,
        now_ms: i64,
        cut: impl FnOnce(&Self) -> kraftlog_log::Result<()>,
    ) -> Result<Replicated, FollowError> {
        let mut state = lock(&self.state);
        if state.is_withdrawn || self.is_leader() || self.leader_epoch() != leader_epoch {
            return Err(FollowError::Superseded);
        }
        let mut future = lock(&self.future);
        if let Err(error) = cut(self) {
            // Perhaps half-way: a later call goes on with it.
            if let Some(future) = future.as_mut() {
                future.distrust();
            }
            drop(future);
            drop(state);
            return Err(self.follow_error(error));
        }
        if let Some(future) = future.as_mut() {
            // A failure is met again by the next part that is copied (RFET-83).
            let _ = future.cut(self.log.log_end_offset(), now_ms);
        }
        drop(future);
        state.core.on_truncated(self.log.log_end_offset());
        self.carry_out(&mut state);
        Self::tell_moved(&state);
        Ok(self.replicated(state.core.high_watermark(), false))
    }

    /// Where the log stands now.
    pub fn replicated(&self, high_watermark: i64, is_unflushed: bool) -> Replicated {
        Replicated {
            log_end_offset: self.log.log_end_offset(),
            log_start_offset: self.log.log_start_offset(),
            last_epoch: self.log.latest_epoch().unwrap_or(-1),
            high_watermark,
            is_unflushed,
        }
    }

    fn follow_error(&self, error: Error) -> FollowError {
        match self.refuse(error) {
            super::AppendError::Log(error) => FollowError::Log(error),
            super::AppendError::Refused(_) => FollowError::Superseded,
        }
    }
}

/// Make several logs durable, side by side on the threads of their directories, and wait for all of them. Failures are
/// told by the partitions themselves.
pub fn flush_all(partitions: &[Arc<Partition>]) {
    let (sender, receiver) = mpsc::channel();
    for partition in partitions {
        partition.pool().request(&Arc::new(AwaitedFlush {
            partition: Arc::clone(partition),
            round: Round::default(),
            _ended: sender.clone(),
        }));
    }
    drop(sender);
    for partition in partitions {
        partition.pool().run_if_stepped();
    }
    // Every flush that is over, or that a stopped pool has dropped, gives its sender back.
    while receiver.recv().is_ok() {}
}

/// A flush whose end somebody waits for: it has its own round, as one that began before does not cover it.
struct AwaitedFlush {
    partition: Arc<Partition>,
    round: Round,
    _ended: mpsc::Sender<()>,
}

impl Flushable for AwaitedFlush {
    fn round(&self) -> &Round {
        &self.round
    }

    fn log(&self) -> &Arc<kraftlog_log::log::Log> {
        &self.partition.log
    }

    fn flush_ended(&self, outcome: Result<i64, Error>) {
        self.partition.flush_ended(outcome);
    }

    fn flush_delayed(&self, error: &Error) -> bool {
        self.partition.flush_delayed(error)
    }
}
