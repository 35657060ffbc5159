use super::super::testing::{names, open, unclean, Fixture, PATH};
use super::super::{CleanupPolicy, LogConfig};
use super::*;
use crate::batch::{Batches, TimestampType};
use crate::builder::{BatchBuilder, BatchOptions};
use crate::compression::Codec;
use crate::fs::{FileSystem, OpenMode, Operation};
use crate::producer_state::Origin;
use std::path::Path;

mod model;

const RETENTION_MS: i64 = 1000;

fn config() -> LogConfig {
    LogConfig { segment_bytes: 600, index_interval_bytes: 100, ..LogConfig::default() }
}

fn compact(config: LogConfig) -> LogConfig {
    LogConfig { cleanup_policy: CleanupPolicy { delete: false, compact: true }, ..config }
}

fn options(now_ms: i64) -> CleanOptions<'static> {
    CleanOptions {
        now_ms,
        delete_retention_ms: RETENTION_MS,
        io_buffer_bytes: 4096,
        ..CleanOptions::default()
    }
}

type Pair = (Option<&'static str>, Option<&'static str>);

fn batch(options: BatchOptions, from_ms: i64, records: &[Pair]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options).unwrap();
    for (number, (key, value)) in records.iter().enumerate() {
        let header: [(&[u8], Option<&[u8]>); 1] = [(b"h", Some(b"x"))];
        let headers = if number % 2 == 1 { &header[..] } else { &[] };
        builder
            .append(from_ms + number as i64, key.map(str::as_bytes), value.map(str::as_bytes), headers)
            .unwrap();
    }
    builder.finish().unwrap()
}

/// Offset, key, value and timestamp of every record that is no marker.
pub(super) type Row = (i64, Option<Vec<u8>>, Option<Vec<u8>>, i64);

pub(super) fn rows(log: &Log) -> Vec<Row> {
    let mut rows = Vec::new();
    for bytes in segment_bytes(log) {
        for batch in Batches::new(&bytes) {
            let batch = batch.unwrap();
            batch.validate_crc().unwrap();
            if batch.is_control() {
                continue;
            }
            for record in batch.records(&mut Vec::new()).unwrap() {
                let record = record.unwrap();
                let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                rows.push((record.offset, own(record.key), own(record.value), record.timestamp));
            }
        }
    }
    rows
}

