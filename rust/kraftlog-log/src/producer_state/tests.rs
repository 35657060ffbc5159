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
    let completed = update.append_marker(0, 12, marker, 0).unwrap().unwrap();
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

fn marker(bench: &mut Bench, epoch: i16, coordinator_epoch: i32, transaction_version: i16) -> Result<bool> {
    let mut update = bench.state.prepare(7, Origin::Coordinator);
    let marker = EndMarker { is_abort: false, coordinator_epoch, timestamp: 0 };
    let completed = update.append_marker(epoch, 50, marker, transaction_version)?;
    bench.state.apply(&update);
    if let Some(completed) = &completed {
        bench.state.complete(completed)?;
    }
    Ok(completed.is_some())
}

fn begin(bench: &mut Bench, epoch: i16, offset: i64) {
    let bytes = header(epoch, 0, 1, true);
    let mut update = bench.state.prepare(7, Origin::Client);
    update.append_data(&BatchHeader::new(&bytes), offset).unwrap();
    bench.state.apply(&update);
}

#[test]
fn markers_of_transaction_version_2_need_a_larger_epoch() {
    for (version, same, larger) in [(0, Ok(true), Ok(true)), (2, Err(47), Ok(true))] {
        for (epoch, expected) in [(3, same), (4, larger)] {
            let mut bench = Bench::new();
            begin(&mut bench, 3, 10);
            let found = marker(&mut bench, epoch, 1, version).map_err(|error| code(Err(error)));
            assert_eq!(found, expected, "version {version} epoch {epoch}");
        }
    }
    let mut bench = Bench::new();
    begin(&mut bench, 3, 10);
    assert!(marker(&mut bench, 4, 1, 2).unwrap());
    assert!(!marker(&mut bench, 4, 1, 2).unwrap(), "the same marker again ends nothing");
    assert_eq!(code(marker(&mut bench, 3, 1, 2).map(drop)), 47);
    assert_eq!(code(marker(&mut bench, 5, 0, 2).map(drop)), 52);
    assert_eq!(bench.state.entry(7).unwrap().last_sequence(), -1);
    // There is no epoch above the largest.
    begin(&mut bench, i16::MAX, 60);
    assert!(marker(&mut bench, i16::MAX, 1, 2).unwrap());
}

#[test]
fn sequences_wrap_around() {
    let mut bench = Bench::new();
    bench.append(0, 0, i32::MAX - 1, 1).unwrap();
    assert_eq!(code(bench.append(1, 0, 0, 1)), 45);
    bench.append(1, 0, i32::MAX, 3).unwrap();
    let entry = *bench.state.entry(7).unwrap();
    assert_eq!((entry.last_sequence(), entry.batches.last().unwrap().first_sequence()), (1, i32::MAX));
    assert!(entry.find_duplicate(0, i32::MAX, 1).is_some());
    bench.append(4, 0, 2, 1).unwrap();
    let mut at_end = Bench::new();
    at_end.append(0, 0, i32::MAX, 1).unwrap();
    at_end.append(1, 0, 0, 1).unwrap();
}

#[test]
fn a_duplicate_is_known_for_five_batches() {
    let mut bench = Bench::new();
    for sequence in 0..8 {
        bench.append(i64::from(sequence), 0, sequence, 1).unwrap();
    }
    let entry = bench.state.entry(7).unwrap();
    let known: Vec<_> = (0..8).filter(|one| entry.find_duplicate(0, *one, *one).is_some()).collect();
    assert_eq!(known, [3, 4, 5, 6, 7]);
    // Older than that it is out of order: released Kafka 4 has DUPLICATE_SEQUENCE_NUMBER in its table only.
    assert_eq!(code(bench.append(8, 0, 2, 1)), 45);
}

