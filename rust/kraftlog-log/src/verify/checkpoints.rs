//! The four checkpoint files of a log directory against the logs in it.
use super::partition::Partition;
use super::{Finding, Severity, VerifyReport};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// More lines than any directory has partitions.
const CHECKPOINT_BYTES_MAX: u64 = 256 << 20;

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

/// The log start offsets that DeleteRecords left, by directory: read once for all partitions of a log directory.
#[derive(Debug, Default)]
pub(super) struct LogStarts(BTreeMap<PathBuf, Option<BTreeMap<String, i64>>>);

impl LogStarts {
    /// What `log-start-offset-checkpoint` says of a partition's directory: 0 if it does not name the partition, None
    /// without a readable file. Kafka names only partitions whose log begins inside their first segment.
    pub(super) fn of(&mut self, partition: &Path) -> Option<i64> {
        let absolute = std::fs::canonicalize(partition).unwrap_or_else(|_| partition.to_owned());
        let (parent, name) = (absolute.parent()?, absolute.file_name()?.to_string_lossy());
        let read = |path: &Path| Some(parse(&read_text(path)?).ok()?.into_iter().collect());
        let starts = self
            .0
            .entry(parent.to_owned())
            .or_insert_with(|| read(&parent.join("log-start-offset-checkpoint")));
        starts.as_ref().map(|starts| starts.get(name.as_ref()).copied().unwrap_or(0))
    }
}

/// The text of a file of a sensible size.
fn read_text(path: &Path) -> Option<String> {
    let size = std::fs::metadata(path).ok()?.len();
    if size > CHECKPOINT_BYTES_MAX {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

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

/// Lines `topic partition offset` behind a version and a count.
fn parse(text: &str) -> Result<Vec<(String, i64)>, String> {
    if text.is_empty() {
        // A node that was killed before its first write leaves the file so.
        return Ok(Vec::new());
    }
    let mut lines = text.lines();
    match lines.next().map(str::trim) {
        Some("0") => {}
        version => return Err(format!("version {:?} is unknown", version.unwrap_or_default())),
    }
    let count: usize = lines
        .next()
        .and_then(|line| line.trim().parse().ok())
        .ok_or_else(|| "the second line is not a count".to_owned())?;
    let mut entries = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let entry = match fields.as_slice() {
            [topic, partition, offset] => partition
                .parse::<i32>()
                .ok()
                .and_then(|partition| Some((format!("{topic}-{partition}"), offset.parse::<i64>().ok()?))),
            _ => None,
        };
        entries.push(entry.ok_or_else(|| format!("line {line:?} is not topic, partition and offset"))?);
    }
    if entries.len() != count {
        return Err(format!("{count} entries announced, {} there", entries.len()));
    }
    Ok(entries)
}
