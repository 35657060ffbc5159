//! The files of a partition directory that follow from its batches: producers, aborted transactions, epochs, id.
use super::segment::SegmentFacts;
use super::{Finding, Severity, VerifyReport};
use crate::epoch_checkpoint::{EpochCheckpoint, EpochEntry};
use crate::fs::{self, RealFileSystem};
use crate::producer_state::{read_snapshot, ProducerEntry};
use crate::scan::SegmentFile;
use crate::segment::{AbortedTransaction, TransactionIndex};
use crate::{partition_metadata, Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// More producers than a node keeps: 46 bytes each.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

pub(super) fn read_snapshot_file(path: &Path) -> Result<Vec<ProducerEntry>> {
    let size = std::fs::metadata(path).map_err(|error| Error::io("stat", path, error))?.len();
    if size > SNAPSHOT_BYTES_MAX {
        return Err(Error::Invalid(format!("producer snapshot of {size} bytes")));
    }
    read_snapshot(&std::fs::read(path).map_err(|error| Error::io("read", path, error))?)
}

pub(super) fn check_sidecars(
    directory: &Path,
    snapshots: &BTreeMap<i64, PathBuf>,
    facts: &[SegmentFacts],
    log_start: Option<i64>,
    is_live: bool,
    report: &mut VerifyReport,
) {
    for (index, segment) in facts.iter().enumerate() {
        transactions(segment, report);
        let next = facts.get(index + 1);
        let offset = next.map_or(segment.next_offset, |next| next.file.base_offset);
        if let Some(path) = snapshots.get(&offset) {
            producers(path, offset, segment, report);
        }
    }
    let end = facts.iter().map(|facts| facts.next_offset).max();
    let is_damaged = facts.iter().any(|facts| facts.damaged_at.is_some());
    for (offset, path) in snapshots {
        if end.is_some_and(|end| *offset > end) && !is_live && !is_damaged {
            let what = format!("producers at offset {offset}, but the log ends at {}", end.unwrap_or(-1));
            let finding = Finding::new(Severity::Error, "snapshot-beyond-log", path, what).offset(*offset);
            report.findings.push(finding.effect("the log lost its end, or the file belongs to another one"));
        }
    }
    epochs(directory, facts, log_start, report);
    if let Err(error) = partition_metadata::read(&RealFileSystem, directory) {
        let path = directory.join(partition_metadata::FILE_NAME);
        let finding =
            Finding::new(Severity::Error, "partition-metadata", &path, super::walk::reason_of(error));
        report.findings.push(finding.effect("a node does not load the partition"));
    }
}

/// The `.txnindex` against the transactions that the markers abort.
fn transactions(segment: &SegmentFacts, report: &mut VerifyReport) {
    let path = segment.file.sidecar("txnindex");
    let mut index = TransactionIndex::new(Arc::new(RealFileSystem), path.clone());
    let stored = match index.entries() {
        Ok(entries) => entries.clone(),
        Err(error) => {
            let finding =
                Finding::new(Severity::Error, "transaction-index", &path, super::walk::reason_of(error));
            let effect = "consumers with read_committed fail, or get aborted records";
            report.findings.push(finding.effect(effect));
            return;
        }
    };
    let same = |a: &AbortedTransaction, b: &AbortedTransaction| {
        (a.producer_id, a.last_offset) == (b.producer_id, b.last_offset)
            && (a.first_offset == b.first_offset || !segment.is_state_complete)
    };
    for expected in &segment.aborted {
        if !stored.iter().any(|entry| same(entry, expected)) {
            let what = format!(
                "no entry for the transaction of producer {} that is aborted at {}",
                expected.producer_id, expected.last_offset
            );
            let finding = Finding::new(Severity::Error, "transaction-index", &path, what);
            let finding = finding.offsets(expected.first_offset, expected.last_offset);
            report.findings.push(finding.effect("consumers with read_committed get aborted records"));
        }
    }
    // Compaction removes aborted records and in time their markers, and keeps what the index said of them.
    if segment.is_compacted || !segment.is_state_complete {
        return;
    }
    for entry in &stored {
        if !segment.aborted.iter().any(|expected| same(entry, expected)) {
            let what = format!("producer {} has no abort marker at {}", entry.producer_id, entry.last_offset);
            let finding = Finding::new(Severity::Error, "transaction-index", &path, what);
            let finding = finding.offsets(entry.first_offset, entry.last_offset);
            report.findings.push(finding.effect("consumers with read_committed miss committed records"));
        }
    }
}

/// A snapshot against the state that the segment before it ends with.
fn producers(path: &Path, offset: i64, segment: &SegmentFacts, report: &mut VerifyReport) {
    let Ok(stored) = read_snapshot_file(path) else { return };
    let Some(rebuilt) = &segment.producers else { return };
    if segment.next_offset != offset && !segment.is_compacted {
        return;
    }
    let is_certain = segment.is_state_complete && !segment.is_compacted;
    let severity = if is_certain { Severity::Error } else { Severity::Note };
    let effect = "a node that loads it refuses good produces, or takes duplicates";
    let mut add = |what: String| {
        report
            .findings
            .push(Finding::new(severity, "snapshot-producers", path, what).offset(offset).effect(effect));
    };
    let find =
        |entries: &[ProducerEntry], id: i64| entries.iter().find(|entry| entry.producer_id == id).copied();
    for entry in &stored {
        let Some(expected) = find(rebuilt, entry.producer_id) else {
            if is_certain {
                add(format!("producer {} is not in the log", entry.producer_id));
            }
            continue;
        };
        let facts = |entry: &ProducerEntry| {
            (entry.producer_epoch, entry.last_sequence(), entry.last_offset(), entry.current_txn_first_offset)
        };
        if facts(entry) != facts(&expected) {
            add(format!(
                "producer {} has (epoch, sequence, offset, transaction) {:?}, the log gives {:?}",
                entry.producer_id,
                facts(entry),
                facts(&expected)
            ));
        }
    }
    for expected in rebuilt.iter().filter(|entry| entry.current_txn_first_offset.is_some()) {
        if find(&stored, expected.producer_id).is_none() {
            add(format!("the open transaction of producer {} is missing", expected.producer_id));
        }
    }
}

/// The epochs that batches have, as they follow each other. `checkpointed_start` is the log start offset that
/// DeleteRecords left, None if it is unknown: the first epoch begins there, and those of deleted records are gone
/// (Kafka's `LeaderEpochFileCache.truncateFromStart`).
fn epochs(
    directory: &Path,
    facts: &[SegmentFacts],
    checkpointed_start: Option<i64>,
    report: &mut VerifyReport,
) {
    let path = directory.join("leader-epoch-checkpoint");
    let effect =
        "followers and consumers may be told the wrong end of an epoch, and keep or drop the wrong records";
    let known = report.findings.len();
    let mut add = |severity, offset: i64, what: String| {
        report.findings.push(Finding::new(severity, "epochs", &path, what).offset(offset).effect(effect));
    };
    let mut seen: Vec<(i32, i64)> = Vec::new();
    for (epoch, offset) in facts.iter().flat_map(|facts| facts.epochs.iter().copied()) {
        if seen.last().is_none_or(|(latest, _)| epoch > *latest) {
            seen.push((epoch, offset));
        }
    }
    let stored = match EpochCheckpoint::open(Arc::new(RealFileSystem), directory) {
        Ok(checkpoint) => checkpoint.entries().to_vec(),
        Err(error) => {
            let what = super::walk::reason_of(error);
            report.findings.push(Finding::new(Severity::Error, "epochs", &path, what).effect(effect));
            return;
        }
    };
    if stored.is_empty() {
        if let Some((epoch, offset)) = seen.first() {
            add(Severity::Warning, *offset, format!("no epochs, but batches have epoch {epoch} and later"));
        }
        return;
    }
    for pair in stored.windows(2) {
        let [before, after] = pair else { continue };
        if after.epoch <= before.epoch || after.start_offset <= before.start_offset {
            let what = format!("{} does not rise above {}", pair_text(*after), pair_text(*before));
            add(Severity::Error, after.start_offset, what);
        }
    }
    let is_compacted = facts.iter().any(|facts| facts.is_compacted);
    let first_base = facts.first().map_or(0, |facts| facts.file.base_offset);
    let log_start = checkpointed_start.map_or(first_base, |start| start.max(first_base));
    let end = facts.iter().map(|facts| facts.next_offset).max().unwrap_or(0);
    let ends = seen.iter().skip(1).map(|(_, offset)| *offset).chain([end]);
    for ((epoch, offset), epoch_end) in seen.iter().zip(ends) {
        let first = stored.first().filter(|first| first.start_offset >= epoch_end);
        match stored.iter().find(|entry| entry.epoch == *epoch) {
            None if epoch_end <= log_start => {}
            None if checkpointed_start.is_none() && first.is_some() => {
                let what = format!(
                    "epoch {epoch} of the batches from {offset} on is missing, as after DeleteRecords"
                );
                add(Severity::Note, *offset, what);
            }
            None => add(
                Severity::Error,
                *offset,
                format!("epoch {epoch} of the batches from {offset} on is missing"),
            ),
            Some(entry) if entry.start_offset > *offset && entry.start_offset > log_start => {
                // Without the checkpoint, the first epoch may begin inside a segment because of DeleteRecords.
                let is_first = stored.first().is_some_and(|first| first.epoch == *epoch);
                let severity = if is_first { Severity::Note } else { Severity::Error };
                add(severity, *offset, format!("{}, but its batches begin at {offset}", pair_text(*entry)));
            }
            Some(entry)
                if entry.start_offset < *offset && entry.start_offset >= log_start && !is_compacted =>
            {
                add(
                    Severity::Warning,
                    *offset,
                    format!("{}, but its batches begin at {offset}", pair_text(*entry)),
                );
            }
            Some(_) => {}
        }
    }
    // One wrong entry would otherwise be told again by each batch that it covers.
    if !report.findings.iter().skip(known).any(|finding| finding.severity != Severity::Note) {
        contradictions(&path, facts, &stored, log_start, effect, report);
    }
    let mut add = |severity, offset: i64, what: String| {
        report.findings.push(Finding::new(severity, "epochs", &path, what).offset(offset).effect(effect));
    };
    let is_damaged = facts.iter().any(|facts| facts.damaged_at.is_some());
    if let Some(last) = stored.last().filter(|last| last.start_offset > end && !is_damaged) {
        add(Severity::Error, last.start_offset, format!("{}, but the log ends at {end}", pair_text(*last)));
    }
}

/// Batches whose header has another epoch than the file has for their offsets. The checksum of a batch does not cover
/// its epoch, and inside a segment no start of a node compares the two.
fn contradictions(
    path: &Path,
    facts: &[SegmentFacts],
    stored: &[EpochEntry],
    log_start: i64,
    effect: &str,
    report: &mut VerifyReport,
) {
    let told_at = |offset: i64| stored.iter().rev().find(|entry| entry.start_offset <= offset);
    for run in facts.iter().flat_map(|facts| &facts.epoch_runs) {
        let mut offsets =
            [run.first_offset, run.last_offset].into_iter().filter(|offset| *offset >= log_start);
        let wrong = offsets.find_map(|offset| {
            told_at(offset).filter(|entry| entry.epoch != run.epoch).map(|entry| (offset, entry))
        });
        let Some((offset, entry)) = wrong else { continue };
        // Releases before 0.11 did not give every batch an epoch.
        let (severity, what) = match run.epoch < 0 {
            true => (Severity::Warning, "no leader epoch".to_owned()),
            false => (Severity::Error, format!("leader epoch {}", run.epoch)),
        };
        let what = format!("{}, but the batch at {offset} has {what}", pair_text(*entry));
        report.findings.push(Finding::new(severity, "epochs", path, what).offset(offset).effect(effect));
    }
}

fn pair_text(entry: EpochEntry) -> String {
    format!("epoch {} from {} on", entry.epoch, entry.start_offset)
}

/// Files that a deletion or compaction left behind, and files without their segment.
pub(super) fn leftovers(
    directory: &Path,
    names: &[String],
    segments: &[SegmentFile],
    report: &mut VerifyReport,
) {
    const KNOWN: [&str; 4] = ["leader-epoch-checkpoint", "partition.metadata", "quorum-state", ".lock"];
    let is_segment =
        |stem: &str| stem.parse().is_ok_and(|base: i64| segments.iter().any(|s| s.base_offset == base));
    for name in names {
        let path = directory.join(name);
        let (severity, kind, what, effect) = match name.rsplit_once('.') {
            Some((_, "deleted")) => {
                (Severity::Warning, "leftover", "waits to be deleted", "a node removes it at its start")
            }
            Some((_, "cleaned")) => (
                Severity::Warning,
                "leftover",
                "a compaction that did not end",
                "a node removes it at its start",
            ),
            Some((_, "swap")) => {
                let effect = "a node puts it in place of what it replaces at its start";
                (
                    Severity::Warning,
                    "leftover",
                    "a compaction or recovery stopped before its last step",
                    effect,
                )
            }
            Some((_, "tmp")) => {
                (Severity::Warning, "leftover", "a file that was being written", "nothing reads it")
            }
            Some((stem, "index" | "timeindex" | "txnindex")) if !is_segment(stem) => {
                (Severity::Warning, "orphan", "its .log is not there", "a node removes it at its start")
            }
            Some((_, "log" | "index" | "timeindex" | "txnindex" | "snapshot" | "checkpoint")) => continue,
            _ if KNOWN.contains(&name.as_str()) => continue,
            _ => (Severity::Note, "unknown-file", "not a file of a log", ""),
        };
        report.findings.push(Finding::new(severity, kind, &path, what).effect(effect));
    }
    for segment in segments {
        if std::fs::metadata(&segment.path).is_ok_and(|metadata| metadata.is_dir()) {
            let finding =
                Finding::new(Severity::Error, "unreadable", &segment.path, "a directory, not a file");
            report.findings.push(finding);
        }
    }
    let bad_names = names.iter().filter(|name| {
        name.strip_suffix(".log")
            .is_some_and(|stem| stem.len() != 20 || !stem.bytes().all(|byte| byte.is_ascii_digit()))
    });
    for name in bad_names {
        let what = "not named as a segment: 20 digits and .log";
        let finding = Finding::new(Severity::Error, "segment-name", &directory.join(name), what);
        report.findings.push(finding.effect("a node does not load it, or does not start"));
    }
    if let Ok(Some(bytes)) = fs::read_file(&RealFileSystem, &directory.join("quorum-state")) {
        let text = String::from_utf8_lossy(&bytes);
        if !(text.trim_start().starts_with('{') && text.trim_end().ends_with('}')) {
            let path = directory.join("quorum-state");
            let finding = Finding::new(Severity::Error, "quorum-state", &path, "not a JSON object");
            report.findings.push(finding.effect("the node loses its vote, or does not start"));
        }
    }
}