#[test]
fn a_verified_transaction_begins_where_the_verification_saw_it() {
    let bench = Bench::new();
    let check = |sequence, supports_epoch_bump, lowest_sequence| {
        let bytes = header(0, sequence, 1, true);
        let mut update = bench.state.prepare(7, Origin::Client);
        update.set_verification(Some(Verification { lowest_sequence, supports_epoch_bump }));
        update.append_data(&BatchHeader::new(&bytes), 0).is_ok()
    };
    assert_eq!(
        [check(0, true, 5), check(3, true, 5), check(3, false, 5), check(6, false, 5)],
        [true, false, true, false]
    );
}

#[test]
fn idle_producers_expire_but_not_in_a_transaction() {
    let mut bench = Bench::new();
    bench.append(0, 0, 0, 1).unwrap();
    bench.state.remove_expired(999);
    assert_eq!(bench.state.count(), 1);
    bench.state.remove_expired(1000);
    assert_eq!(bench.state.count(), 0);
    bench.append(1, 0, 77, 1).unwrap();
    begin(&mut bench, 1, 5);
    bench.state.remove_expired(i64::MAX);
    assert_eq!(bench.state.first_unstable_offset(), Some(5));
    marker(&mut bench, 1, 0, 0).unwrap();
    bench.state.remove_expired(i64::MAX);
    assert_eq!(bench.state.count(), 0);
}

/// Ask about the first batch of a transaction; the guard, or `None` if it is open.
fn ask(bench: &mut Bench, epoch: i16, sequence: i32, now_ms: i64) -> Result<Option<u64>> {
    let asked = Verification { lowest_sequence: sequence, supports_epoch_bump: true };
    bench.state.begin_verification(7, epoch, asked, now_ms)
}

#[test]
fn guard_holds_until_the_transaction_is_over() {
    // PSTA-64, PSTA-65, PSTA-68
    let mut bench = Bench::new();
    let guard = ask(&mut bench, 3, 5, 0).unwrap().unwrap();
    assert_eq!(ask(&mut bench, 3, 2, 0).unwrap(), Some(guard), "requests that wait together share a guard");
    assert_eq!(bench.state.verification(7, guard).unwrap().lowest_sequence, 2);
    assert_eq!(bench.state.verification(7, guard + 1), None);
    bench.state.end_verification_by_marker(7, 4);
    assert_eq!(bench.state.verification(7, guard), None);
    begin(&mut bench, 3, 10);
    assert!(bench.state.has_ongoing_transaction(7, 3) && !bench.state.has_ongoing_transaction(7, 4));
    assert_eq!(ask(&mut bench, 3, 9, 0).unwrap(), None);
    assert_eq!(ask(&mut bench, 2, 0, 0).map_err(|error| code(Err(error))), Err(47));
    assert_ne!(ask(&mut bench, 4, 0, 0).unwrap(), Some(guard));
}

#[test]
fn marker_leaves_the_guard_of_the_next_transaction() {
    // PSTA-66
    let mut bench = Bench::new();
    let guard = ask(&mut bench, 4, 0, 0).unwrap().unwrap();
    bench.state.end_verification_by_marker(7, 4);
    assert!(bench.state.verification(7, guard).is_some());
    bench.state.end_verification_by_marker(7, 5);
    assert!(bench.state.verification(7, guard).is_none());
}

#[test]
fn newer_epoch_takes_a_verification_over_and_time_ends_it() {
    // PSTA-67, PSTA-71
    let mut bench = Bench::new();
    let guard = ask(&mut bench, 3, 5, 0).unwrap().unwrap();
    assert_eq!(ask(&mut bench, 4, 9, 0).unwrap(), Some(guard));
    assert_eq!(ask(&mut bench, 3, 0, 0).unwrap(), Some(guard));
    assert_eq!(bench.state.verification(7, guard).unwrap().lowest_sequence, 9);
    bench.state.remove_expired(999);
    assert!(bench.state.verification(7, guard).is_some());
    bench.state.remove_expired(1000);
    assert!(bench.state.verification(7, guard).is_none());
}
