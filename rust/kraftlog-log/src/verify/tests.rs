//! Reports over files written by the engine, and then damaged.
use super::*;
use crate::builder::{BatchBuilder, BatchOptions};
use crate::fs::{FileSystem, RealFileSystem};
use crate::log::{Log, LogConfig, OpenOptions};
use crate::producer_state::Origin;
use std::fs;
use std::sync::Arc;

/// A partition directory that goes with the value.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `batches` batches of ten records in segments of a few batches each, closed cleanly.
pub(crate) fn written(name: &str, batches: usize) -> Scratch {
    let root = std::env::temp_dir().join(format!("kraftlog-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let path = root.join("topic-0");
    let file_system: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let config = LogConfig { segment_bytes: 2000, index_interval_bytes: 200, ..LogConfig::default() };
    let options = OpenOptions { recovery_point: 0, log_start_offset: 0, clean_shutdown: false, now_ms: 1000 };
    let log = Log::open(file_system, &path, config, options).unwrap();
    for batch in 0..batches {
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: batch as i32 * 10,
            ..BatchOptions::default()
        })
        .unwrap();
        for record in 0..10 {
            let value = format!("value {batch} {record}");
            builder.append(1000 + batch as i64, Some(b"key"), Some(value.as_bytes()), &[]).unwrap();
        }
        log.append_as_leader(&builder.finish().unwrap(), 3, 2000, Origin::Client).unwrap();
    }
    log.close().unwrap();
    Scratch(root)
}

/// Names with `suffix` in a directory, sorted.
pub(crate) fn files(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    found.sort();
    found
}

fn checked(path: &Path) -> VerifyReport {
    verify(&[path.to_owned()], VerifyOptions::default(), &VerifyProgress::default()).unwrap()
}

fn kinds(report: &VerifyReport) -> Vec<&'static str> {
    let errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let mut kinds: Vec<_> = errors.map(|finding| finding.kind).collect();
    kinds.dedup();
    kinds
}

#[test]
fn a_closed_log_is_sound_and_counted() {
    let scratch = written("verify-sound", 30);
    let report = checked(&scratch.0.join("topic-0"));
    assert_eq!(report.findings, []);
    assert_eq!(report.plan, []);
    let summary = &report.partitions[0];
    assert_eq!((summary.batches, summary.records, summary.next_offset), (30, 300, 300));
    assert!(summary.segments > 3);
}

#[test]
fn a_flipped_bit_is_named_with_the_offsets_it_takes() {
    let scratch = written("verify-bit", 30);
    let directory = scratch.0.join("topic-0");
    let segment = &files(&directory, ".log")[1];
    let mut bytes = fs::read(segment).unwrap();
    bytes[100] ^= 1;
    fs::write(segment, bytes).unwrap();
    let report = checked(&directory);
    assert_eq!(kinds(&report), ["batch-crc", "records-lost"]);
    let lost = report.findings.iter().find(|finding| finding.kind == "records-lost").unwrap();
    assert_eq!(lost.last_offset.unwrap() - lost.offset.unwrap(), 9);
    let actions: Vec<_> = report.plan.iter().map(|step| step.action).collect();
    use Action::{RestoreFromReplica, Salvage, Start, Stop, Truncate};
    assert_eq!(actions, [Stop, RestoreFromReplica, Salvage, Truncate, Start]);
}

#[test]
fn every_sidecar_that_contradicts_the_log_is_named() {
    let scratch = written("verify-sidecars", 30);
    let directory = scratch.0.join("topic-0");
    let spoil = |suffix: &str, at: usize| {
        let path = files(&directory, suffix).into_iter().find(|path| fs::metadata(path).unwrap().len() > 0);
        let path = path.unwrap();
        let original = fs::read(&path).unwrap();
        let mut bytes = original.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let found = kinds(&checked(&directory));
        fs::write(&path, original).unwrap();
        found
    };
    assert_eq!(spoil(".index", 7), ["index-position"]);
    assert_eq!(spoil(".timeindex", 7), ["time-index-timestamp"]);
    assert_eq!(spoil(".snapshot", 20), ["snapshot"]);
    let epochs = directory.join("leader-epoch-checkpoint");
    fs::write(&epochs, "0\n1\n2 0\n").unwrap();
    assert_eq!(kinds(&checked(&directory)), ["epochs"]);
    fs::write(&epochs, "0\n1\n3 0\n").unwrap();
    assert_eq!(kinds(&checked(&directory)), Vec::<&str>::new());
    fs::remove_file(&files(&directory, ".log")[2]).unwrap();
    assert!(kinds(&checked(&directory)).contains(&"segment-gap"));
}

