use std::path::Path;

use super::*;
use crate::builder::BatchOptions;
use crate::epoch_checkpoint::FILE_NAME;
use crate::fs::{write_file_atomically, FileSystem};
use crate::log::testing::*;
use crate::log::{CleanupPolicy, Log, LogConfig};
use crate::producer_state::Origin;
use crate::segment::segment_path;

/// Several segments of two records each, in the epochs 1 to 3, closed.
fn closed() -> (Fixture, Vec<i64>) {
    let fixture = Fixture::new(LogConfig { segment_bytes: 200, ..small() });
    for number in 0..12 {
        let bytes = batch(number, 1, BatchOptions::default());
        let epoch = 1 + number as i32 / 5;
        fixture.log.append_as_leader(&bytes, epoch, 0, Origin::Coordinator).unwrap();
    }
    fixture.log.close().unwrap();
    let bases = bases(&fixture.log);
    (fixture, bases)
}

fn events(log: &Log) -> Vec<(&'static str, String, i64)> {
    let name = |event: &RecoveryEvent| event.path.file_name().unwrap().to_string_lossy().into_owned();
    log.recovery_events().iter().map(|event| (event.kind.name(), name(event), event.offset)).collect()
}

fn remove_segment(fixture: &Fixture, base_offset: i64) {
    for name in names(&fixture.fs) {
        if name.starts_with(&format!("{base_offset:020}.")) {
            fixture.fs.remove(&Path::new(PATH).join(name)).unwrap();
        }
    }
}

#[test]
fn a_segment_that_is_missing_after_a_clean_stop_is_reported() {
    let (fixture, bases) = closed();
    let [_, before, missing, next, ..] = bases.as_slice() else { panic!("{bases:?}") };
    remove_segment(&fixture, *missing);
    let log = open(&fixture.fs, small(), clean()).unwrap();
    assert_eq!(events(&log), [("segment-missing", format!("{before:020}.log"), *missing)]);
    let [event] = log.recovery_events() else { panic!() };
    assert_eq!(event.reason, format!("no segment holds the offsets from {missing} to {}", next - 1));
    assert_eq!(event.position, log.segments().unwrap()[1].size_bytes);
    assert_eq!(log.log_end_offset(), 12);
}

#[test]
fn a_hole_that_compaction_may_have_left_is_none() {
    let (fixture, bases) = closed();
    remove_segment(&fixture, bases[2]);
    let cleanup_policy = CleanupPolicy { delete: false, compact: true };
    let log = open(&fixture.fs, LogConfig { cleanup_policy, ..small() }, clean()).unwrap();
    assert_eq!(events(&log), []);
}

#[test]
fn the_end_of_a_segment_that_cannot_be_read_is_reported() {
    let (fixture, bases) = closed();
    let path = segment_path(Path::new(PATH), bases[1], "log");
    let file = fixture.fs.open(&path, crate::fs::OpenMode::ReadWrite).unwrap();
    let size = file.size_bytes().unwrap();
    file.truncate(size - 3).unwrap();
    let log = open(&fixture.fs, small(), clean()).unwrap();
    assert_eq!(events(&log), [("segment-unreadable", format!("{:020}.log", bases[1]), -1)]);
}

#[test]
fn epochs_that_contradict_the_batches_are_read_from_them() {
    let (fixture, _) = closed();
    let expected = fixture.log.epoch_entries();
    assert_eq!(expected.len(), 3);
    let path = Path::new(PATH).join(FILE_NAME);
    for wrong in
        ["0\n1\n3 0\n", "0\n3\n1 0\n2 7\n3 10\n", "0\n2\n0 0\n9 11\n", "0\n4\n1 0\n2 5\n3 10\n4 11\n"]
    {
        write_file_atomically(&fixture.fs, &path, wrong.as_bytes()).unwrap();
        let log = open(&fixture.fs, small(), clean()).unwrap();
        assert_eq!(log.epoch_entries(), expected, "{wrong:?}");
        assert_eq!(events(&log), [("epochs-rebuilt", FILE_NAME.to_owned(), -1)], "{wrong:?}");
        log.close().unwrap();
        assert_eq!(events(&open(&fixture.fs, small(), clean()).unwrap()), [], "{wrong:?}");
    }
}
