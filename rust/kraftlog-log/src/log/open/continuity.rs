//! What a clean stop does not vouch for: that all segments are there, and that the epochs are those of this log.
use super::Loader;
use crate::epoch_checkpoint::EpochEntry;
use crate::recovery_event::{RecoveryEvent, RecoveryKind};
use crate::segment::Segment;
use crate::{Error, Result};

/// What the two ends of a segment say.
struct Ends {
    /// Offset and leader epoch of the first batch.
    first: Option<(i64, i32)>,
    /// Offset behind the last batch, and its leader epoch.
    next_offset: i64,
    last_epoch: i32,
}

impl Loader<'_> {
    /// Compare the ends of all segments with each other and with the epochs that the checkpoint had. A few bytes of each
    /// segment are read. Returns why the checkpoint is wrong, if it is.
    pub(super) fn check_continuity(&mut self, log_end_offset: i64) -> Result<Option<String>> {
        let segments: Vec<_> = self.segments.values().cloned().collect();
        let mut wrong = None;
        for (index, segment) in segments.iter().enumerate() {
            let next = segments.get(index + 1).map(|next| next.base_offset());
            let ends = match read_ends(segment, next.is_none().then_some(log_end_offset)) {
                Ok(ends) => ends,
                Err(Error::Corrupt { position, reason, .. }) => {
                    self.note_segment(RecoveryKind::SegmentUnreadable, segment, position, -1, reason);
                    continue;
                }
                Err(error) => return Err(error),
            };
            // Only the last one is used at once.
            if let Some(next) = next {
                segment.release()?;
                self.check_next(segment, ends.next_offset, next);
            }
            wrong = wrong.or_else(|| self.wrong_epoch(&ends));
        }
        Ok(wrong)
    }

    /// Note the offsets that lie between two segments.
    fn check_next(&mut self, segment: &Segment, end: i64, next: i64) {
        if next <= self.options.log_start_offset {
            return; // all of it was deleted, and a crash may have taken some of that back
        }
        let size = segment.size_bytes();
        if end > next {
            let reason = format!("it ends at offset {end}, and the next segment begins at {next}");
            self.note_segment(RecoveryKind::SegmentUnreadable, segment, size, end, reason);
        } else if end < next && !self.config.cleanup_policy.compact {
            let reason = format!("no segment holds the offsets from {end} to {}", next - 1);
            self.note_segment(RecoveryKind::SegmentMissing, segment, size, end, reason);
        }
    }

    /// Why the epochs cannot be those of this segment.
    fn wrong_epoch(&self, ends: &Ends) -> Option<String> {
        let last = (ends.next_offset - 1, ends.last_epoch);
        let mut known = ends.first.into_iter().chain([last]);
        let (offset, epoch) = known.find(|(offset, epoch)| {
            let is_told = *epoch >= 0 && *offset >= self.options.log_start_offset;
            // What the file lacks at its end is added without a doubt about the rest.
            let is_covered = self.known_epoch.is_some_and(|latest: EpochEntry| latest.epoch >= *epoch);
            is_told && is_covered && self.epochs.epoch_for_offset(*offset) != Some(*epoch)
        })?;
        let found = self.epochs.epoch_for_offset(offset);
        let found = found.map_or("none".to_owned(), |epoch| epoch.to_string());
        Some(format!("the batch with offset {offset} is of epoch {epoch}, the file has {found}"))
    }

    fn note_segment(
        &mut self,
        kind: RecoveryKind,
        segment: &Segment,
        position: u64,
        offset: i64,
        reason: String,
    ) {
        let path = segment.path().to_owned();
        self.events.push(RecoveryEvent { kind, path, position, offset, lost_bytes: 0, reason });
    }
}

/// `end` is the end that was read before, where it was.
fn read_ends(segment: &Segment, end: Option<i64>) -> Result<Ends> {
    if segment.size_bytes() == 0 {
        let next_offset = end.unwrap_or_else(|| segment.base_offset());
        return Ok(Ends { first: None, next_offset, last_epoch: -1 });
    }
    let first = segment.scan(0)?.next_batch()?;
    let first = first.map(|batch| (batch.header().base_offset(), batch.header().partition_leader_epoch()));
    let (next_offset, last_epoch) = segment.read_end()?;
    Ok(Ends { first, next_offset, last_epoch })
}

#[cfg(test)]
mod tests;
