//! Read-only scans of log directories: segments found, ranges cut with the indexes, batches to Arrow.
//!
//! No lock is taken and nothing is mapped: every chunk is read by position into memory of our own, so a
//! file that a running node truncates or deletes can end a scan with an error, never with a signal. The
//! memory of a scan is one chunk, or one record batch where that is larger, and the Arrow batch in the making.
//! A [`RemoteDirectory`] is read in windows that a [`RangeReader`] fetches: some more memory, the same rows.
mod aborted;
mod batch_columns;
mod batch_rows;
mod checked;
mod chunks;
mod dump;
mod json;
mod listing;
mod lookup;
mod options;
mod parallel;
mod partition;
mod pieces;
mod position;
mod read_once;
mod remote;
mod report;
mod resync;
mod segments;
mod split;
mod stream;
mod text;
mod transactions;

pub use aborted::AbortedRanges;
pub use batch_columns::{BatchColumn, BatchColumns};
pub use batch_rows::{BatchRows, BatchRowsOptions};
pub use chunks::{Chunks, FoundBatch, HeaderAhead, CHUNK_SIZE};
pub use dump::{Describe, DumpFormat, DumpOptions, FileDump, Plain};
pub use listing::{list_segments, log_end_offset, partition_of, Directory};
pub use lookup::offset_for_timestamp;
pub use options::{IsolationLevel, OnCorrupt, ScanOptions, ScanSource};
pub use partition::PartitionScan;
pub use remote::{
    ObjectKind, PendingRead, PositionHint, RangeReader, ReadFailure, RemoteDirectory, RemoteObject,
    WINDOWS_AHEAD,
};
pub use report::{Report, ReportValues, SkippedRange};
pub use segments::SegmentFile;
pub use split::{plan_splits, Split};
pub use stream::Scan;
pub use transactions::Transactions;
