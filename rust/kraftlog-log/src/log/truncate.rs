//! Moving the ends of a log: truncation, and a new log start offset.
use std::sync::Arc;

use super::{lock, Inner, Log};
use crate::segment::Segment;
use crate::{Error, Result};

/// What is left to do of a truncation. Each step can be done again when it failed half-way for want of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unfinished {
    /// Cut the segments at `offset`.
    Cut { offset: i64, now_ms: i64 },
    /// The segments end at `end_offset`: producers and epochs follow.
    Settle { end_offset: i64, now_ms: i64 },
    /// Drop everything and begin anew at `offset`.
    Restart { offset: i64, now_ms: i64 },
}

impl Log {
    /// [`Self::truncate_to_with`] for a log whose recovery point nobody keeps.
    pub fn truncate_to(&self, offset: i64, now_ms: i64) -> Result<bool> {
        self.truncate_to_with(offset, now_ms, &mut |_| Ok(()))
    }

    /// Drop all records at and after `offset`, durably; a batch that holds `offset` in its middle goes as a whole, and
    /// the log end offset is then before `offset`. Returns false when there was nothing to drop.
    ///
    /// `keep_recovery_point` is told the recovery point to write where a restart finds it, before anything is cut and
    /// while no flush raises it again: a crash must not leave a checkpoint that vouches for offsets whose bytes are
    /// written anew. When it fails nothing is cut.
    ///
    /// # Errors
    /// An I/O error poisons the log, unless no descriptor was left to open a file: then a later call of this log goes
    /// on where this one ended, before it does anything else.
    pub fn truncate_to_with(
        &self,
        offset: i64,
        now_ms: i64,
        keep_recovery_point: &mut dyn FnMut(i64) -> Result<()>,
    ) -> Result<bool> {
        if offset < 0 {
            return Err(Error::Invalid(format!("cannot truncate to the negative offset {offset}")));
        }
        let _flushing = lock(&self.flushing);
        if offset < self.lock_inner()?.log_end_offset {
            self.lower_recovery_point(offset, keep_recovery_point)?;
        }
        let mut inner = self.lock_inner()?;
        inner.truncations += 1;
        if offset >= inner.log_end_offset {
            // An epoch may have been begun here without a record; the next leader says otherwise.
            let end_offset = inner.log_end_offset;
            inner.epochs.truncate_from_end(end_offset);
            inner.epochs.flush().map_err(|error| self.poison_unless_refused(error))?;
            return Ok(false);
        }
        let is_before = |base_offset: &i64| *base_offset > offset;
        inner.unfinished = match inner.segments.keys().next().is_none_or(is_before) {
            true => Some(Unfinished::Restart { offset, now_ms }),
            false => Some(Unfinished::Cut { offset, now_ms }),
        };
        self.finish_truncation(&mut inner)?;
        Ok(true)
    }

    /// Carry out what is left of a truncation.
    pub(super) fn finish_truncation(&self, inner: &mut Inner) -> Result<()> {
        while let Some(step) = inner.unfinished {
            let done = match step {
                Unfinished::Cut { offset, now_ms } => self
                    .cut_at(inner, offset, now_ms)
                    .map(|end_offset| Some(Unfinished::Settle { end_offset, now_ms })),
                Unfinished::Settle { end_offset, now_ms } => {
                    self.settle_at(inner, end_offset, now_ms).map(|()| None)
                }
                Unfinished::Restart { offset, now_ms } => {
                    self.restart_at(inner, offset, now_ms).map(|()| None)
                }
            };
            inner.unfinished = done.map_err(|error| self.poison_unless_refused(error))?;
        }
        Ok(())
    }

    /// Drop the segments behind `offset` and cut the one that holds it. Returns the new end, exclusive.
    fn cut_at(&self, inner: &mut Inner, offset: i64, now_ms: i64) -> Result<i64> {
        // From the end on, each for good before the next, so that a crash in between leaves no hole: behind a hole
        // the dropped records would be taken for what compaction left.
        for base_offset in inner.segments.range(offset..).rev().map(|(base, _)| *base).collect::<Vec<_>>() {
            if base_offset > offset {
                self.drop_segment(inner, base_offset, now_ms)?;
                self.sync_directory(&self.path())?;
            }
        }
        // A snapshot that came back would tell of producers that the log has nothing of.
        inner.producers.remove_snapshots_after(offset)?;
        // Or a crash could bring the dropped records back behind what is appended now. The later segments have to be
        // gone for good before the one they follow is cut.
        self.sync_directory(&self.path())?;
        inner.active()?.truncate_to(offset, now_ms)
    }

    /// Make the cut at `end_offset` durable and take it over.
    fn settle_at(&self, inner: &mut Inner, end_offset: i64, now_ms: i64) -> Result<()> {
        inner.active()?.sync_log()?;
        inner.log_end_offset = end_offset;
        inner.recovery_point = inner.recovery_point.min(end_offset);
        inner.log_start_offset = inner.log_start_offset.min(end_offset);
        inner.epochs.truncate_from_end(end_offset);
        inner.epochs.flush()?;
        self.rebuild_producers(inner, end_offset, false, now_ms)?;
        self.publish(inner);
        Ok(())
    }