pub(super) fn segment_bytes(log: &Log) -> Vec<Vec<u8>> {
    let read = |segment: Arc<Segment>| {
        let mut bytes = vec![0; segment.size_bytes() as usize];
        segment.file().unwrap().read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    log.segment_handles().unwrap().into_iter().map(read).collect()
}

fn text(rows: &[Row]) -> Vec<String> {
    let show = |bytes: &Option<Vec<u8>>| match bytes {
        Some(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        None => "-".to_owned(),
    };
    rows.iter().map(|(offset, key, value, _)| format!("{offset}:{}={}", show(key), show(value))).collect()
}

fn fixture_with(batches: &[Vec<u8>]) -> Fixture {
    let fixture = Fixture::new(config());
    for bytes in batches {
        fixture.append_bytes(bytes, 0).unwrap();
    }
    fixture.log.roll(0).unwrap();
    fixture
}

#[test]
fn the_latest_of_each_key_stays_with_its_offset_and_time() {
    for codec in Codec::ALL {
        let options_of = |codec| BatchOptions { codec, ..BatchOptions::default() };
        let fixture = fixture_with(&[
            batch(
                options_of(codec),
                10,
                &[(Some("a"), Some("1")), (Some("b"), Some("1")), (Some("c"), Some("1"))],
            ),
            batch(options_of(codec), 20, &[(Some("a"), Some("2")), (None, Some("no key"))]),
            batch(options_of(codec), 30, &[(Some("d"), Some("1"))]),
        ]);
        let report = fixture.log.clean(&options(0)).unwrap();
        assert_eq!(report.outcome, CleanOutcome::Completed);
        assert_eq!((report.next_dirty_offset, report.map_keys), (6, 4));
        assert_eq!((report.messages_read, report.messages_retained, report.invalid_messages), (6, 4, 1));
        let rows = rows(&fixture.log);
        assert_eq!(text(&rows), ["1:b=1", "2:c=1", "3:a=2", "5:d=1"]);
        assert_eq!(rows.iter().map(|row| row.3).collect::<Vec<_>>(), [11, 12, 20, 30]);
        let bytes = segment_bytes(&fixture.log).concat();
        let facts: Vec<_> = Batches::new(&bytes)
            .map(|batch| {
                let batch = batch.unwrap();
                assert_eq!(batch.codec(), Ok(codec));
                (
                    batch.base_offset(),
                    batch.last_offset(),
                    batch.max_timestamp(),
                    batch.partition_leader_epoch(),
                )
            })
            .collect();
        assert_eq!(facts, [(0, 2, 12, 1), (3, 4, 20, 1), (5, 5, 30, 1)]);
    }
}

#[test]
fn tombstones_stay_until_the_horizon_that_the_first_clean_sets() {
    let fixture = fixture_with(&[
        batch(BatchOptions::default(), 10, &[(Some("a"), Some("1")), (Some("b"), Some("1"))]),
        batch(BatchOptions::default(), 20, &[(Some("a"), None), (Some("c"), Some("1"))]),
    ]);
    let clean = |now_ms: i64| {
        fixture.append_bytes(&batch(BatchOptions::default(), 30, &[(Some("z"), Some("1"))]), 0).unwrap();
        fixture.log.roll(0).unwrap();
        fixture.log.clean(&options(now_ms)).unwrap();
        text(&rows(&fixture.log))
    };
    assert_eq!(clean(5000), ["1:b=1", "2:a=-", "3:c=1", "4:z=1"]);
    let bytes = segment_bytes(&fixture.log).concat();
    let horizons: Vec<_> = Batches::new(&bytes).map(|batch| batch.unwrap().delete_horizon_ms()).collect();
    assert_eq!(horizons, [None, Some(5000 + RETENTION_MS), None]);
    assert_eq!(rows(&fixture.log).iter().map(|row| row.3).collect::<Vec<_>>(), [11, 20, 21, 30]);
    assert_eq!(clean(5000 + RETENTION_MS - 1), ["1:b=1", "2:a=-", "3:c=1", "5:z=1"]);
    assert_eq!(clean(5000 + RETENTION_MS), ["1:b=1", "3:c=1", "6:z=1"]);
}

#[test]
fn log_append_time_stays() {
    let fixture = Fixture::new(LogConfig { timestamp_type: TimestampType::LogAppendTime, ..config() });
    for (now_ms, value) in [(100, "1"), (200, "2")] {
        let bytes = batch(BatchOptions::default(), 7, &[(Some("a"), Some(value)), (Some("a"), Some(value))]);
        fixture.append_bytes(&bytes, now_ms).unwrap();
    }
    fixture.log.roll(0).unwrap();
    fixture.log.clean(&options(0)).unwrap();
    assert_eq!(rows(&fixture.log), [(3, Some(b"a".to_vec()), Some(b"2".to_vec()), 200)]);
}

#[test]
fn a_full_map_cleans_up_to_where_it_reached() {
    let one = |key| batch(BatchOptions::default(), 0, &[(Some(key), Some("1")), (Some(key), Some("2"))]);
    let fixture = fixture_with(&[one("a"), one("b"), one("c"), one("a")]);
    let memory = CleanOptions { dedupe_buffer_bytes: 24 * 3, load_factor: 0.7, ..options(0) };
    let first = fixture.log.clean(&memory).unwrap();
    assert!(first.map_is_full);
    assert_eq!((first.map_keys, first.next_dirty_offset), (2, 3));
    assert_eq!(text(&rows(&fixture.log)), ["1:a=2", "2:b=1", "3:b=2", "4:c=1", "5:c=2", "6:a=1", "7:a=2"]);
    let mut next = first.next_dirty_offset;
    while next < 8 {
        let report = fixture.log.clean(&CleanOptions { first_dirty_offset: next, ..memory }).unwrap();
        assert!(report.next_dirty_offset > next);
        next = report.next_dirty_offset;
    }
    assert_eq!(text(&rows(&fixture.log)), ["3:b=2", "5:c=2", "7:a=2"]);
    let none = CleanOptions { dedupe_buffer_bytes: 24, load_factor: 0.9, ..options(0) };
    assert!(matches!(fixture.log.clean(&none), Err(Error::Invalid(_))));
}

#[test]
fn segments_merge_and_what_is_past_the_bound_stays() {
    let fixture = Fixture::new(config());
    for number in 0..60 {
        let key = ["a", "b", "c"][number % 3];
        fixture.append_bytes(&batch(BatchOptions::default(), 0, &[(Some(key), Some("1"))]), 0).unwrap();
    }
    let before = fixture.log.segments().unwrap();
    let bound = before[before.len() - 3].base_offset;
    let report =
        fixture.log.clean(&CleanOptions { first_uncleanable_offset: bound + 1, ..options(0) }).unwrap();
    assert_eq!(report.next_dirty_offset, bound);
    let after = fixture.log.segments().unwrap();
    assert_eq!(after.len() as u64, 3 + report.segments_written);
    assert_eq!(after.last(), before.last());
    let kept = rows(&fixture.log);
    assert_eq!(kept.iter().filter(|row| row.0 < bound).count(), 3);
    assert_eq!(kept.iter().filter(|row| row.0 >= bound).count() as i64, 60 - bound);
    assert!(names(&fixture.fs).iter().all(|name| !name.ends_with(".cleaned") && !name.ends_with(".swap")));
}

#[test]
fn a_damaged_batch_ends_the_clean_and_leaves_the_log() {
    let fixture = fixture_with(&[
        batch(BatchOptions::default(), 0, &[(Some("a"), Some("1"))]),
        batch(BatchOptions::default(), 0, &[(Some("a"), Some("2"))]),
    ]);
    let before = segment_bytes(&fixture.log);
    let path = Path::new(PATH).join("00000000000000000000.log");
    let handle = fixture.fs.open(&path, OpenMode::ReadWrite).unwrap();
    let last = before[0].len() as u64 - 1;
    handle.write_all_at(&[b"\xff"], last).unwrap();
    let error = fixture.log.clean(&options(0)).unwrap_err();
    assert!(error.to_string().contains("00000000000000000000.log"), "{error}");
    assert!(matches!(error, Error::Corrupt { base_offset: 1, .. }), "{error}");
    handle.truncate(last).unwrap();
    assert!(fixture.log.clean(&options(0)).is_err());
    assert_eq!(fixture.log.poisoned(), None);
    assert!(names(&fixture.fs).iter().all(|name| !name.ends_with(".cleaned")));
}

#[test]
fn a_cancelled_or_failed_clean_leaves_the_log_and_can_be_repeated() {
    let fixture =
        fixture_with(&[batch(BatchOptions::default(), 0, &[(Some("a"), Some("1")), (Some("a"), Some("2"))])]);
    let flag = CancelFlag::default();
    flag.cancel();
    let report = fixture.log.clean(&CleanOptions { cancel: Some(&flag), ..options(0) }).unwrap();
    assert_eq!((report.outcome, report.next_dirty_offset), (CleanOutcome::Cancelled, 0));
    fixture.fs.fail(Operation::Read, 1, libc::EIO);
    assert!(matches!(fixture.log.clean(&options(0)), Err(Error::Io { .. })));
    fixture.fs.set_capacity(Some(100));
    assert!(matches!(fixture.log.clean(&options(0)), Err(Error::Io { .. })));
    fixture.fs.set_capacity(None);
    assert_eq!(text(&rows(&fixture.log)), ["0:a=1", "1:a=2"]);
    assert_eq!(fixture.log.poisoned(), None);
    fixture.log.clean(&options(0)).unwrap();
    assert_eq!(text(&rows(&fixture.log)), ["1:a=2"]);
}

#[test]
fn one_batch_larger_than_the_buffer_is_read_whole() {
    let value: &'static str = Box::leak("x".repeat(9000).into_boxed_str());
    let fixture = Fixture::new(LogConfig { segment_bytes: 100_000, ..config() });
    for _ in 0..2 {
        let records = [(Some("a"), Some(value)), (Some("b"), Some(value))];
        fixture.append_bytes(&batch(BatchOptions::default(), 0, &records), 0).unwrap();
    }
    fixture.log.roll(0).unwrap();
    let report = fixture.log.clean(&CleanOptions { io_buffer_bytes: 1, ..options(0) }).unwrap();
    assert_eq!((report.messages_read, report.messages_retained), (4, 2));
}

#[test]
fn a_clean_is_overtaken_by_a_truncation_even_if_the_log_has_grown_again() {
    let two = || batch(BatchOptions::default(), 0, &[(Some("a"), Some("1")), (Some("a"), Some("2"))]);
    let fixture = fixture_with(&[two(), two()]);
    let truncations = fixture.log.truncations().unwrap();
    let cleaned = fixture.log.create_cleaned(0, 0).unwrap();
    let old = fixture.log.segment_handles().unwrap();
    fixture.log.truncate_to(2, 0).unwrap();
    fixture
        .append_bytes(
            &batch(BatchOptions::default(), 0, &[(Some("b"), Some("3")), (Some("b"), Some("4"))]),
            0,
        )
        .unwrap();
    fixture.log.roll(0).unwrap();
    assert!(!fixture.log.replace_segments_since(vec![cleaned], &old[..1], 0, Some(truncations)).unwrap());
    assert_eq!(text(&rows(&fixture.log)), ["0:a=1", "1:a=2", "2:b=3", "3:b=4"]);
    fixture.log.clean(&options(0)).unwrap();
    assert_eq!(text(&rows(&fixture.log)), ["1:a=2", "3:b=4"]);
}

/// Several segments in two groups, with transactions, a tombstone and an idempotent producer.
fn eventful() -> Fixture {
    let fixture = Fixture::new(LogConfig { segment_bytes: 400, ..config() });
    for number in 0..6 {
        let txn = BatchOptions {
            producer_id: 9,
            producer_epoch: 0,
            base_sequence: number * 2,
            is_transactional: true,
            ..BatchOptions::default()
        };
        let value = if number == 3 { None } else { Some("value that takes some bytes") };
        fixture.append_bytes(&batch(txn, 0, &[(Some("a"), value), (Some("b"), Some("1"))]), 0).unwrap();
        let mut marker =
            BatchBuilder::new(BatchOptions { is_control: true, base_sequence: -1, ..txn }).unwrap();
        marker.append(0, Some(&[0, 0, 0, (number % 2) as u8]), Some(&[0, 0, 0, 0, 0, 3]), &[]).unwrap();
        fixture.log.append_as_leader(&marker.finish().unwrap(), 1, 0, Origin::Coordinator).unwrap();
        fixture.append_bytes(&batch(BatchOptions::default(), 0, &[(Some("c"), Some("2"))]), 0).unwrap();
    }
    fixture.log.roll(0).unwrap();
    fixture.log.update_high_watermark(fixture.log.log_end_offset());
    fixture.log.flush().unwrap();
    fixture
}

#[test]
fn a_crash_at_every_point_of_a_clean_keeps_the_latest_and_the_next_clean_ends_alike() {
    let reopen = |fs: &crate::fs::MemoryFileSystem, end_offset: i64| {
        open(fs, compact(LogConfig { segment_bytes: 400, ..config() }), unclean(end_offset)).unwrap()
    };
    let expected = {
        let fixture = eventful();
        fixture.log.clean(&options(7)).unwrap();
        assert!(fixture.log.segment_count() > 2);
        rows(&fixture.log)
    };
    let end_offset = eventful().log.log_end_offset();
    for keeps_names in [false, true] {
        let mut points = 0;
        for crash_at in 0.. {
            let fixture = eventful();
            let before = rows(&fixture.log);
            fixture.fs.crash_after(fixture.fs.change_count() + crash_at);
            let is_over = fixture.log.clean(&options(7)).is_ok();
            let fs = fixture.fs.crash(0, keeps_names);
            let log = reopen(&fs, end_offset);
            assert_eq!(log.log_end_offset(), end_offset);
            let found = rows(&log);
            assert!(
                found.iter().all(|row| before.contains(row)),
                "crash at {crash_at}: {}",
                text(&found).join(" ")
            );
            assert!(
                expected.iter().all(|row| found.contains(row)),
                "crash at {crash_at}: {}",
                text(&found).join(" ")
            );
            assert!(names(&fs).iter().all(|name| !name.ends_with(".cleaned") && !name.ends_with(".swap")));
            log.update_high_watermark(end_offset);
            log.clean(&options(7)).unwrap();
            assert_eq!(rows(&log), expected, "crash at {crash_at}");
            points += 1;
            if is_over {
                break;
            }
        }
        assert!(points > 50, "only {points} points");
    }
}