#[test]
fn checkpoints_beyond_the_log_are_named() {
    let scratch = written("verify-checkpoints", 3);
    fs::write(scratch.0.join("meta.properties"), "version=1\ncluster.id=abc\nnode.id=1\n").unwrap();
    let checkpoint = scratch.0.join("replication-offset-checkpoint");
    fs::write(&checkpoint, "0\n1\ntopic 0 30\n").unwrap();
    assert_eq!(checked(&scratch.0).findings, []);
    fs::write(&checkpoint, "0\n1\ntopic 0 31\n").unwrap();
    assert_eq!(kinds(&checked(&scratch.0)), ["checkpoint-beyond-log"]);
    fs::write(&checkpoint, "0\n9\ntopic 0 3\n").unwrap();
    assert_eq!(kinds(&checked(&scratch.0)), ["checkpoint"]);
}

#[test]
fn epochs_below_the_log_start_offset_are_not_missing() {
    let scratch = written("verify-log-start", 30);
    let directory = scratch.0.join("topic-0");
    // The first two segments as if a leader of epoch 2 had written them; their checksums do not cover the epoch.
    let segments = files(&directory, ".log");
    for segment in &segments[..2] {
        let mut bytes = fs::read(segment).unwrap();
        let mut at = 0;
        while at < bytes.len() {
            bytes[at + 12..at + 16].copy_from_slice(&2i32.to_be_bytes());
            let length = i32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap());
            at += 12 + usize::try_from(length).unwrap();
        }
        fs::write(segment, bytes).unwrap();
    }
    let checkpoint = scratch.0.join("log-start-offset-checkpoint");
    let epochs = directory.join("leader-epoch-checkpoint");
    let found = |start: Option<i64>, entry: &str| {
        let _ = fs::remove_file(&checkpoint);
        if let Some(start) = start {
            fs::write(&checkpoint, format!("0\n1\ntopic 0 {start}\n")).unwrap();
        }
        fs::write(&epochs, format!("0\n1\n{entry}\n")).unwrap();
        let report = checked(&directory);
        report.findings.iter().map(|finding| (finding.severity, finding.kind)).collect::<Vec<_>>()
    };
    assert_eq!(found(Some(300), "3 300"), [], "all records were deleted");
    assert_eq!(found(Some(295), "3 295"), [], "the last five are left");
    assert_eq!(found(Some(0), "3 300"), [(Severity::Error, "epochs"), (Severity::Note, "epochs")]);
    assert_eq!(found(None, "3 300"), [(Severity::Note, "epochs"), (Severity::Note, "epochs")]);
}

#[test]
fn a_plan_says_what_each_deleted_file_costs() {
    let scratch = written("verify-plan", 30);
    let directory = scratch.0.join("topic-0");
    let time_index =
        files(&directory, ".timeindex").into_iter().find(|path| fs::metadata(path).unwrap().len() > 0);
    let time_index = time_index.unwrap();
    let mut bytes = fs::read(&time_index).unwrap();
    bytes[7] ^= 1;
    fs::write(&time_index, bytes).unwrap();
    let plan = checked(&directory).plan;
    let deleted: Vec<_> =
        plan.iter().filter(|step| step.action == Action::Delete).map(|step| step.path.clone()).collect();
    assert_eq!(deleted, [time_index.with_extension("index"), time_index.clone()]);

    fs::write(scratch.0.join("meta.properties"), "version=1\ncluster.id=abc\nnode.id=1\n").unwrap();
    let log_starts = scratch.0.join("log-start-offset-checkpoint");
    fs::write(&log_starts, "garbage").unwrap();
    let plan = checked(&scratch.0).plan;
    let step = plan.iter().find(|step| step.path == log_starts).unwrap();
    assert!(step.why.contains("serves records again"), "{}", step.why);
}

#[test]
fn a_report_is_json_with_escapes() {
    let mut report = VerifyReport::default();
    report.findings.push(Finding::new(Severity::Note, "x", Path::new("a\"b\\c\n"), "\u{1}"));
    assert!(report.to_json().contains(r#""file":"a\"b\\c\u000a""#));
}