    /// The recovery point is at most `offset` from here on, also in the checkpoint. The caller holds off flushes.
    fn lower_recovery_point(
        &self,
        offset: i64,
        keep_recovery_point: &mut dyn FnMut(i64) -> Result<()>,
    ) -> Result<()> {
        let recovery_point = {
            let mut inner = self.lock_inner()?;
            // A batch that reaches beyond `offset` goes as a whole: trust nothing from its beginning on.
            let mut kept = inner.recovery_point;
            if kept > offset {
                let segment = inner.segments.range(..=offset).next_back().map(|(_, one)| Arc::clone(one));
                let batch = segment.map_or(Ok(None), |segment| segment.find_batch(offset))?;
                kept = batch.map_or(offset, |batch| batch.header().base_offset().min(offset));
            }
            inner.recovery_point = kept;
            kept
        };
        keep_recovery_point(recovery_point)
    }

    /// [`Self::truncate_fully_and_start_at_with`] for a log whose recovery point nobody keeps.
    pub fn truncate_fully_and_start_at(&self, offset: i64, now_ms: i64) -> Result<()> {
        self.truncate_fully_and_start_at_with(offset, now_ms, &mut |_| Ok(()))
    }

    /// Drop everything and begin anew at `offset`, as a follower does whose leader's log starts later.
    /// `keep_recovery_point` as in [`Self::truncate_to_with`]: it is told the first offset of the log, as everything is
    /// written anew.
    pub fn truncate_fully_and_start_at_with(
        &self,
        offset: i64,
        now_ms: i64,
        keep_recovery_point: &mut dyn FnMut(i64) -> Result<()>,
    ) -> Result<()> {
        let _flushing = lock(&self.flushing);
        let first =
            self.lock_inner()?.segments.first_key_value().map_or(offset, |(base_offset, _)| *base_offset);
        self.lower_recovery_point(first.min(offset), keep_recovery_point)?;
        let mut inner = self.lock_inner()?;
        inner.truncations += 1;
        inner.unfinished = Some(Unfinished::Restart { offset, now_ms });
        self.finish_truncation(&mut inner)
    }

    fn restart_at(&self, inner: &mut Inner, offset: i64, now_ms: i64) -> Result<()> {
        for base_offset in inner.segments.keys().rev().copied().collect::<Vec<_>>() {
            self.drop_segment(inner, base_offset, now_ms)?;
        }
        inner.producers.truncate_fully_and_start_at(offset)?;
        // Or a crash could leave old segments before the new one, with a hole between them.
        self.sync_directory(&self.path())?;
        let path = self.path();
        let config = self.config().segment_config(&path, offset);
        let segment = Segment::create(&self.fs, &path, offset, config, now_ms)?;
        inner.segments.insert(offset, Arc::new(segment));
        self.sync_directory(&self.path())?;
        if let (true, Some(parent)) = (inner.is_directory_new, path.parent()) {
            self.sync_directory(parent)?;
            inner.is_directory_new = false;
        }
        inner.log_start_offset = offset;
        inner.log_end_offset = offset;
        inner.recovery_point = inner.recovery_point.min(offset);
        inner.epochs.clear();
        inner.epochs.flush()?;
        self.publish(inner);
        Ok(())
    }

    /// Take a segment out of the log and rename its files; they are removed later.
    pub(super) fn drop_segment(&self, inner: &mut Inner, base_offset: i64, now_ms: i64) -> Result<()> {
        if let Some(segment) = inner.segments.remove(&base_offset) {
            let renamed = segment.mark_deleted()?;
            inner.deleted.push((now_ms.saturating_add(self.config().file_delete_delay_ms), renamed));
            inner.is_directory_dirty = true;
        }
        Ok(())
    }

    /// Let the log start at `offset` (DeleteRecords); segments wholly before it go with the next retention run.
    /// Returns false when it starts there or later already.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] beyond the log end offset; the caller, which has the high watermark, checks that first.
    pub fn advance_log_start_offset(&self, offset: i64) -> Result<bool> {
        let mut inner = self.lock_inner()?;
        if offset > inner.log_end_offset {
            return Err(Error::OffsetOutOfRange {
                origin: self.origin(),
                offset,
                log_start_offset: inner.log_start_offset,
                log_end_offset: inner.log_end_offset,
            });
        }
        self.set_log_start_offset(&mut inner, offset).map_err(|error| self.poison_unless_refused(error))
    }

    pub(super) fn set_log_start_offset(&self, inner: &mut Inner, offset: i64) -> Result<bool> {
        if offset <= inner.log_start_offset {
            return Ok(false);
        }
        inner.epochs.truncate_from_start(offset);
        inner.epochs.flush()?;
        inner.log_start_offset = offset;
        inner.producers.on_log_start_offset(offset);
        self.publish(inner);
        Ok(true)
    }
}
