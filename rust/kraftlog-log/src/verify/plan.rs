//! What would repair what was found, in the order in which to do it.
use super::{Finding, Severity, VerifyReport};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Stop the node, as every other step needs it.
    Stop,
    /// Take the partition from another replica: delete its directory while the node is stopped.
    RestoreFromReplica,
    /// Copy what is sound with `kraftlog log salvage`.
    Salvage,
    /// Cut the file at a position; what follows in later segments goes too.
    Truncate,
    /// Remove the file: it is rebuilt, or of no use.
    Delete,
    /// Correct the file by hand.
    Edit,
    /// Start the node, which does the rest.
    Start,
}

impl Action {
    /// The name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop-node",
            Self::RestoreFromReplica => "restore-from-replica",
            Self::Salvage => "salvage",
            Self::Truncate => "truncate",
            Self::Delete => "delete",
            Self::Edit => "edit",
            Self::Start => "start-node",
        }
    }
}

/// A step of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to do.
    pub action: Action,
    /// To which file or directory; empty for the node itself.
    pub path: PathBuf,
    /// Where to cut, in bytes.
    pub position: Option<u64>,
    /// Offsets that the step loses: first, and last when it is known, both inclusive.
    pub loses: Option<(i64, Option<i64>)>,
    /// What it does for whom.
    pub why: String,
    /// Steps with the same number are alternatives, the best first.
    pub choice: Option<u32>,
}

fn step(action: Action, path: &Path, why: impl Into<String>) -> Step {
    Step { action, path: path.to_owned(), position: None, loses: None, why: why.into(), choice: None }
}

/// Kinds that mean records are unreadable where a node cuts the log.
const DAMAGE: [&str; 3] = ["batch-crc", "batch-structure", "unreadable"];
const TAILS: [&str; 2] = ["torn-tail", "zero-tail"];
/// Kinds about records that stay in the log though no consumer gets past them.
const POISON: [&str; 7] = [
    "records",
    "batch-magic",
    "offset-order",
    "offset-overflow",
    "control-record",
    "transaction",
    "segment-overlap",
];
/// Kinds about a file that the next start rebuilds if it is deleted. Kafka recovers a segment whose `.index` is
/// missing; without its `.timeindex` alone the segment gets an empty one (`LogSegment.sanityCheck`).
const REBUILT: [&str; 9] = [
    "index-size",
    "index-order",
    "index-position",
    "index-offset",
    "index-beyond-log",
    "time-index-order",
    "time-index-timestamp",
    "time-index-beyond-log",
    "transaction-index",
];

/// What becomes of the file of a finding after it was deleted, and whether its `.index` has to go with it.
fn rebuilt(finding: &Finding) -> (&'static str, bool) {
    match finding.path.extension().and_then(|extension| extension.to_str()) {
        Some("txnindex") => {
            ("rebuilt if the .index beside it is deleted too, unless the segment was compacted", true)
        }
        Some("timeindex") => ("rebuilt if the .index beside it is deleted too", true),
        _ => ("rebuilt from the log at the next start", false),
    }
}

/// What a node does without a checkpoint of the log directory.
fn without_checkpoint(path: &Path) -> &'static str {
    match path.file_name().and_then(|name| name.to_str()) {
        Some("log-start-offset-checkpoint") => {
            "a node without it serves records again that DeleteRecords removed, as far as their segments are there"
        }
        Some("replication-offset-checkpoint") => {
            "a node without it finds the high watermarks again once the replicas in sync have fetched"
        }
        Some("cleaner-offset-checkpoint") => {
            "a node without it compacts every log from its start, which takes longer and loses nothing"
        }
        _ => "a node without it recovers every log from its start, which takes longer and loses nothing",
    }
}

