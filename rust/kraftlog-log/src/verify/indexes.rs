//! `.index` and `.timeindex` of a segment, held against the batches as they are read.
use super::{Finding, Severity};
use crate::batch::BatchView;
use crate::scan::SegmentFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OFFSET_ENTRY: usize = 8;
const TIME_ENTRY: usize = 12;
/// More than any node writes: `segment.index.bytes` is 10 MiB by default and kept below 2 GiB.
const INDEX_BYTES_MAX: u64 = 256 << 20;
/// Wrong entries of one index that are listed.
const LISTED_MAX: usize = 20;

/// What comes of a wrong or missing index, and what mends it.
#[derive(Clone, Copy, Debug)]
struct Effects {
    wrong: &'static str,
    missing: &'static str,
}

const OFFSET_EFFECTS: Effects = Effects {
    wrong: "reads go astray until it is deleted: a node rebuilds it at its next start",
    missing: "a node builds it from the log at its next start",
};
/// Kafka gives a segment without `.timeindex` an empty one; only without `.index` it recovers the segment.
const TIME_EFFECTS: Effects = Effects {
    wrong: "timestamps are looked up wrongly until it and the .index are deleted: a node rebuilds both at its next start",
    missing: "kraftlog builds it at its next start; Kafka does so only if the .index is deleted too, and until then \
              looks up timestamps by the time of the file",
};

/// Both indexes while the batches of their segment go by.
#[derive(Debug)]
pub(crate) struct IndexCheck {
    base_offset: i64,
    offsets: Entries<OFFSET_ENTRY>,
    times: Entries<TIME_ENTRY>,
    /// The next entry of each to be held against a batch.
    next_offset_entry: usize,
    next_time_entry: usize,
    max_timestamp: i64,
    findings: Vec<Finding>,
}

/// The entries of a file, without the zeros behind them.
#[derive(Debug)]
struct Entries<const N: usize> {
    path: PathBuf,
    bytes: Arc<[u8]>,
    count: usize,
    effects: Effects,
    findings: Vec<Finding>,
}

impl<const N: usize> Entries<N> {
    fn open(path: PathBuf, what: &str, effects: Effects) -> Self {
        let mut findings = Vec::new();
        let read = match std::fs::metadata(&path) {
            Ok(metadata) if metadata.len() > INDEX_BYTES_MAX => {
                let what = format!("{} bytes, more than any node writes", metadata.len());
                findings.push(Finding::new(Severity::Error, "index-size", &path, what).effect(effects.wrong));
                Ok(Vec::new())
            }
            _ => std::fs::read(&path),
        };
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let finding = Finding::new(Severity::Warning, "index-missing", &path, format!("no {what}"));
                findings.push(finding.effect(effects.missing));
                Vec::new()
            }
            Err(error) => {
                findings.push(Finding::new(Severity::Error, "unreadable", &path, error.to_string()));
                Vec::new()
            }
        };
        let slots = bytes.len() / N;
        if slots * N != bytes.len() {
            let what = format!("{} bytes are no multiple of {N}", bytes.len());
            findings.push(Finding::new(Severity::Error, "index-size", &path, what).effect(effects.wrong));
        }
        let is_zero = |entry: &[u8]| entry.iter().all(|byte| *byte == 0);
        let used = bytes.chunks_exact(N).rposition(|entry| !is_zero(entry)).map_or(0, |last| last + 1);
        Self { path, bytes: bytes.into(), count: used, effects, findings }
    }

    fn entry(&self, index: usize) -> Option<[u8; N]> {
        if index >= self.count {
            return None;
        }
        self.bytes.get(index * N..)?.first_chunk().copied()
    }

    fn add(&mut self, finding: Finding) {
        if self.findings.len() < LISTED_MAX {
            self.findings.push(finding.effect(self.effects.wrong));
        }
    }

    fn error(&mut self, kind: &'static str, index: usize, offset: i64, what: String) {
        let finding = Finding::new(Severity::Error, kind, &self.path, what);
        self.add(finding.at((index * N) as u64).offset(offset));
    }
}

fn offset_entry(entry: [u8; OFFSET_ENTRY], base_offset: i64) -> (i64, u64) {
    let [a, b, c, d, e, f, g, h] = entry;
    let offset = base_offset.saturating_add(i64::from(u32::from_be_bytes([a, b, c, d])));
    (offset, u64::from(u32::from_be_bytes([e, f, g, h])))
}

fn time_entry(entry: [u8; TIME_ENTRY], base_offset: i64) -> (i64, i64) {
    let [t0, t1, t2, t3, t4, t5, t6, t7, a, b, c, d] = entry;
    let offset = base_offset.saturating_add(i64::from(u32::from_be_bytes([a, b, c, d])));
    (i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]), offset)
}

