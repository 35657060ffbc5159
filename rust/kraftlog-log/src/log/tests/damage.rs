//! Any byte of any file may be wrong: opening and reading end in a log or an error, never in a panic.
use proptest::prelude::*;

use super::*;
use crate::fs::{read_file, OpenMode};

/// Look at all there is to look at; errors are fine.
fn exercise(log: &Log) {
    for offset in log.log_start_offset().saturating_sub(1)..log.log_start_offset().saturating_add(70) {
        if let Ok(slice) = log.read(offset, 200, log.log_end_offset(), true) {
            let _ = slice.read();
        }
    }
    for timestamp in [-1, 0, 1000, 1030, i64::MAX] {
        let _ = log.offset_for_timestamp(timestamp);
    }
    let _ = (log.max_timestamp(), log.segments(), log.aborted_transactions(0, i64::MAX));
    let bytes = batch(0..2, BatchOptions::default());
    let _ = log.append_as_leader(&bytes, 9, 2000, Origin::Client);
    let _ = log.delete_old_segments(i64::MAX, log.log_end_offset());
    let _ = log.truncate_to(5, 0);
    let _ = log.roll(0);
    let _ = log.close();
}

fn bench() -> Bench {
    let mut bench = Bench::new();
    for sequence in 0..12 {
        bench.append_sequence(sequence * 4, 4).unwrap();
    }
    bench.log.write_partition_metadata([7; 16]).unwrap();
    bench.log.close().unwrap();
    bench
}

/// A write that went to the wrong place of a segment leaves a whole batch there. A read that begins at what it lies upon
/// took the hole for one that compaction left, and went on behind it.
#[test]
fn a_batch_at_the_wrong_place_is_no_hole_of_compaction() {
    for (source, reads_on_from) in [(1_usize, 4_i64), (5, 6)] {
        let mut bench = Bench::new();
        for _ in 0..7 {
            bench.append(1).unwrap();
        }
        let path = Path::new(PATH).join("00000000000000000000.log");
        let handle = bench.fs.open(&path, OpenMode::ReadWrite).unwrap();
        let bytes = read_file(&bench.fs, &path).unwrap().unwrap();
        let size = bytes.len() / 7;
        handle.write_all_at(&[&bytes[source * size..(source + 1) * size]], 3 * size as u64).unwrap();
        let read = |offset: i64| bench.log.read(offset, 1, 7, true).map(|slice| slice.position());
        for offset in (0..3).chain(reads_on_from..7) {
            assert_eq!(read(offset).unwrap(), offset as u64 * size as u64, "offset {offset}");
        }
        let error = read(3).unwrap_err().to_string();
        assert!(error.contains(&format!("{} position {}", path.display(), 3 * size)), "{error}");
    }
}

/// A write of the beginning of another segment fills a small one: nothing of what lay there is left to tell.
#[test]
fn a_batch_of_a_later_segment_is_no_batch_behind_a_hole() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        bench.append(2).unwrap();
        bench.log.roll(0).unwrap();
    }
    let file = |base: i64| Path::new(PATH).join(format!("{base:020}.log"));
    let later = read_file(&bench.fs, &file(6)).unwrap().unwrap();
    bench.fs.open(&file(2), OpenMode::ReadWrite).unwrap().write_all_at(&[&later], 0).unwrap();
    let read = |offset: i64| bench.log.read(offset, 1, 8, true);
    for offset in [0, 1, 4, 5, 6, 7] {
        assert!(read(offset).unwrap().size_bytes() > 0, "offset {offset}");
    }
    for offset in [2, 3] {
        let error = read(offset).unwrap_err().to_string();
        assert!(error.contains(&format!("{} position 0", file(2).display())), "{error}");
        assert!(error.contains("which begins at offset 4"), "{error}");
    }
}

