use std::path::Path;
use std::sync::Arc;

use super::super::testing::*;
use super::super::{Log, LogConfig};
use crate::builder::BatchOptions;
use crate::fs::{Crash, DataLoss, FileSystem, MemoryFileSystem, NameLoss, Operation};
use crate::producer_state::Origin;

const COPY: &str = "/other/t-0.0123456789abcdef0123456789abcdef-future";
const MOVED: &str = "/other/t-0";
const RETIRED: &str = "/data/t-0.0123456789abcdef0123456789abcdef-delete";

fn open_copy(fs: &MemoryFileSystem) -> Log {
    fs.create_dir(Path::new("/other")).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    Log::open(Arc::new(fs.clone()), Path::new(COPY), small(), unclean(0)).unwrap()
}

/// Copy everything that the copy does not have.
fn fill(log: &Log, copy: &Log) {
    while copy.log_end_offset() < log.log_end_offset() {
        let slice = log.read(copy.log_end_offset(), 200, i64::MAX, true).unwrap();
        copy.append_as_follower(&slice.read().unwrap(), i32::MAX, 0).unwrap();
    }
}

fn filled() -> (Fixture, Log) {
    let fs = MemoryFileSystem::with_directory(Path::new("/data"));
    let log = open(&fs, small(), unclean(0)).unwrap();
    let fixture = Fixture { fs, log };
    for _ in 0..30 {
        fixture.append(1).unwrap();
    }
    let copy = open_copy(&fixture.fs);
    fill(&fixture.log, &copy);
    (fixture, copy)
}

fn idempotent(fixture: &Fixture, sequence: i32) -> bool {
    let options = BatchOptions {
        producer_id: 9,
        producer_epoch: 0,
        base_sequence: sequence,
        ..BatchOptions::default()
    };
    fixture.append_bytes(&batch(0, 1, options), 0).unwrap().is_duplicate
}

#[test]
fn a_log_goes_on_in_another_directory() {
    let (fixture, copy) = filled();
    for sequence in 0..4 {
        assert!(!idempotent(&fixture, sequence));
    }
    let slice = fixture.log.read(0, 10_000, i64::MAX, true).unwrap();
    assert!(!fixture.log.relocate(&copy, Path::new(RETIRED), 30, 0).unwrap(), "the copy is behind");
    assert_eq!(fixture.log.path(), Path::new(PATH));
    fill(&fixture.log, &copy);
    fixture.log.assign_epoch_start(7, 34).unwrap();
    let before = records(&fixture.log);
    assert!(fixture.log.relocate(&copy, Path::new(RETIRED), 34, 0).unwrap());
    assert_eq!(fixture.log.path(), Path::new(MOVED));
    assert_eq!(records(&fixture.log), before);
    assert_eq!(fixture.log.recovery_point(), 34);
    assert_eq!(fixture.log.latest_epoch(), Some(7), "an epoch without a record");
    assert!(!slice.read().unwrap().is_empty(), "a reader keeps its slice");
    for sequence in [0, 1, 2, 3] {
        assert!(idempotent(&fixture, sequence), "a snapshot has the last batch of a producer alone");
    }
    fixture.log.roll(0).unwrap();
    let later = batch(34, 4, BatchOptions::default());
    fixture.log.append_as_leader(&later, 7, 34, Origin::Client).unwrap();
    fixture.log.close().unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(fixture.fs.clone());
    let again = Log::open(Arc::clone(&fs), Path::new(MOVED), small(), unclean(0)).unwrap();
    assert_eq!(offsets(&again), (0..38).collect::<Vec<_>>());
    assert_eq!(again.recovery_events(), []);
    assert!(!fs.exists(Path::new(COPY)).unwrap() && !fs.exists(Path::new(PATH)).unwrap());
}

#[test]
fn a_log_that_starts_late_starts_there_after_a_move() {
    let (fixture, copy) = filled();
    fixture.log.advance_log_start_offset(13).unwrap();
    assert!(fixture.log.relocate(&copy, Path::new(RETIRED), 30, 0).unwrap());
    assert_eq!((fixture.log.log_start_offset(), fixture.log.log_end_offset()), (13, 30));
    assert_eq!(offsets(&fixture.log).first(), Some(&13));
}

/// At every step of a move, one directory has everything.
#[test]
fn a_crash_in_a_move_loses_nothing() {
    for names in [NameLoss::Nothing, NameLoss::Everything, NameLoss::Suffix, NameLoss::AnySubset] {
        for crash_at in 0.. {
            let (fixture, copy) = filled();
            fixture.log.flush().unwrap();
            fixture.fs.crash_after(fixture.fs.change_count() + crash_at);
            let is_over = fixture.log.relocate(&copy, Path::new(RETIRED), 30, 0).is_ok();
            let crash = Crash { data: DataLoss::Everything, names, seed: crash_at };
            let fs = fixture.fs.crash_with(&crash);
            let context = format!("{crash:?} at {crash_at}");
            let whole = |path: &str| {
                fs.exists(Path::new(path)).unwrap() && {
                    let log = Log::open(Arc::new(fs.clone()), Path::new(path), small(), unclean(0)).unwrap();
                    offsets(&log) == (0..30).collect::<Vec<_>>()
                }
            };
            let found = [whole(PATH), whole(COPY), whole(MOVED)];
            assert!(found[0] || found[1] || found[2], "{context}: {found:?} {:?}", fs.paths());
            let exists = |path| fs.exists(Path::new(path)).unwrap();
            assert!(!(exists(PATH) && exists(MOVED)), "{context}: nobody can tell which one counts");
            if is_over {
                assert_eq!(found, [false, false, true], "{context}");
                break;
            }
        }
    }
}

#[test]
fn a_move_that_fails_leaves_the_log_as_it_was() {
    let mut failures = 0;
    for operation in [Operation::Write, Operation::Sync, Operation::Change] {
        for countdown in 0.. {
            let (fixture, copy) = filled();
            fixture.log.flush().unwrap();
            fixture.fs.fail(operation, countdown, libc::EIO);
            let moved = fixture.log.relocate(&copy, Path::new(RETIRED), 30, 0);
            let was_pending = fixture.fs.has_pending_faults();
            fixture.fs.clear_faults();
            if was_pending {
                assert!(moved.unwrap());
                break;
            }
            failures += usize::from(moved.is_err());
            let path = if moved.is_ok() { MOVED } else { PATH };
            let context = format!("{operation:?} {countdown}: {moved:?}");
            assert_eq!(fixture.log.path(), Path::new(path), "{context}");
            assert_eq!(fixture.log.poisoned(), None, "{context}");
            fixture.append_bytes(&batch(30, 1, BatchOptions::default()), 0).unwrap();
            assert_eq!(offsets(&fixture.log), (0..31).collect::<Vec<_>>(), "{context}");
        }
    }
    assert!(failures > 5, "{failures}");
}

#[test]
fn a_transaction_that_is_open_stays_open() {
    let fixture = Fixture::new(LogConfig::default());
    let options = BatchOptions {
        producer_id: 5,
        producer_epoch: 1,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };
    fixture.log.append_as_leader(&batch(0, 2, options), 1, 0, Origin::Client).unwrap();
    let copy = open_copy(&fixture.fs);
    fill(&fixture.log, &copy);
    assert!(fixture.log.relocate(&copy, Path::new(RETIRED), 2, 0).unwrap());
    assert_eq!(fixture.log.first_unstable_offset(), Some(0));
    assert!(fixture.log.has_ongoing_transaction(5, 1));
}
