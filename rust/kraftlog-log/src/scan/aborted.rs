//! Offsets of aborted transactions by producer.
use crate::batch::BatchHeader;
use crate::segment::AbortedTransaction;
use std::collections::HashMap;

/// Which records a consumer with read_committed does not get because their transaction was aborted.
#[derive(Debug, Clone, Default)]
pub struct AbortedRanges(HashMap<i64, Vec<(i64, i64)>>);

impl AbortedRanges {
    /// Of these transactions.
    pub fn new(aborted: &[AbortedTransaction]) -> Self {
        let mut ranges: HashMap<i64, Vec<(i64, i64)>> = HashMap::new();
        for one in aborted {
            ranges.entry(one.producer_id).or_default().push((one.first_offset, one.last_offset));
        }
        for ranges in ranges.values_mut() {
            ranges.sort_by_key(|&(_, last)| last);
        }
        Self(ranges)
    }

    /// True when the records of the batch are of an aborted transaction.
    pub fn contain(&self, batch: &BatchHeader<'_>) -> bool {
        if self.0.is_empty() || !batch.is_transactional() || batch.is_control() {
            return false;
        }
        let offset = batch.base_offset();
        let ranges = self.0.get(&batch.producer_id()).map(Vec::as_slice).unwrap_or_default();
        // A producer has one transaction at a time: its ranges do not overlap.
        let after = ranges.partition_point(|&(_, last)| last < offset);
        ranges.get(after).is_some_and(|&(first, _)| first <= offset)
    }
}