/// The steps for a report whose findings are complete.
pub(super) fn of(report: &VerifyReport) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut choice = 0;
    for partition in &report.partitions {
        let findings: Vec<&Finding> =
            report.findings.iter().filter(|finding| finding.path.starts_with(&partition.path)).collect();
        of_partition(&partition.path, partition.next_offset, &findings, &mut choice, &mut steps);
    }
    for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Error) {
        match finding.kind {
            "meta-properties" => {
                steps.push(step(
                    Action::Edit,
                    &finding.path,
                    "copy it from a backup, or write it with `kraftlog storage`",
                ));
            }
            "checkpoint" | "checkpoint-beyond-log" => {
                steps.push(step(Action::Delete, &finding.path, without_checkpoint(&finding.path)));
            }
            _ => {}
        }
    }
    steps.sort_by(|a, b| (a.action, &a.path).cmp(&(b.action, &b.path)));
    steps.dedup_by(|a, b| a.action == b.action && a.path == b.path);
    if !steps.is_empty() {
        let why = if report.is_live { "it holds the directory" } else { "no node may hold the directory" };
        steps.insert(0, step(Action::Stop, Path::new(""), why));
        steps.push(step(Action::Start, Path::new(""), "then run verify again"));
    }
    steps
}

fn of_partition(
    path: &Path,
    next_offset: i64,
    findings: &[&Finding],
    choice: &mut u32,
    steps: &mut Vec<Step>,
) {
    let is_error = |finding: &&&Finding| finding.severity == Severity::Error;
    // The first damage of each file: a node that recovers cuts there.
    let mut cuts: BTreeMap<&Path, (u64, Option<i64>)> = BTreeMap::new();
    for finding in findings.iter().filter(is_error) {
        if DAMAGE.contains(&finding.kind) || TAILS.contains(&finding.kind) {
            let position = finding.position.unwrap_or(0);
            let cut = cuts.entry(&finding.path).or_insert((position, finding.offset));
            if position < cut.0 {
                *cut = (position, finding.offset);
            }
        }
    }
    let is_bad = findings.iter().filter(is_error).any(|finding| {
        DAMAGE.contains(&finding.kind) || POISON.contains(&finding.kind) || finding.kind == "segment-gap"
    });
    if is_bad {
        *choice += 1;
        let mut add = |mut step: Step| {
            step.choice = Some(*choice);
            steps.push(step);
        };
        add(step(
            Action::RestoreFromReplica,
            path,
            "loses nothing when another replica is in sync: delete this directory, and the node fetches it again",
        ));
        add(step(
            Action::Salvage,
            path,
            "without a replica: `kraftlog log salvage` copies every sound batch, also behind the damage",
        ));
    }
    if let Some((file, (position, offset))) = cuts.into_iter().next() {
        let is_only_tail = !is_bad;
        let why = if is_only_tail {
            "a node does this itself when it recovers; nothing sound follows"
        } else {
            "the last resort, and what a node does itself when it recovers: later segments of the partition go too"
        };
        let loses = offset
            .map(|first| (first, (!is_only_tail).then_some(next_offset - 1).filter(|last| *last >= first)));
        let choice = is_bad.then_some(*choice);
        steps.push(Step { position: Some(position), loses, choice, ..step(Action::Truncate, file, why) });
    }
    for finding in findings {
        if finding.severity == Severity::Note {
            continue;
        }
        if REBUILT.contains(&finding.kind) {
            let (why, needs_index) = rebuilt(finding);
            steps.push(step(Action::Delete, &finding.path, why));
            if needs_index {
                steps.push(step(
                    Action::Delete,
                    &finding.path.with_extension("index"),
                    "so that the segment is recovered",
                ));
            }
        }
        match finding.kind {
            "snapshot" | "snapshot-producers" | "snapshot-beyond-log" => {
                let why = "rebuilt from an older snapshot and the log at the next start";
                steps.push(step(Action::Delete, &finding.path, why));
            }
            "epochs" if finding.severity == Severity::Error => {
                let why = "delete it together with the .index files of the partition: recovery reads the epochs from the batches";
                steps.push(step(Action::Delete, &finding.path, why));
            }
            "partition-metadata" => {
                let why = "write the topic's id, as another replica or `kafka-topics --describe` has it";
                steps.push(step(Action::Edit, &finding.path, why));
            }
            _ => {}
        }
    }
}
