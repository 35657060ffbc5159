use std::sync::Arc;

use super::*;
use crate::builder::BatchOptions;
use crate::fs::{MemoryFileSystem, OpenMode};
use crate::log::testing::*;
use crate::producer_state::Origin;
use crate::segment::CLEANED_SUFFIX;

/// A name in the partition directory.
fn file(name: &str) -> PathBuf {
    Path::new(PATH).join(name)
}

fn overwrite(fs: &MemoryFileSystem, name: &str, bytes: &[u8]) {
    fs.open(&file(name), OpenMode::Truncate).unwrap().write_all_at(&[bytes], 0).unwrap();
}

fn bytes_of(fs: &MemoryFileSystem, name: &str) -> Vec<u8> {
    crate::fs::read_file(fs, &file(name)).unwrap().unwrap()
}

fn epochs(log: &Log) -> Vec<(i32, i64)> {
    log.epoch_entries().iter().map(|entry| (entry.epoch, entry.start_offset)).collect()
}

/// A segment as releases before Kafka 2.0 may have left it: offsets further apart than an index can say.
fn overflowed(offsets: &[i64], torn: &[u8]) -> (MemoryFileSystem, Vec<Vec<u8>>) {
    let fixture = Fixture::new(small());
    fixture.log.close().unwrap();
    let batches: Vec<_> = offsets
        .iter()
        .map(|base_offset| {
            batch(*base_offset, 3, BatchOptions { base_offset: *base_offset, ..BatchOptions::default() })
        })
        .collect();
    let whole: Vec<u8> = batches.iter().flatten().chain(torn).copied().collect();
    overwrite(&fixture.fs, "00000000000000000000.log", &whole);
    (fixture.fs, batches)
}

const FAR: i64 = i32::MAX as i64;

#[test]
fn an_overflowed_segment_is_split() {
    let offsets_in = [0, 100, FAR, FAR + 50, 3 * FAR, 3 * FAR + 3];
    for (torn, threads) in [(&b""[..], 1), (&b"torn"[..], 1), (b"", 4)] {
        let (fs, _) = overflowed(&offsets_in, torn);
        let recovery = Recovery { threads, ..Recovery::default() };
        let log =
            Log::open_with(Arc::new(fs.clone()), Path::new(PATH), small(), unclean(0), &recovery).unwrap();
        assert_eq!(bases(&log), [0, FAR, 3 * FAR]);
        let expected: Vec<i64> = offsets_in.iter().flat_map(|base| *base..base + 3).collect();
        assert_eq!(offsets(&log), expected);
        assert_eq!(log.log_end_offset(), 3 * FAR + 6);
        let names = names(&fs);
        assert!(
            names.iter().all(|name| !name.ends_with("swap") && !name.ends_with(CLEANED_SUFFIX)),
            "{names:?}"
        );
        log.close().unwrap();
        assert_eq!(offsets(&open(&fs, small(), clean()).unwrap()), expected);
    }
}

#[test]
fn a_split_survives_a_crash_at_every_point() {
    let offsets_in = [5, FAR + 3, 3 * FAR];
    let expected: Vec<i64> = offsets_in.iter().flat_map(|base| *base..base + 3).collect();
    for keeps_names in [false, true] {
        for crash_at in 0.. {
            let (fs, _) = overflowed(&offsets_in, b"");
            for name in names(&fs) {
                fs.open(&file(&name), OpenMode::ReadWrite).unwrap().sync_data().unwrap();
            }
            fs.sync_dir(Path::new(PATH)).unwrap();
            fs.crash_after(fs.change_count() + crash_at);
            let is_over = open(&fs, small(), unclean(0)).is_ok();
            let log = open(&fs.crash(0, keeps_names), small(), unclean(0)).unwrap();
            assert_eq!(offsets(&log), expected, "crash at {crash_at}");
            if is_over {
                assert!(crash_at > 10);
                break;
            }
        }
    }
}

#[test]
fn an_offset_before_the_segment_is_an_error_not_a_split() {
    let (fs, _) = overflowed(&[5], b"");
    fs.rename(&file("00000000000000000000.log"), &file("00000000000000000100.log")).unwrap();
    assert!(matches!(open(&fs, small(), unclean(0)), Err(Error::Corrupt { .. })));
}

/// Twelve segments with producers, epochs and an aborted transaction.
fn rich() -> Fixture {
    let fixture = Fixture::new(small());
    for step in 0..60_i64 {
        let options = BatchOptions {
            producer_id: 7 + step % 3,
            producer_epoch: 0,
            base_sequence: (step / 3) as i32,
            is_transactional: step % 3 == 0,
            ..BatchOptions::default()
        };
        let bytes = batch(step * 10, 1, options);
        fixture.log.append_as_leader(&bytes, 1 + step as i32 / 20, step, Origin::Client).unwrap();
        if step % 15 == 12 {
            let mut marker = crate::builder::BatchBuilder::new(BatchOptions {
                is_control: true,
                base_sequence: -1,
                ..options
            })
            .unwrap();
            marker.append(step, Some(&[0, 0, 0, 0]), Some(&[0, 0, 0, 0, 0, 3]), &[]).unwrap();
            let bytes = marker.finish().unwrap();
            fixture.log.append_as_leader(&bytes, 1 + step as i32 / 20, step, Origin::Coordinator).unwrap();
        }
    }
    fixture
}

