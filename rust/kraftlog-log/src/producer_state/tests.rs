use super::*;
use crate::batch::{BatchHeader, HEADER_SIZE};
use crate::fs::MemoryFileSystem;

fn header(epoch: i16, sequence: i32, count: i32, transactional: bool) -> [u8; HEADER_SIZE] {
    let mut bytes = [0; HEADER_SIZE];
    bytes[16] = 2;
    bytes[22] = if transactional { 0x10 } else { 0 };
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[43..51].copy_from_slice(&7_i64.to_be_bytes());
    bytes[51..53].copy_from_slice(&epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    bytes
}

struct Bench {
    fs: MemoryFileSystem,
    state: ProducerState,
}

impl Bench {
    fn new() -> Self {
        let fs = MemoryFileSystem::new();
        fs.create_dir(Path::new("/log")).unwrap();
        let state = ProducerState::open(Arc::new(fs.clone()), Path::new("/log"), 1000).unwrap();
        Self { fs, state }
    }

    fn append(&mut self, offset: i64, epoch: i16, sequence: i32, count: i32) -> Result<()> {
        let bytes = header(epoch, sequence, count, false);
        let mut update = self.state.prepare(7, Origin::Client);
        update.append_data(&BatchHeader::new(&bytes), offset)?;
        self.state.apply(&update);
        self.state.set_end_offset(offset + i64::from(count));
        Ok(())
    }
}

fn code(result: Result<()>) -> i16 {
    match result {
        Err(Error::Rejected { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sequences_are_checked_as_kafka_does() {
    let mut bench = Bench::new();
    bench.append(0, 0, 5, 3).unwrap(); // an unknown producer may begin anywhere
    bench.append(3, 0, 8, 1).unwrap();
    assert_eq!(code(bench.append(4, 0, 10, 1)), 45);
    assert_eq!(code(bench.append(4, 1, 3, 1)), 45);
    bench.append(4, 1, 0, 1).unwrap();
    assert_eq!(code(bench.append(5, 0, 9, 1)), 47);
    let entry = bench.state.entry(7).unwrap();
    assert_eq!(entry.find_duplicate(1, 0, 0).unwrap().last_offset, 4);
    assert_eq!(entry.find_duplicate(0, 8, 8), None);
}

#[test]
fn sequences_wrap_at_the_largest_int() {
    let mut bench = Bench::new();
    bench.append(0, 0, i32::MAX - 1, 4).unwrap(); // ..., MAX, 0, 1
    assert_eq!(bench.state.entry(7).unwrap().last_sequence(), 1);
    let duplicate = bench.state.entry(7).unwrap().find_duplicate(0, i32::MAX - 1, 1).unwrap();
    assert_eq!((duplicate.first_offset(), duplicate.last_offset), (0, 3));
    bench.append(4, 0, 2, 1).unwrap();
    let mut bench = Bench::new();
    bench.append(0, 0, i32::MAX, 1).unwrap();
    bench.append(1, 0, 0, 1).unwrap();
}

#[test]
fn five_batches_are_remembered() {
    let mut bench = Bench::new();
    for sequence in 0..7 {
        bench.append(i64::from(sequence), 0, sequence, 1).unwrap();
    }
    let entry = bench.state.entry(7).unwrap();
    assert_eq!(entry.find_duplicate(0, 1, 1), None);
    assert_eq!(entry.find_duplicate(0, 2, 2).unwrap().last_offset, 2);
}

#[test]
fn transactions_hold_the_stable_offset_until_replicated() {
    let mut bench = Bench::new();
    let bytes = header(0, 0, 2, true);
    let mut update = bench.state.prepare(7, Origin::Client);
    update.append_data(&BatchHeader::new(&bytes), 10).unwrap();
    bench.state.apply(&update);
    assert_eq!(bench.state.first_unstable_offset(), Some(10));
    let mut update = bench.state.prepare(7, Origin::Coordinator);
    let marker = EndMarker::parse(Some(&[0, 0, 0, 0]), Some(&[0, 0, 0, 0, 0, 9]), 77).unwrap();
    let completed = update.append_marker(0, 12, marker).unwrap().unwrap();
    bench.state.apply(&update);
    assert!(completed.is_aborted);
    assert_eq!(bench.state.last_stable_offset(&completed), 13);
    bench.state.complete(&completed).unwrap();
    assert_eq!(bench.state.first_unstable_offset(), Some(10));
    bench.state.on_high_watermark(12);
    assert_eq!(bench.state.first_unstable_offset(), Some(10));
    bench.state.on_high_watermark(13);
    assert_eq!(bench.state.first_unstable_offset(), None);
    assert_eq!(bench.state.entry(7).unwrap().coordinator_epoch, 9);
}

#[test]
fn snapshots_round_trip_and_torn_ones_are_skipped() {
    let mut bench = Bench::new();
    bench.append(0, 0, 0, 3).unwrap();
    bench.state.take_snapshot().unwrap();
    bench.append(3, 0, 3, 3).unwrap();
    bench.state.take_snapshot().unwrap();
    let reload = |fs: &MemoryFileSystem, end: i64, now_ms| {
        let mut state = ProducerState::open(Arc::new(fs.clone()), Path::new("/log"), 1000).unwrap();
        state.truncate_and_reload(0, end, now_ms).unwrap();
        state
    };
    let state = reload(&bench.fs, 100, 1);
    assert_eq!((state.end_offset(), state.entry(7).unwrap().last_sequence()), (6, 5));
    assert_eq!(reload(&bench.fs, 100, 5000).count(), 0);
    let newest = Path::new("/log/00000000000000000006.snapshot");
    bench.fs.open(newest, fs::OpenMode::ReadWrite).unwrap().truncate(30).unwrap();
    let state = reload(&bench.fs, 100, 1);
    assert_eq!((state.end_offset(), state.entry(7).unwrap().last_sequence()), (3, 2));
    assert!(!bench.fs.exists(newest).unwrap());
}
