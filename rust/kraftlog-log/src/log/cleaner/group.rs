//! Which segments become one (Kafka's `Cleaner.groupSegmentsBySize`).
use std::sync::Arc;

use crate::segment::Segment;
use crate::Result;

/// Sizes that a group must not pass, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) segment_bytes: u64,
    pub(super) index_bytes: u64,
}

/// What is known of a segment before it is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) base_offset: i64,
    pub(super) log_bytes: u64,
    pub(super) offset_index_bytes: u64,
    pub(super) time_index_bytes: u64,
}

impl Sizes {
    pub(super) fn of(segment: &Arc<Segment>) -> Result<Self> {
        let (offset_entries, time_entries) = segment.index_entry_counts()?;
        Ok(Self {
            base_offset: segment.base_offset(),
            log_bytes: segment.size_bytes(),
            offset_index_bytes: offset_entries as u64 * 8,
            time_index_bytes: time_entries as u64 * 12,
        })
    }
}

/// How many segments each group has, in order. `end_offset` is the exclusive end of the last one.
pub(super) fn group(segments: &[Sizes], limits: Limits, end_offset: i64) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut rest = segments;
    while let Some((first, mut after)) = rest.split_first() {
        let mut total = *first;
        let mut count = 1;
        while let Some((next, later)) = after.split_first() {
            let next_end = later.first().map_or(end_offset, |segment| segment.base_offset);
            // A segment without batches takes no offsets of the index, so that its range does not matter.
            let fits_range = next.log_bytes == 0 || next_end - 1 - first.base_offset <= i64::from(i32::MAX);
            if total.log_bytes + next.log_bytes > limits.segment_bytes
                || total.offset_index_bytes + next.offset_index_bytes > limits.index_bytes
                || total.time_index_bytes + next.time_index_bytes > limits.index_bytes
                || !fits_range
            {
                break;
            }
            total.log_bytes += next.log_bytes;
            total.offset_index_bytes += next.offset_index_bytes;
            total.time_index_bytes += next.time_index_bytes;
            count += 1;
            after = later;
        }
        counts.push(count);
        rest = after;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { segment_bytes: 100, index_bytes: 48 };

    fn sizes(base_offset: i64, log_bytes: u64, entries: u64) -> Sizes {
        let (offset_index_bytes, time_index_bytes) = (entries * 8, entries * 12);
        Sizes { base_offset, log_bytes, offset_index_bytes, time_index_bytes }
    }

    #[test]
    fn each_limit_ends_a_group() {
        let wide = i64::from(i32::MAX);
        let cases: [(&[Sizes], &[usize]); 7] = [
            (&[], &[]),
            (&[sizes(0, 500, 0)], &[1]),
            (&[sizes(0, 50, 0), sizes(5, 50, 0), sizes(9, 1, 0)], &[2, 1]),
            (&[sizes(0, 1, 2), sizes(5, 1, 2), sizes(9, 1, 1)], &[2, 1]),
            (&[sizes(0, 1, 0), sizes(5, 1, 0), sizes(wide, 1, 0)], &[2, 1]),
            (&[sizes(0, 1, 0), sizes(5, 0, 0), sizes(wide, 0, 0)], &[3]),
            (&[sizes(0, 60, 0), sizes(5, 60, 0), sizes(9, 40, 0)], &[1, 2]),
        ];
        for (segments, expected) in cases {
            let end_offset = segments.last().map_or(0, |last| last.base_offset + 100);
            assert_eq!(group(segments, LIMITS, end_offset), expected, "{segments:?}");
        }
    }
}