fn state(log: &Log) -> String {
    let mut producers = log.active_producers();
    producers.sort_by_key(|producer| producer.producer_id);
    let producers: Vec<_> = producers
        .iter()
        .map(|one| (one.producer_id, one.last_sequence(), one.last_offset(), one.current_txn_first_offset))
        .collect();
    let aborted = log.aborted_transactions(0, log.log_end_offset()).unwrap();
    let indexes: Vec<_> = log
        .segment_handles()
        .unwrap()
        .iter()
        .map(|segment| {
            (segment.base_offset(), segment.offset_entries().unwrap(), segment.time_entries().unwrap())
        })
        .collect();
    format!("{:?} {producers:?} {:?} {aborted:?} {indexes:?}", records(log), epochs(log))
}

#[test]
fn recovery_on_threads_finds_the_same() {
    let fixture = rich();
    fixture.log.flush().unwrap();
    assert!(fixture.log.segment_count() > 7 && fixture.log.aborted_transactions(0, 64).unwrap().len() == 4);
    for damage_at in [None, Some((3, 20)), Some((6, 400)), Some((0, 0))] {
        let mut found = Vec::new();
        for threads in [1, 2, 5] {
            let fs = fixture.fs.crash(1 << 20, true);
            if let Some((segment, position)) = damage_at {
                let path = fixture.log.segments().unwrap()[segment].path.clone();
                fs.open(&path, OpenMode::ReadWrite).unwrap().write_all_at(&[&[0x55; 30]], position).unwrap();
            }
            let recovery = Recovery { threads, ..Recovery::default() };
            let log = Log::open_with(Arc::new(fs), Path::new(PATH), small(), unclean(0), &recovery).unwrap();
            let progress = &recovery.progress;
            assert_eq!(progress.segments_done(), progress.segments_total());
            assert_eq!(
                (progress.segments_total(), progress.bytes_done()),
                (fixture.log.segment_count() as u64, progress.bytes_total())
            );
            found.push(state(&log));
        }
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{damage_at:?}");
        assert_eq!(damage_at.is_none(), records(&fixture.log).len() == found[0].matches("\")").count());
    }
}

#[test]
fn an_epoch_checkpoint_that_is_lost_damaged_or_behind_is_rebuilt() {
    let fixture = rich();
    let expected = epochs(&fixture.log);
    assert_eq!(expected.len(), 3);
    fixture.log.close().unwrap();
    let name = "leader-epoch-checkpoint";
    let text = bytes_of(&fixture.fs, name);
    let behind = format!("0\n1\n{} {}\n", expected[0].0, expected[0].1);
    for damage in [
        &b""[..],
        b"garbage",
        b"1\n0\n",
        b"0\n3\n1 0\n",
        b"0\n2\n3 5\n1 9\n",
        b"0\n0\n",
        behind.as_bytes(),
        b"\xff",
    ] {
        for options in [clean(), unclean(0), unclean(40), unclean(64)] {
            let fs = fixture.fs.crash(1 << 20, true);
            overwrite(&fs, name, damage);
            let log = open(&fs, small(), options).unwrap();
            assert_eq!(epochs(&log), expected, "{damage:?} {options:?}");
            assert_eq!(bytes_of(&fs, name), text);
        }
    }
    let fs = fixture.fs.crash(1 << 20, true);
    fs.remove(&file(name)).unwrap();
    assert_eq!(epochs(&open(&fs, small(), clean()).unwrap()), expected);
}

#[test]
fn a_damaged_transaction_index_is_rebuilt_a_missing_one_is_believed() {
    let fixture = rich();
    let expected = fixture.log.aborted_transactions(0, 64).unwrap();
    fixture.log.close().unwrap();
    let names: Vec<_> = names(&fixture.fs).into_iter().filter(|name| name.ends_with(".txnindex")).collect();
    let name = names.iter().find(|name| bytes_of(&fixture.fs, name).len() == 34).unwrap();
    let sound = bytes_of(&fixture.fs, name);
    let mut early = sound.clone();
    early[18..26].fill(0);
    let mut version = sound.clone();
    version[1] = 9;
    for damage in [&sound[..20], &early, &version] {
        let fs = fixture.fs.crash(1 << 20, true);
        overwrite(&fs, name, damage);
        let log = open(&fs, small(), clean()).unwrap();
        assert_eq!(log.aborted_transactions(0, 64).unwrap(), expected);
        assert_eq!(bytes_of(&fs, name), sound);
    }
    // As in Kafka: the file is not there while there is nothing in it, so its absence says nothing.
    let fs = fixture.fs.crash(1 << 20, true);
    fs.remove(&file(name)).unwrap();
    assert_eq!(open(&fs, small(), clean()).unwrap().aborted_transactions(0, 64).unwrap().len(), 3);
    assert_eq!(open(&fs, small(), unclean(0)).unwrap().aborted_transactions(0, 64).unwrap(), expected);
}

