//! The four checkpoint files of a log directory against the logs in it.
use super::checkpoint_file::{parse, read_text};
use super::partition::Partition;
use super::{Finding, Severity, VerifyReport};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A file, what its offsets are, and what comes of one beyond the log's end.
const CHECKPOINTS: [(&str, &str, &str); 4] = [
    (
        "recovery-point-offset-checkpoint",
        "recovery point",
        "the log lost records that were flushed, and a node does not look for damage",
    ),
    ("log-start-offset-checkpoint", "log start offset", "the log lost all records that it should have"),
    ("replication-offset-checkpoint", "high watermark", "the log lost records that consumers have seen"),
    ("cleaner-offset-checkpoint", "cleaner offset", "the log lost records that were compacted"),
];

/// Checks the files of every log directory that the partitions lie in.
pub(super) fn check(report: &mut VerifyReport, partitions: &[Partition]) {
    let mut ends: BTreeMap<PathBuf, BTreeMap<String, (i64, i64)>> = BTreeMap::new();
    for summary in &report.partitions {
        let (Some(parent), Some(name)) = (summary.path.parent(), summary.path.file_name()) else { continue };
        if summary.path.is_dir() {
            let range = (summary.first_offset, summary.next_offset);
            let directory = ends.entry(parent.to_owned()).or_default();
            directory.insert(name.to_string_lossy().into_owned(), range);
        }
    }
    let whole: BTreeSet<PathBuf> =
        partitions.iter().filter_map(|partition| partition.path.parent().map(Path::to_owned)).collect();
    for (directory, logs) in ends {
        // One partition asked for by its own path says nothing of the others that a checkpoint names.
        let is_whole = whole.contains(&directory);
        for (name, meaning, effect) in CHECKPOINTS {
            check_file(&directory.join(name), meaning, effect, &logs, is_whole, report);
        }
    }
}

fn check_file(
    path: &Path,
    meaning: &str,
    effect: &str,
    logs: &BTreeMap<String, (i64, i64)>,
    is_whole: bool,
    report: &mut VerifyReport,
) {
    if std::fs::metadata(path).is_err() {
        return;
    }
    let entries = match read_text(path).as_deref().map(parse) {
        Some(Ok(entries)) => entries,
        outcome => {
            let what = match outcome {
                Some(Err(reason)) => reason,
                _ => "not a text file of a sensible size".to_owned(),
            };
            let finding = Finding::new(Severity::Error, "checkpoint", path, what);
            let is_read_at_start = !path.ends_with("cleaner-offset-checkpoint");
            report.findings.push(finding.effect(if is_read_at_start {
                "kraftlog does not start, Kafka may take the directory offline"
            } else {
                "kraftlog compacts from the start of each log, Kafka may take the directory offline"
            }));
            return;
        }
    };
    for (partition, offset) in entries {
        let Some((start, end)) = logs.get(&partition) else {
            let is_there = path.parent().is_some_and(|parent| parent.join(&partition).is_dir());
            if is_whole && !is_there {
                let what = format!("{meaning} of {partition}, which is not here");
                report
                    .findings
                    .push(Finding::new(Severity::Note, "checkpoint-stale", path, what).offset(offset));
            }
            continue;
        };
        if offset > *end && !report.is_live {
            let what = format!("{meaning} {offset} of {partition}, whose log ends at {end}");
            let finding = Finding::new(Severity::Error, "checkpoint-beyond-log", path, what);
            report.findings.push(finding.offset(offset).effect(effect));
        } else if offset < 0 {
            let what = format!("{meaning} {offset} of {partition}, whose log begins at {start}");
            let finding = Finding::new(Severity::Error, "checkpoint", path, what);
            report.findings.push(finding.offset(offset).effect("a node may refuse the file"));
        }
    }
}
