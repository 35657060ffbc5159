//! Deleting old segments by start offset, size and time.
use std::sync::Arc;

use super::{Inner, Log};
use crate::segment::Segment;
use crate::{Error, Result};

/// Tells of a segment, and the base offset of the next one, whether the policy no longer keeps it.
type Breached<'a> = &'a mut dyn FnMut(&Inner, &Segment, Option<i64>) -> Result<bool>;

impl Log {
    /// Delete the oldest segments that the policy no longer keeps, none that reaches beyond `high_watermark`. Files
    /// are renamed to `.deleted` and removed by [`Self::remove_deleted`]. Returns their base offsets.
    pub fn delete_old_segments(&self, now_ms: i64, high_watermark: i64) -> Result<Vec<i64>> {
        let config = self.config();
        let mut inner = self.lock_inner()?;
        inner.producers.on_high_watermark(high_watermark);
        self.publish_first_unstable(&inner);
        inner.producers.remove_expired(now_ms);
        let delete = |inner: &mut Inner, breached: Breached<'_>| {
            self.delete_while(inner, now_ms, high_watermark, breached)
        };
        let mut run = || {
            let mut deleted = delete(&mut inner, &mut |inner, _, next| {
                Ok(next.is_some_and(|base_offset| base_offset <= inner.log_start_offset))
            })?;
            if !config.cleanup_policy.delete {
                return Ok(deleted);
            }
            let size: u64 = inner.segments.values().map(|segment| segment.size_bytes()).sum();
            if let Some(mut excess) =
                u64::try_from(config.retention_bytes).ok().and_then(|keep| size.checked_sub(keep))
            {
                deleted.extend(delete(&mut inner, &mut |_, segment, _| match excess
                    .checked_sub(segment.size_bytes())
                {
                    Some(rest) => {
                        excess = rest;
                        Ok(true)
                    }
                    None => Ok(false),
                })?);
            }
            if config.retention_ms >= 0 {
                deleted.extend(delete(&mut inner, &mut |_, segment, _| {
                    Ok(now_ms.saturating_sub(segment.largest_timestamp()?) > config.retention_ms)
                })?);
            }
            Ok(deleted)
        };
        run().map_err(|error: Error| self.poison_unless_refused(error))
    }

    /// Delete segments from the oldest on while `breached` holds. The last one goes only when it has records, after a
    /// new one was begun.
    fn delete_while(
        &self,
        inner: &mut Inner,
        now_ms: i64,
        high_watermark: i64,
        breached: Breached<'_>,
    ) -> Result<Vec<i64>> {
        let segments: Vec<_> = inner.segments.values().cloned().collect();
        let mut deletable: Vec<i64> = Vec::new();
        for (index, segment) in segments.iter().enumerate() {
            let next = segments.get(index + 1).map(|next| next.base_offset());
            let is_empty_last = next.is_none() && segment.size_bytes() == 0;
            let end_offset = next.unwrap_or(inner.log_end_offset);
            if is_empty_last || high_watermark < end_offset || !breached(inner, segment, next)? {
                break;
            }
            deletable.push(segment.base_offset());
        }
        let Some(last) = deletable.last().copied() else { return Ok(deletable) };
        if deletable.len() == inner.segments.len() {
            let end_offset = inner.log_end_offset;
            self.roll_at(inner, end_offset, now_ms)?;
        }
        let new_start = inner
            .segments
            .range(last.saturating_add(1)..)
            .next()
            .map_or(inner.log_end_offset, |(base, _)| *base);
        self.set_log_start_offset(inner, new_start)?;
        for base_offset in &deletable {
            self.drop_segment(inner, *base_offset, now_ms)?;
            inner.producers.remove_snapshot(*base_offset)?;
        }
        Ok(deletable)
    }

    /// Remove the files of segments that were deleted at least `file_delete_delay_ms` ago. Returns their number.
    pub fn remove_deleted(&self, now_ms: i64) -> Result<usize> {
        let mut inner = self.lock_inner()?;
        let mut removed = 0;
        let mut kept = Vec::new();
        for (due_ms, paths) in std::mem::take(&mut inner.deleted) {
            if due_ms <= now_ms {
                self.remove_files(&paths)?;
                removed += paths.len();
            } else {
                kept.push((due_ms, paths));
            }
        }
        inner.deleted = kept;
        Ok(removed)
    }

    /// The segments, oldest first, for callers that read them.
    pub fn segment_handles(&self) -> Result<Vec<Arc<Segment>>> {
        Ok(self.lock_inner()?.segments.values().cloned().collect())
    }
}