#[test]
fn missing_indexes_and_orphans_are_dealt_with() {
    let fixture = rich();
    fixture.log.close().unwrap();
    let expected = state(&open(&fixture.fs, small(), clean()).unwrap());
    let base = format!("{:020}", fixture.log.segments().unwrap()[2].base_offset);
    for suffix in [".index", ".timeindex"] {
        let fs = fixture.fs.crash(1 << 20, true);
        fs.remove(&file(&format!("{base}{suffix}"))).unwrap();
        overwrite(&fs, "00000000000000077777.index", b"12345678");
        overwrite(&fs, "00000000000000077777.txnindex", b"12345678");
        overwrite(&fs, "00000000000000000003.snapshot", b"stray");
        overwrite(&fs, "00000000000000000003.snapshot.deleted", b"stray");
        overwrite(
            &fs,
            "00000000000000000010-0000000001.checkpoint.deleted",
            b"kept: the metadata log owns it",
        );
        let log = open(&fs, small(), clean()).unwrap();
        assert_eq!(state(&log), expected);
        let left: Vec<_> =
            names(&fs).into_iter().filter(|name| name.contains("77777") || name.contains("0003.")).collect();
        assert_eq!(left, Vec::<String>::new());
        assert!(names(&fs).iter().any(|name| name.ends_with(".checkpoint.deleted")));
    }
}

#[test]
fn a_preallocated_segment_is_cut_when_it_is_closed_and_after_a_kill() {
    let config = LogConfig { preallocate: true, ..small() };
    let fixture = Fixture::new(config.clone());
    let size = |fs: &MemoryFileSystem, base: i64| bytes_of(fs, &format!("{base:020}.log")).len() as u64;
    assert_eq!((size(&fixture.fs, 0), fixture.log.size_bytes()), (700, 0));
    for _ in 0..20 {
        fixture.append(1).unwrap();
    }
    fixture.log.flush().unwrap();
    let segments = fixture.log.segments().unwrap();
    let (last, closed) = segments.split_last().unwrap();
    assert!(closed.len() > 1);
    assert!(closed.iter().all(|one| size(&fixture.fs, one.base_offset) == one.size_bytes));
    assert_eq!(size(&fixture.fs, last.base_offset), 700);
    let expected = records(&fixture.log);
    for recovery_point in [0, 13, 20] {
        let fs = fixture.fs.crash(0, false);
        assert_eq!(size(&fs, last.base_offset), 700);
        let log = open(&fs, config.clone(), unclean(recovery_point)).unwrap();
        assert_eq!((records(&log), size(&fs, last.base_offset)), (expected.clone(), last.size_bytes));
    }
    assert!(fixture.log.truncate_to(last.base_offset + 1, 0).unwrap());
    fixture.append(1).unwrap();
    fixture.log.close().unwrap();
    assert_eq!(
        size(&fixture.fs, last.base_offset),
        fixture.log.segments().unwrap().last().unwrap().size_bytes
    );
    // And where the stop is called clean although the zeros are still there.
    assert_eq!(
        records(&open(&fixture.fs.crash(0, false), config, clean()).unwrap()).len(),
        last.base_offset as usize + 2
    );
}

#[test]
fn a_damaged_index_of_the_active_segment_is_rebuilt_even_after_a_clean_stop() {
    let fixture = Fixture::new(small());
    for _ in 0..14 {
        fixture.append(1).unwrap();
    }
    fixture.log.close().unwrap();
    let base = format!("{:020}", fixture.log.segments().unwrap().last().unwrap().base_offset);
    let expected = state(&open(&fixture.fs, small(), clean()).unwrap());
    for (suffix, entry_bytes) in [(".index", 8), (".timeindex", 12)] {
        let name = format!("{base}{suffix}");
        let sound = bytes_of(&fixture.fs, &name);
        assert!(sound.len() >= 2 * entry_bytes, "{suffix}");
        let last = sound.len() - entry_bytes;
        for position in 0..entry_bytes {
            for value in [0x00, 0x7f, 0x80, 0xff] {
                let fs = fixture.fs.crash(1 << 20, true);
                let mut damaged = sound.clone();
                damaged[last + position] = value;
                overwrite(&fs, &name, &damaged);
                let log = open(&fs, small(), clean()).unwrap();
                let context = format!("{suffix} byte {position} is {value:#x}");
                assert_eq!(offsets(&log), (0..14).collect::<Vec<_>>(), "{context}");
                let bytes = batch(14, 1, BatchOptions::default());
                log.append_as_leader(&bytes, 1, 14, Origin::Client).unwrap();
                log.close().unwrap();
                assert_eq!(offsets(&open(&fs, small(), clean()).unwrap()).len(), 15, "{context}");
            }
        }
        overwrite(&fixture.fs, &name, &sound);
    }
    assert_eq!(state(&open(&fixture.fs, small(), clean()).unwrap()), expected);
}