/// A power failure keeps some sectors of a write and loses others. The checksum covers neither the base offset nor the
/// length: a batch whose base offset lay in a lost sector alone looked like one of another offset, and no node started.
#[test]
fn a_batch_that_lacks_its_base_offset_is_cut_as_torn() {
    let filling = |size: usize| {
        let batches = (0..512).map(|length| {
            let mut builder = BatchBuilder::new(BatchOptions::default()).unwrap();
            builder.append(1000, None, Some(&vec![b'v'; length]), &[]).unwrap();
            builder.finish().unwrap()
        });
        batches.into_iter().find(|batch| batch.len() == size).unwrap()
    };
    for start in [0, 70_000] {
        for lost in 1..=12_usize {
            let mut bench = Bench::new();
            bench.log.truncate_fully_and_start_at(start, 0).unwrap();
            bench.log.append_as_leader(&filling(512 - lost), 1, 2000, Origin::Client).unwrap();
            bench.append(3).unwrap();
            bench.append(1).unwrap();
            let path = Path::new(PATH).join(format!("{start:020}.log"));
            let handle = bench.fs.open(&path, OpenMode::ReadWrite).unwrap();
            let position = 512 - lost as u64;
            handle.write_all_at(&[&vec![0; lost]], position).unwrap();
            let is_harmed = lost > if start == 0 { 7 } else { 5 };
            let log = bench.reopen(options(start, false));
            assert_eq!(log.log_end_offset(), start + if is_harmed { 1 } else { 5 }, "{start} {lost}");
            let cuts: Vec<_> = log.recovery_events().iter().filter(|event| event.lost_bytes > 0).collect();
            assert_eq!(cuts.len(), usize::from(is_harmed));
            assert!(cuts.iter().all(|cut| cut.position == position && cut.path == path));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_never_panic(
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<[u8; 8]>(), 0..9_usize), 1..6),
        clean_shutdown: bool,
        recovery_point in -1..60_i64,
    ) {
        let bench = bench();
        let mut names = bench.fs.list(Path::new(PATH)).unwrap();
        names.sort();
        for (file, place, bytes, count) in damages {
            let path = Path::new(PATH).join(file.get(&names));
            let size = read_file(&bench.fs, &path).unwrap().unwrap().len();
            let handle = bench.fs.open(&path, OpenMode::ReadWrite).unwrap();
            let position = place.index(size + 1) as u64;
            if count == 0 {
                handle.truncate(position).unwrap();
            } else {
                handle.write_all_at(&[&bytes[..count.min(8)]], position).unwrap();
            }
        }
        let fs = Arc::new(bench.fs.clone());
        if let Ok(log) = Log::open(fs, Path::new(PATH), config(), options(recovery_point, clean_shutdown)) {
            exercise(&log);
        }
    }

    #[test]
    fn made_up_headers_never_panic(
        fields in prop::collection::vec((0..61_usize, any::<u8>()), 0..20),
        position in 0..5_usize,
        fix_crc: bool,
        clean_shutdown: bool,
    ) {
        let bench = bench();
        let path = Path::new(PATH).join("00000000000000000000.log");
        let mut bytes = read_file(&bench.fs, &path).unwrap().unwrap();
        let starts: Vec<usize> = Batches::new(&bytes).map(|batch| batch.unwrap().position() as usize).collect();
        let start = starts[position.min(starts.len() - 1)];
        let end = starts.get(position + 1).copied().unwrap_or(bytes.len());
        for (at, value) in fields {
            bytes[start + at] = value;
        }
        if fix_crc {
            let crc = crate::crc::crc32c(&bytes[start + 21..end]);
            bytes[start + 17..start + 21].copy_from_slice(&crc.to_be_bytes());
        }
        bench.fs.open(&path, OpenMode::Truncate).unwrap().write_all_at(&[&bytes], 0).unwrap();
        let fs = Arc::new(bench.fs.clone());
        if let Ok(log) = Log::open(fs, Path::new(PATH), config(), options(0, clean_shutdown)) {
            exercise(&log);
        }
    }
}
