//! What a scan reads, and how.
use super::aborted::AbortedRanges;
use super::listing::Directory;
use super::report::Report;
use crate::columns::ColumnOptions;
use std::sync::Arc;

/// Which records of transactions are given (KIP-98).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IsolationLevel {
    /// All.
    #[default]
    ReadUncommitted,
    /// What a consumer with read_committed gets: nothing of aborted transactions, nothing from the first open one on.
    ReadCommitted,
}

/// What becomes of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCorrupt {
    /// The scan ends with [`Error::Corrupt`](crate::Error::Corrupt) after the rows before.
    #[default]
    Raise,
    /// The damaged batch is left out and reported. Where its length cannot be trusted, the scan goes on at the next
    /// batch that `.index` names, else with the next segment.
    Skip,
}

/// How to scan.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// Columns, types and bounds. Its topic, partition and offsets are replaced or narrowed by each source.
    pub columns: Arc<ColumnOptions>,
    /// Which records of transactions.
    pub isolation: IsolationLevel,
    /// What becomes of damage.
    pub on_corrupt: OnCorrupt,
    /// Map segments that are no longer written to, instead of reading them.
    pub memory_map: bool,
    /// What was not in the page cache before is not there afterwards; nothing is read ahead. Not for mapped segments.
    pub drop_behind: bool,
    /// Ask for bytes of other machines before they are wanted: not for callers that read only a few records and leaves.
    pub read_ahead: bool,
    /// Threads that decode: 1 for the one that asks for rows.
    pub threads: usize,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            columns: Arc::default(),
            isolation: IsolationLevel::default(),
            on_corrupt: OnCorrupt::default(),
            memory_map: false,
            drop_behind: false,
            read_ahead: true,
            threads: 1,
        }
    }
}

/// A partition directory, what to call it, and which offsets of it to read.
#[derive(Debug, Clone)]
pub struct ScanSource {
    /// The directory.
    pub directory: Directory,
    /// Value of the topic column.
    pub topic: Option<Arc<str>>,
    /// Value of the partition column.
    pub partition: Option<i32>,
    /// First offset, inclusive.
    pub start_offset: i64,
    /// Exclusive end.
    pub end_offset: i64,
    /// The aborted transactions, where they were looked up before and `end_offset` is no later than the last stable
    /// offset; else a scan with read_committed looks them up.
    pub aborted: Option<Arc<AbortedRanges>>,
}

impl ScanSource {
    /// All offsets of `directory`, without names.
    pub fn of_directory(directory: impl Into<Directory>) -> Self {
        Self {
            directory: directory.into(),
            topic: None,
            partition: None,
            start_offset: i64::MIN,
            end_offset: i64::MAX,
            aborted: None,
        }
    }

    /// The column options of `options` with the names and the offsets of this source.
    pub(super) fn columns(&self, options: &ScanOptions) -> ColumnOptions {
        let mut columns = options.columns.as_ref().clone();
        columns.start_offset = columns.start_offset.max(self.start_offset);
        columns.end_offset = columns.end_offset.min(self.end_offset);
        columns.topic.clone_from(&self.topic);
        columns.partition = self.partition;
        columns
    }
}

/// What the pieces of one pass have in common.
#[derive(Debug, Clone)]
pub(super) struct Pass {
    pub(super) options: Arc<ScanOptions>,
    pub(super) report: Arc<Report>,
}
