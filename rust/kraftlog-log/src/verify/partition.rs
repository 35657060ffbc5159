//! One partition directory: which files are read in which order, and how they fit together.
use super::checkpoint_file::LogStarts;
use super::listing::list;
use super::producers::Producers;
use super::segment::{self, SegmentFacts, Tail};
use super::sidecars::{check_sidecars, leftovers, read_snapshot_file};
use super::{Finding, PartitionSummary, Severity, VerifyProgress, VerifyReport};
use crate::scan::{list_segments, SegmentFile};
use crate::Result;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A partition directory, or one file on its own.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) path: PathBuf,
    pub(super) segments: Vec<SegmentFile>,
    /// Producer snapshots that can be read, by offset.
    snapshots: BTreeMap<i64, PathBuf>,
    names: Vec<String>,
    is_directory: bool,
}

/// Segments that are read one after the other, as the state of producers goes from each to the next.
#[derive(Debug)]
pub(super) struct Run {
    segments: Range<usize>,
    snapshot: Option<i64>,
}

impl Partition {
    /// One `.log` or `.checkpoint` file.
    pub(super) fn of_file(path: &Path, size_bytes: u64) -> Self {
        let stem =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split(['.', '-']).next());
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        let base_offset = stem.filter(|_| is_log).and_then(|stem| stem.parse().ok()).unwrap_or(0);
        Self {
            path: path.to_owned(),
            segments: vec![SegmentFile { base_offset, path: path.to_owned(), size_bytes, remote: None }],
            snapshots: BTreeMap::new(),
            names: Vec::new(),
            is_directory: false,
        }
    }

    /// A directory; files that cannot be read become findings.
    pub(super) fn of_directory(path: &Path, report: &mut VerifyReport) -> Result<Self> {
        let names = list(path)?;
        let mut snapshots = BTreeMap::new();
        for name in &names {
            let Some(offset) = name.strip_suffix(".snapshot").and_then(|stem| stem.parse().ok()) else {
                continue;
            };
            let file = path.join(name);
            match read_snapshot_file(&file) {
                Ok(_) => drop(snapshots.insert(offset, file)),
                Err(error) => {
                    let finding = Finding::new(Severity::Error, "snapshot", &file, error.to_string());
                    let effect = "a node deletes it and rebuilds the producers from an older one and the log";
                    report.findings.push(finding.offset(offset).effect(effect));
                }
            }
        }
        Ok(Self {
            path: path.to_owned(),
            segments: list_segments(path)?,
            snapshots,
            names,
            is_directory: true,
        })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size_bytes).sum()
    }

    /// Where the log begins by the names of its files; None without a segment.
    pub(super) fn log_start(&self) -> Option<i64> {
        self.segments.first().map(|segment| segment.base_offset)
    }

    /// A run begins wherever a snapshot tells the producers.
    pub(super) fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (index, segment) in self.segments.iter().enumerate() {
            let snapshot = self.snapshots.contains_key(&segment.base_offset).then_some(segment.base_offset);
            match runs.last_mut() {
                Some(run) if snapshot.is_none() => run.segments.end = index + 1,
                _ => runs.push(Run {
                    segments: index..index + 1,
                    snapshot: snapshot.filter(|offset| *offset > 0),
                }),
            }
        }
        runs
    }

    pub(super) fn check_run(&self, run: &Run, is_deep: bool, progress: &VerifyProgress) -> Vec<SegmentFacts> {
        let is_from_start = run.segments.start == 0 && self.log_start() == Some(0) && self.is_directory;
        let from_snapshot = run.snapshot.and_then(|offset| {
            let bytes = std::fs::read(self.snapshots.get(&offset)?).ok()?;
            Producers::of_snapshot(&bytes, offset).ok()
        });
        let Some(mut producers) = from_snapshot.or_else(|| Producers::empty(is_from_start).ok()) else {
            return Vec::new();
        };
        let segments = self.segments.get(run.segments.clone()).unwrap_or_default();
        segments.iter().map(|file| segment::check(file, is_deep, &mut producers, progress)).collect()
    }

    /// Adds what only shows when all segments are known.
    pub(super) fn finish(
        &self,
        facts: &[SegmentFacts],
        log_starts: &mut LogStarts,
        is_live: bool,
        report: &mut VerifyReport,
    ) {
        for (index, facts_of_one) in facts.iter().enumerate() {
            let is_active = index + 1 == facts.len() && self.is_directory;
            let tail_position = facts_of_one.damaged_at.map(|(position, _)| position);
            for finding in &facts_of_one.findings {
                let mut finding = finding.clone();
                let is_tail =
                    ["torn-tail", "zero-tail"].contains(&finding.kind) && finding.position == tail_position;
                if is_live && is_active && is_tail && facts_of_one.tail != Tail::Whole {
                    finding.severity = Severity::Note;
                    finding.effect = "the node is writing here".to_owned();
                }
                report.findings.push(finding);
            }
        }
        if self.is_directory {
            self.continuity(facts, report);
            let log_start = log_starts.of(&self.path);
            check_sidecars(&self.path, &self.snapshots, facts, log_start, is_live, report);
            leftovers(&self.path, &self.names, &self.segments, report);
        }
        report.partitions.push(PartitionSummary {
            path: self.path.clone(),
            segments: facts.len() as u64,
            bytes: self.size_bytes(),
            batches: facts.iter().map(|facts| facts.batches).sum(),
            records: facts.iter().map(|facts| facts.records).sum(),
            first_offset: facts.first().map_or(-1, |facts| facts.file.base_offset),
            next_offset: facts.iter().map(|facts| facts.next_offset).max().unwrap_or(-1),
        });
    }

    fn continuity(&self, facts: &[SegmentFacts], report: &mut VerifyReport) {
        let is_compacted = facts.iter().any(|facts| facts.is_compacted);
        for pair in facts.windows(2) {
            let [before, after] = pair else { continue };
            let (end, start) = (before.next_offset, after.file.base_offset);
            if end > start {
                let what = format!("the segment before ends at {end}, this one begins at {start}");
                let finding = Finding::new(Severity::Error, "segment-overlap", &after.file.path, what);
                report.findings.push(finding.offsets(start, end - 1).effect("offsets would be given twice"));
            } else if end < start && before.damaged_at.is_none() {
                // Compaction removes the last records of a segment too; transactions leave no holes between files.
                let severity = if is_compacted { Severity::Note } else { Severity::Error };
                let what = format!("the segment before ends at {end}, this one begins at {start}");
                let finding = Finding::new(severity, "segment-gap", &after.file.path, what);
                let effect = if is_compacted {
                    "compaction leaves such holes"
                } else {
                    "a segment is missing or cut short"
                };
                report.findings.push(finding.offsets(end, start - 1).effect(effect));
            } else if end < start {
                let what = format!("records between the damage in the segment before and {start} are lost");
                let finding = Finding::new(Severity::Error, "records-lost", &before.file.path, what);
                let effect = "a node that recovers drops the segments after the damage too";
                report.findings.push(finding.offsets(end, start - 1).effect(effect));
            }
        }
    }
}
