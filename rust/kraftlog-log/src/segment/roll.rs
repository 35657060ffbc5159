//! When a batch has to go to a new segment.
use super::{relative_offset, Segment};
use crate::Result;

/// What [`Segment::should_roll`] goes by.
#[derive(Clone, Copy, Debug)]
pub struct RollParameters {
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// Bytes about to be appended.
    pub append_bytes: u64,
    /// Largest timestamp about to be appended.
    pub max_timestamp: i64,
    /// Last offset about to be appended.
    pub last_offset: i64,
    /// Wall clock, milliseconds since the epoch.
    pub now_ms: i64,
}

impl Segment {
    /// True when a batch has to go to a new segment (`LogSegment.shouldRoll`).
    pub fn should_roll(&self, roll: &RollParameters) -> Result<bool> {
        let size = self.size_bytes();
        if size > roll.segment_bytes.saturating_sub(roll.append_bytes) {
            return Ok(true);
        }
        if relative_offset(self.base_offset, roll.last_offset).is_err() {
            return Ok(true);
        }
        if self.is_index_full()? {
            return Ok(true);
        }
        if size == 0 {
            return Ok(false);
        }
        let waited_ms = match self.first_timestamp()? {
            Some(first) if first >= 0 => roll.max_timestamp.saturating_sub(first),
            _ => roll.now_ms.saturating_sub(self.state().created_ms),
        };
        Ok(waited_ms > roll.segment_ms.saturating_sub(self.config.roll_jitter_ms))
    }

    /// Whether so many batches would go into this segment, appended one by one; `roll` is of all of them together.
    pub(crate) fn takes_all(&self, roll: &RollParameters, batches: usize) -> Result<bool> {
        // The age of an empty segment counts from its first batch on, which is among these.
        Ok(self.size_bytes() > 0 && !self.should_roll(roll)? && !self.is_index_full_after(batches)?)
    }

    fn is_index_full(&self) -> Result<bool> {
        self.is_index_full_after(0)
    }

    /// Whether an index would have no room for one more entry after one for each of so many batches.
    fn is_index_full_after(&self, batches: usize) -> Result<bool> {
        let mut state = self.state();
        let slots = |entry_bytes: u64| {
            usize::try_from(self.config.segment_index_bytes / entry_bytes).unwrap_or(usize::MAX)
        };
        // The time index keeps one entry free for the largest timestamp written when the segment is closed.
        let is_full = state.offset_index.count()? + batches >= slots(8)
            || state.time_index.count()? + batches + 1 >= slots(12);
        Ok(is_full)
    }
}