impl IndexCheck {
    /// The index files beside a segment, checked by themselves.
    pub(crate) fn open(file: &SegmentFile) -> Self {
        let mut offsets = Entries::open(file.sidecar("index"), "offset index", OFFSET_EFFECTS);
        let mut times = Entries::open(file.sidecar("timeindex"), "time index", TIME_EFFECTS);
        if !has_name_of_segment(&file.path) {
            offsets.findings.clear();
            times.findings.clear();
        }
        let mut check = Self {
            base_offset: file.base_offset,
            offsets,
            times,
            next_offset_entry: 0,
            next_time_entry: 0,
            max_timestamp: i64::MIN,
            findings: Vec::new(),
        };
        check.order();
        check
    }

    fn order(&mut self) {
        let base = self.base_offset;
        for index in 1..self.offsets.count {
            let pair = (self.offsets.entry(index - 1), self.offsets.entry(index));
            let (Some(before), Some(entry)) = pair else { break };
            let (before, entry) = (offset_entry(before, base), offset_entry(entry, base));
            if entry.0 <= before.0 || entry.1 <= before.1 {
                let what = format!("entry {entry:?} (offset, position) does not rise above {before:?}");
                self.offsets.error("index-order", index, entry.0, what);
            }
        }
        for index in 1..self.times.count {
            let pair = (self.times.entry(index - 1), self.times.entry(index));
            let (Some(before), Some(entry)) = pair else { break };
            let (before, entry) = (time_entry(before, base), time_entry(entry, base));
            if entry.0 <= before.0 || entry.1 < before.1 {
                let what = format!("entry {entry:?} (timestamp, offset) does not rise above {before:?}");
                self.times.error("time-index-order", index, entry.1, what);
            }
        }
    }

    /// Holds the entries up to a batch against it.
    pub(crate) fn batch(&mut self, position: u64, batch: &BatchView<'_>) {
        let base = self.base_offset;
        while let Some(entry) = self.offsets.entry(self.next_offset_entry) {
            let (offset, at) = offset_entry(entry, base);
            if at > position {
                break;
            }
            if at < position {
                let what = format!("position {at} of offset {offset} is not the start of a batch");
                self.offsets.error("index-position", self.next_offset_entry, offset, what);
            } else if offset < batch.base_offset() {
                let what = format!(
                    "offset {offset} at position {at}, where the batch begins at {}",
                    batch.base_offset()
                );
                self.offsets.error("index-offset", self.next_offset_entry, offset, what);
            }
            self.next_offset_entry += 1;
        }
        while let Some(entry) = self.times.entry(self.next_time_entry) {
            let (timestamp, offset) = time_entry(entry, base);
            if offset >= batch.base_offset() {
                break;
            }
            self.passed(timestamp, offset);
        }
        self.max_timestamp = self.max_timestamp.max(batch.max_timestamp());
        while let Some(entry) = self.times.entry(self.next_time_entry) {
            let (timestamp, offset) = time_entry(entry, base);
            if offset > batch.last_offset() {
                break;
            }
            self.passed(timestamp, offset);
        }
    }

    /// The batch of a time entry's offset went by, or offsets beyond it.
    fn passed(&mut self, timestamp: i64, offset: i64) {
        let index = self.next_time_entry;
        self.next_time_entry += 1;
        if self.max_timestamp > timestamp {
            let what =
                format!("timestamp {timestamp} for offset {offset}, but {} comes before", self.max_timestamp);
            self.times.error("time-index-timestamp", index, offset, what);
        } else if self.max_timestamp < timestamp {
            let what = format!(
                "timestamp {timestamp} for offset {offset}, but up to there it is {}",
                self.max_timestamp
            );
            let finding = Finding::new(Severity::Warning, "time-index-timestamp", &self.times.path, what);
            self.times.add(finding.at((index * TIME_ENTRY) as u64).offset(offset));
        }
    }

    /// All that was found, after the last batch. Entries beyond damage say nothing more than the damage.
    pub(crate) fn finish(mut self, file: &SegmentFile, is_whole: bool) -> Vec<Finding> {
        let base = self.base_offset;
        if let Some(entry) = self.offsets.entry(self.next_offset_entry).filter(|_| is_whole) {
            let (offset, at) = offset_entry(entry, base);
            let what = format!(
                "position {at} of offset {offset} lies behind the last batch of {}",
                name(&file.path)
            );
            self.offsets.error("index-beyond-log", self.next_offset_entry, offset, what);
        }
        if let Some(entry) = self.times.entry(self.next_time_entry).filter(|_| is_whole) {
            let (timestamp, offset) = time_entry(entry, base);
            let what = format!(
                "offset {offset} of timestamp {timestamp} lies behind the last batch of {}",
                name(&file.path)
            );
            self.times.error("time-index-beyond-log", self.next_time_entry, offset, what);
        }
        self.findings.append(&mut self.offsets.findings);
        self.findings.append(&mut self.times.findings);
        self.findings
    }
}

fn name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn has_name_of_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}
