//! What a scan has read so far, for a watcher on another thread.
use crate::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most skipped ranges that are kept one by one; all are counted.
const SKIPPED_KEPT_MAX: usize = 10_000;

/// A run of bytes of a segment that was left out because it is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedRange {
    /// The segment file.
    pub path: String,
    /// First byte, inclusive.
    pub position: u64,
    /// Exclusive end.
    pub end_position: u64,
    /// Base offset that the damaged batch has in its header, -1 when it cannot be read.
    pub base_offset: i64,
    /// What is wrong.
    pub reason: String,
}

/// Counters of one pass of a scan. All threads of the pass count in the same one.
#[derive(Debug, Default)]
pub struct Report {
    bytes_read: AtomicU64,
    segments: AtomicU64,
    batches: AtomicU64,
    batches_skipped: AtomicU64,
    rows: AtomicU64,
    skipped_count: AtomicU64,
    skipped: Mutex<Vec<SkippedRange>>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportValues {
    /// Bytes of `.log` files that were read, or touched where they are mapped.
    pub bytes_read: u64,
    /// Segments that were opened.
    pub segments: u64,
    /// Batches that rows were taken from, by their records or by their header alone.
    pub batches: u64,
    /// Batches that were stepped over after a look at their header: outside the range, control batches, aborted.
    pub batches_skipped: u64,
    /// Rows given.
    pub rows: u64,
    /// Damaged ranges that were left out.
    pub skipped_count: u64,
    /// The first 10 000 of them.
    pub skipped: Vec<SkippedRange>,
}

impl Report {
    pub(super) fn add_bytes_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_segment(&self) {
        self.segments.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_batches(&self, read: u64, skipped: u64) {
        self.batches.fetch_add(read, Ordering::Relaxed);
        self.batches_skipped.fetch_add(skipped, Ordering::Relaxed);
    }

    pub(super) fn add_rows(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Notes that the bytes from where `error` is up to `end_position` are left out.
    pub(super) fn add_skipped(&self, error: Error, end_position: u64) {
        let Error::Corrupt { origin, position, base_offset, reason } = error else { return };
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        // The look for transactions and the scan meet the same damage.
        if skipped.iter().any(|known| known.position == position && known.path == origin) {
            return;
        }
        self.skipped_count.fetch_add(1, Ordering::Relaxed);
        if skipped.len() < SKIPPED_KEPT_MAX {
            skipped.push(SkippedRange { path: origin, position, end_position, base_offset, reason });
        }
    }

    /// The counters now. The ranges are in order of file and position.
    pub fn values(&self) -> ReportValues {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        skipped.sort_by(|one, other| (&one.path, one.position).cmp(&(&other.path, other.position)));
        ReportValues {
            bytes_read: get(&self.bytes_read),
            segments: get(&self.segments),
            batches: get(&self.batches),
            batches_skipped: get(&self.batches_skipped),
            rows: get(&self.rows),
            skipped_count: get(&self.skipped_count),
            skipped,
        }
    }
}
