//! Checks of log files that change nothing: every batch, every sidecar, and how they fit together.
//!
//! [`verify`] takes log directories, partition directories and single files. What it finds says where it is, what a
//! node or reader will make of it, and which steps would repair it; the steps are never taken here. Memory is one
//! record batch, the index entries of one segment and a few numbers for each segment and producer.
use crate::Result;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

mod checkpoint_file;
mod checkpoints;
mod directory;
mod indexes;
mod json;
mod listing;
mod partition;
mod plan;
mod producers;
mod segment;
mod sidecars;
pub(crate) mod walk;

pub(crate) use directory::has_log_files;
pub(crate) use listing::list;
pub use plan::{Action, Step};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is to be done.
    Note,
    /// Odd, but a node starts and readers get every record.
    Warning,
    /// Records are unreadable or lost, or a node or reader will be misled.
    Error,
}

impl Severity {
    /// `note`, `warning` or `error`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable name of the kind, such as `batch-crc`.
    pub kind: &'static str,
    /// The file, or the directory when it concerns no single file.
    pub path: PathBuf,
    /// Byte position in the file.
    pub position: Option<u64>,
    /// First offset concerned.
    pub offset: Option<i64>,
    /// Last offset concerned, inclusive, when it is a range.
    pub last_offset: Option<i64>,
    /// What is wrong, with both values where there are two.
    pub what: String,
    /// What comes of it.
    pub effect: String,
}

impl Finding {
    pub(crate) fn new(severity: Severity, kind: &'static str, path: &Path, what: impl Into<String>) -> Self {
        Self {
            severity,
            kind,
            path: path.to_owned(),
            position: None,
            offset: None,
            last_offset: None,
            what: what.into(),
            effect: String::new(),
        }
    }

    #[must_use]
    pub(crate) fn at(mut self, position: u64) -> Self {
        self.position = Some(position);
        self
    }

    #[must_use]
    pub(crate) fn offset(mut self, offset: i64) -> Self {
        self.offset = Some(offset);
        self
    }

    #[must_use]
    pub(crate) fn offsets(mut self, first: i64, last: i64) -> Self {
        self.offset = Some(first);
        self.last_offset = Some(last);
        self
    }

    #[must_use]
    pub(crate) fn effect(mut self, effect: impl Into<String>) -> Self {
        self.effect = effect.into();
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity.name(), self.kind, self.path.display())?;
        if let Some(position) = self.position {
            write!(f, " position {position}")?;
        }
        match (self.offset, self.last_offset) {
            (Some(first), Some(last)) if last > first => write!(f, " offsets {first}..={last}")?,
            (Some(offset), _) => write!(f, " offset {offset}")?,
            _ => {}
        }
        write!(f, ": {}", self.what)?;
        if !self.effect.is_empty() {
            write!(f, " ({})", self.effect)?;
        }
        Ok(())
    }
}

/// How much is checked.
#[derive(Clone, Copy, Debug)]
pub struct VerifyOptions {
    /// Decompress and decode every record, not only the frames and checksums of batches.
    pub deep: bool,
    /// Threads that read; 0 means one per processor.
    pub threads: usize,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { deep: true, threads: 0 }
    }
}

/// Looked at from another thread while the work goes on.
#[derive(Debug, Default)]
pub struct VerifyProgress {
    /// Bytes of log files that have been read.
    pub done_bytes: AtomicU64,
    /// Bytes of log files that are to be read, known after the directories were listed.
    pub total_bytes: AtomicU64,
    /// Set to end the work early; the report then says so.
    pub is_cancelled: AtomicBool,
}

impl VerifyProgress {
    pub(crate) fn advance(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// What one partition directory, or one single file, holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSummary {
    /// The directory or file.
    pub path: PathBuf,
    /// `.log` files read.
    pub segments: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Whole batches with a right checksum.
    pub batches: u64,
    /// Records of those batches; by header unless `deep`.
    pub records: u64,
    /// Base offset of the first segment, -1 without a segment.
    pub first_offset: i64,
    /// Offset after the last sound batch, `first_offset` without one.
    pub next_offset: i64,
}

/// What was found altogether.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// By path.
    pub partitions: Vec<PartitionSummary>,
    /// Worst first within each path.
    pub findings: Vec<Finding>,
    /// What would repair the errors and warnings, in order.
    pub plan: Vec<Step>,
    /// A running node holds one of the directories.
    pub is_live: bool,
    /// It ended before all was read.
    pub is_cancelled: bool,
}

impl VerifyReport {
    /// The worst severity there is.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// True when nothing worse than a warning was found.
    pub fn is_sound(&self) -> bool {
        self.worst() != Some(Severity::Error)
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> String {
        json::report(self)
    }
}

/// Checks everything under `paths`: log directories, partition directories or single files.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) when a path itself cannot be looked at. What cannot be read below it is a finding.
pub fn verify(paths: &[PathBuf], options: VerifyOptions, progress: &VerifyProgress) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let mut partitions = Vec::new();
    for path in paths {
        directory::collect(path, &mut report, &mut partitions)?;
    }
    let is_live = report.is_live;
    let total: u64 = partitions.iter().map(partition::Partition::size_bytes).sum();
    progress.total_bytes.store(total, Ordering::Relaxed);
    let mut runs = Vec::new();
    for (index, partition) in partitions.iter().enumerate() {
        runs.extend(partition.runs().into_iter().map(|run| (index, run)));
    }
    let outcomes = in_parallel(options.threads, runs, |(index, run)| {
        let outcome =
            partitions.get(index).map(|partition| partition.check_run(&run, options.deep, progress));
        outcome.map(|outcome| (index, outcome))
    });
    let mut by_partition: Vec<Vec<segment::SegmentFacts>> = partitions.iter().map(|_| Vec::new()).collect();
    for (index, facts) in outcomes.into_iter().flatten() {
        if let Some(partition) = by_partition.get_mut(index) {
            partition.extend(facts);
        }
    }
    let mut log_starts = checkpoint_file::LogStarts::default();
    for (partition, mut facts) in partitions.iter().zip(by_partition) {
        facts.sort_by_key(|facts| facts.file.base_offset);
        partition.finish(&facts, &mut log_starts, is_live, &mut report);
    }
    checkpoints::check(&mut report, &partitions);
    report.is_cancelled = progress.is_cancelled();
    report.partitions.sort_by(|a, b| a.path.cmp(&b.path));
    report.findings.sort_by(|a, b| {
        (&a.path, std::cmp::Reverse(a.severity), a.position).cmp(&(
            &b.path,
            std::cmp::Reverse(b.severity),
            b.position,
        ))
    });
    report.plan = plan::of(&report);
    Ok(report)
}

/// Runs `work` on every item, on `threads` threads; the results come in no order.
pub(crate) fn in_parallel<T: Send, R: Send>(
    threads: usize,
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { available } else { threads }.min(items.len()).max(1);
    let queue = Mutex::new(items.into_iter());
    let results = Mutex::new(Vec::new());
    let take = || queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
    let run = || {
        while let Some(item) = take() {
            let result = work(item);
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests;
