//! The copy of a partition's log in another data directory, which is to take its place (KIP-113).
//!
//! The copy has its own lock, taken after that of the partition: while one part is copied nothing is cut, so that the
//! copy always is the beginning of the log.
use std::path::Path;
use std::sync::Arc;

use kraftlog_log::log::Log;
use kraftlog_log::Error;

use super::Partition;
use crate::flush::FlushPool;
use crate::sync::lock;

/// A log that is being filled.
pub(super) struct FutureLog {
    log: Arc<Log>,
    /// The log was cut to this offset, and this one could not be.
    unfinished_cut: Option<i64>,
}

/// What a part of a copy did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Offset the next record of the copy gets.
    pub future_end_offset: i64,
    /// Offset the next record of the log got before the part was copied.
    pub log_end_offset: i64,
    /// Bytes of records.
    pub size_bytes: u64,
}

/// Why a part was not copied, or the copy did not take the place of the log.
#[derive(Debug)]
pub enum CopyError {
    /// There is no copy, or the partition is gone or failed.
    Gone,
    /// The log cannot be read, or is damaged.
    Source(Error),
    /// The copy takes no writes.
    Target(Error),
}

impl FutureLog {
    pub(super) fn cut(&mut self, offset: i64, now_ms: i64) -> kraftlog_log::Result<()> {
        if self.log.log_end_offset() > offset {
            self.unfinished_cut = Some(offset);
            self.log.truncate_to(offset, now_ms)?;
        }
        self.unfinished_cut = None;
        Ok(())
    }

    /// Nobody knows how much of the copy still is the beginning of the log: the next part begins anew.
    pub(super) fn distrust(&mut self) {
        self.unfinished_cut = Some(0);
    }

    /// Copy at most `max_bytes` of `source`, but one batch at least.
    fn copy(
        &mut self,
        source: &Log,
        high_watermark: i64,
        max_bytes: u64,
        now_ms: i64,
    ) -> Result<Copied, CopyError> {
        if let Some(offset) = self.unfinished_cut {
            self.cut(offset, now_ms).map_err(CopyError::Target)?;
        }
        let (log_start_offset, log_end_offset) = (source.log_start_offset(), source.log_end_offset());
        self.cut(log_end_offset, now_ms).map_err(CopyError::Target)?;
        if self.log.log_end_offset() < log_start_offset {
            self.log.truncate_fully_and_start_at(log_start_offset, now_ms).map_err(CopyError::Target)?;
        }
        let mut size_bytes = 0;
        if self.log.log_end_offset() < log_end_offset {
            let records = match self.read(source, max_bytes) {
                // Retention or DeleteRecords took it away just now: the next part begins behind that.
                Err(Error::OffsetOutOfRange { .. }) => Vec::new(),
                read => read.map_err(CopyError::Source)?,
            };
            size_bytes = records.len() as u64;
            self.append(&records, now_ms)?;
        }
        let future_end_offset = self.log.log_end_offset();
        self.log
            .advance_log_start_offset(log_start_offset.min(future_end_offset))
            .map_err(CopyError::Target)?;
        self.log.update_high_watermark(high_watermark.min(future_end_offset));
        Ok(Copied { future_end_offset, log_end_offset, size_bytes })
    }

    fn read(&self, source: &Log, max_bytes: u64) -> kraftlog_log::Result<Vec<u8>> {
        source.read(self.log.log_end_offset(), max_bytes, i64::MAX, true)?.read()
    }

    fn append(&self, records: &[u8], now_ms: i64) -> Result<(), CopyError> {
        let append = || self.log.append_as_follower(records, i32::MAX, now_ms);
        let is_empty = self.log.log_start_offset() == self.log.log_end_offset();
        let appended = match append() {
            // The log starts within its first batch, as a follower's may (RFET-39).
            Err(Error::OffsetOutOfRange { offset, .. }) if is_empty && offset < self.log.log_end_offset() => {
                self.log.truncate_fully_and_start_at(offset, now_ms).and_then(|()| append())
            }
            other => other,
        };
        match appended {
            Ok(_) => Ok(()),
            Err(error @ Error::Corrupt { .. }) => Err(CopyError::Source(error)),
            Err(error) => Err(CopyError::Target(error)),
        }
    }
}

impl Partition {
    /// Fill `future` from now on, a log of this partition in another data directory; `None` fills none any more. The
    /// caller closes the log that was filled before.
    pub fn set_future(&self, future: Option<Arc<Log>>) {
        *lock(&self.future) = future.map(|log| FutureLog { log, unfinished_cut: None });
    }

    /// Offset the next record of the copy gets, if there is one.
    pub fn future_end_offset(&self) -> Option<i64> {
        lock(&self.future).as_ref().map(|future| future.log.log_end_offset())
    }

    /// Copy the next part, committed or not: at most `max_bytes`, but one batch at least. What is ahead of the log or
    /// before its start is dropped first.
    pub fn copy_to_future(&self, max_bytes: u64, now_ms: i64) -> Result<Copied, CopyError> {
        let mut future = lock(&self.future);
        let future = future.as_mut().ok_or(CopyError::Gone)?;
        future.copy(&self.log, self.high_watermark(), max_bytes, now_ms)
    }

    /// Copy the rest, at most `max_bytes`, and let the copy take the place of the log, whose directory is renamed to
    /// `retired`; appends wait meanwhile. False when more than that is left to be copied. Flushes run in `pool` then.
    ///
    /// # Errors
    /// The log goes on as it was, unless it is poisoned; the copy may be closed.
    pub fn replace_with_future(
        &self,
        retired: &Path,
        pool: &Arc<FlushPool>,
        max_bytes: u64,
        now_ms: i64,
    ) -> Result<bool, CopyError> {
        let copy =
            lock(&self.future).as_ref().map(|future| Arc::clone(&future.log)).ok_or(CopyError::Gone)?;
        // Most of it while appends go on.
        copy.flush().map_err(CopyError::Target)?;
        let mut state = lock(&self.state);
        let mut filled = lock(&self.future);
        let future = match filled.as_mut() {
            Some(future) if !state.is_withdrawn && !state.is_failed => future,
            _ => return Err(CopyError::Gone),
        };
        future.copy(&self.log, self.high_watermark(), max_bytes, now_ms)?;
        match self.log.relocate(&future.log, retired, self.high_watermark(), now_ms) {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(error) => {
                drop(filled);
                drop(state);
                if let Some(reason) = self.log.poisoned() {
                    self.on_log_failed(reason);
                }
                return Err(CopyError::Target(error));
            }
        }
        *filled = None;
        drop(filled);
        *lock(&self.pool) = Arc::clone(pool);
        state.core.on_flushed(self.log.recovery_point());
        self.carry_out(&mut state);
        Ok(true)
    }
}
