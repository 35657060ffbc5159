//! Rolling, retention, truncation and poisoning, one test a line of what Kafka's log does.
use super::testing::*;
use super::*;
use crate::builder::BatchOptions;
use crate::fs::Operation;
use crate::log::{CleanupPolicy, LogConfig};
use crate::producer_state::Origin;

/// One record with this timestamp, appended at that time.
fn append_at(fixture: &Fixture, timestamp: i64, now_ms: i64) -> bool {
    let bytes = batch(timestamp, 1, BatchOptions::default());
    fixture.append_bytes(&bytes, now_ms).unwrap().is_rolled
}

fn roomy() -> LogConfig {
    LogConfig { timestamp_after_max_ms: i64::MAX, ..LogConfig::default() }
}

#[test]
fn a_segment_rolls_by_record_time_and_else_by_its_age() {
    let fixture = Fixture::new(LogConfig { segment_ms: 100, ..roomy() });
    assert!(!append_at(&fixture, 1000, 0));
    assert!(!append_at(&fixture, 1100, 1_000_000), "the clock does not count while records have times");
    assert!(!append_at(&fixture, 5, 0), "nor does a record from the past");
    assert!(append_at(&fixture, 1101, 0));
    let fixture = Fixture::new(LogConfig { segment_ms: 100, ..roomy() });
    assert!(!append_at(&fixture, -1, 0));
    assert!(!append_at(&fixture, -1, 100));
    assert!(append_at(&fixture, -1, 101));
    assert!(!append_at(&fixture, -1, 201), "counted from when the segment was made");
}

#[test]
fn the_jitter_is_drawn_once_per_segment_from_the_seed() {
    let draw = |seed, base| {
        let config =
            LogConfig { segment_ms: 1000, segment_jitter_ms: 400, segment_jitter_seed: seed, ..roomy() };
        config.segment_config(Path::new(PATH), base).roll_jitter_ms
    };
    let drawn: Vec<i64> = (0..200).map(|base| draw(1, base)).collect();
    assert!(drawn.iter().all(|jitter| (0..400).contains(jitter)));
    assert!(drawn.iter().min() < Some(&40) && drawn.iter().max() > Some(&360));
    assert_eq!(drawn, (0..200).map(|base| draw(1, base)).collect::<Vec<_>>());
    assert_ne!(drawn, (0..200).map(|base| draw(2, base)).collect::<Vec<_>>());
    let seed = (0..).find(|seed| draw(*seed, 0) > 200).unwrap();
    let config = LogConfig { segment_ms: 1000, segment_jitter_ms: 400, segment_jitter_seed: seed, ..roomy() };
    let fixture = Fixture::new(config);
    let limit = 1000 - draw(seed, 0);
    append_at(&fixture, 0, 0);
    assert!(!append_at(&fixture, limit, 0));
    assert!(append_at(&fixture, limit + 1, 0));
}

#[test]
fn a_segment_rolls_when_an_index_is_full() {
    // One slot of the time index stays free for the entry that closes the segment.
    for (segment_index_bytes, rolls_at) in [(24, 3), (36, 5), (48, 7)] {
        let config = LogConfig { segment_index_bytes, index_interval_bytes: 0, ..roomy() };
        let fixture = Fixture::new(config);
        let rolled: Vec<bool> = (0..12).map(|time| append_at(&fixture, time, 0)).collect();
        let first = rolled.iter().position(|rolled| *rolled).unwrap();
        let entries = fixture.log.segment_handles().unwrap()[0].offset_entries().unwrap().len();
        assert!(
            first <= rolls_at && entries * 12 < segment_index_bytes as usize,
            "{segment_index_bytes}: {rolled:?}"
        );
        assert_eq!(offsets(&fixture.log), (0..12).collect::<Vec<_>>());
    }
}

#[test]
fn a_segment_rolls_before_an_offset_too_large_for_its_index() {
    let fixture = Fixture::new(roomy());
    let at = |base_offset| batch(0, 2, BatchOptions { base_offset, ..BatchOptions::default() });
    let far = i64::from(i32::MAX);
    let mut rolled = Vec::new();
    for base_offset in [0, 10, far - 1, far + 1, 2 * far + 1, 2 * far + 3] {
        rolled.push(fixture.log.append_as_follower(&at(base_offset), 1, 0).unwrap().is_rolled);
    }
    assert_eq!(rolled, [false, false, false, true, true, false]);
    assert_eq!(bases(&fixture.log), [0, far + 1, 2 * far + 1]);
    assert_eq!(offsets(&fixture.log).len(), 12);
}

#[test]
fn retention_counts_from_the_largest_time_even_a_future_one() {
    let config = LogConfig { segment_bytes: 200, retention_ms: 1000, ..roomy() };
    let fixture = Fixture::new(config);
    for time in [100, 100, 1_000_000, 100, 100, 100] {
        append_at(&fixture, time, 0);
    }
    fixture.fs.set_now_ms(500);
    let all = bases(&fixture.log);
    assert_eq!(all, [0, 2, 4]);
    assert_eq!(fixture.log.delete_old_segments(1100, 6).unwrap(), [0_i64; 0]);
    assert_eq!(
        fixture.log.delete_old_segments(1101, 1).unwrap(),
        [0_i64; 0],
        "not beyond the high watermark"
    );
    assert_eq!(
        fixture.log.delete_old_segments(1101, 6).unwrap(),
        [0],
        "a record from the future keeps what follows"
    );
    assert_eq!(fixture.log.log_start_offset(), 2);
    assert_eq!(fixture.log.delete_old_segments(1_001_001, 5).unwrap(), [2]);
    assert_eq!(
        fixture.log.delete_old_segments(1_001_001, 6).unwrap(),
        [4],
        "the active one goes after a roll"
    );
    assert_eq!((bases(&fixture.log), fixture.log.log_end_offset()), (vec![6], 6));
    assert_eq!(fixture.log.delete_old_segments(i64::MAX, 6).unwrap(), [0_i64; 0], "an empty log stays");
}

#[test]
fn without_times_retention_goes_by_the_file() {
    let fixture = Fixture::new(LogConfig { segment_bytes: 200, retention_ms: 1000, ..roomy() });
    fixture.fs.set_now_ms(50_000);
    for _ in 0..3 {
        append_at(&fixture, -1, 50_000);
    }
    assert_eq!(fixture.log.delete_old_segments(51_000, 3).unwrap(), [0_i64; 0]);
    assert_eq!(fixture.log.delete_old_segments(51_001, 3).unwrap(), [0, 2]);
}

#[test]
fn size_and_log_start_retention_also_with_compaction() {
    let compact = CleanupPolicy { delete: false, compact: true };
    let policies = [(CleanupPolicy { delete: true, compact: false }, 2), (compact, 1)];
    for (cleanup_policy, expected) in policies {
        let config = LogConfig { segment_bytes: 200, retention_bytes: 350, retention_ms: -1, ..roomy() };
        let fixture = Fixture::new(config.clone());
        for _ in 0..10 {
            fixture.append(1).unwrap();
        }
        assert_eq!(bases(&fixture.log), [0, 2, 4, 6, 8]);
        fixture.log.update_config(LogConfig { cleanup_policy, ..config });
        fixture.log.advance_log_start_offset(3).unwrap();
        assert_eq!(fixture.log.delete_old_segments(0, 10).unwrap().len(), expected);
        assert_eq!(fixture.log.log_start_offset(), if expected == 1 { 3 } else { 4 });
    }
}

#[test]
fn delete_records_keeps_the_epoch_and_the_producers() {
    let fixture = Fixture::new(small());
    for sequence in 0..10 {
        let options = BatchOptions {
            producer_id: 4,
            producer_epoch: 0,
            base_sequence: sequence,
            ..BatchOptions::default()
        };
        let epoch = 1 + sequence / 4;
        fixture.log.append_as_leader(&batch(0, 1, options), epoch, 0, Origin::Client).unwrap();
    }
    assert!(fixture.log.advance_log_start_offset(6).unwrap());
    assert!(!fixture.log.advance_log_start_offset(5).unwrap());
    let epochs: Vec<_> =
        fixture.log.epoch_entries().iter().map(|one| (one.epoch, one.start_offset)).collect();
    assert_eq!(epochs, [(2, 6), (3, 8)]);
    assert_eq!(fixture.log.end_offset_for_epoch(1), (1, 6));
    assert_eq!(fixture.log.active_producers()[0].last_sequence(), 9);
    assert!(matches!(fixture.log.read(5, 100, 10, true), Err(Error::OffsetOutOfRange { .. })));
    assert!(matches!(fixture.log.advance_log_start_offset(11), Err(Error::OffsetOutOfRange { .. })));
    assert!(fixture.log.assign_epoch_start(-1, 5).is_err() && fixture.log.assign_epoch_start(5, -1).is_err());
}

#[test]
fn what_was_deleted_stays_deleted_after_a_crash() {
    let fixture = Fixture::new(roomy());
    for epoch in [1, 1, 2, 2] {
        let bytes = batch(0, 2, BatchOptions::default());
        fixture.log.append_as_leader(&bytes, epoch, 0, Origin::Client).unwrap();
    }
    fixture.log.flush().unwrap();
    let reopened = |options| open(&fixture.fs.crash(0, false), roomy(), options).unwrap();
    // A checkpoint behind the end of the log: it begins anew there.
    let cut = open(&fixture.fs.crash(0, false), roomy(), OpenOptions { log_start_offset: 9, ..unclean(0) })
        .unwrap();
    assert_eq!((cut.log_start_offset(), cut.log_end_offset()), (9, 9));
    for (deleted_end, epoch) in [(1, 1), (2, 1), (5, 2), (8, 2)] {
        fixture.log.advance_log_start_offset(deleted_end).unwrap();
        let log = reopened(unclean(0));
        assert_eq!(log.log_start_offset(), deleted_end);
        let first = log.epoch_entries()[0];
        assert_eq!((first.epoch, first.start_offset), (epoch, deleted_end));
        let event = &log.recovery_events()[0];
        assert_eq!((event.kind.name(), event.offset), ("log-start-kept", deleted_end));
    }
    // A checkpoint that a clean end left is right, and so is one that is ahead.
    assert_eq!(reopened(clean()).log_start_offset(), 0);
    let ahead = OpenOptions { log_start_offset: 8, ..unclean(0) };
    assert!(reopened(ahead).recovery_events().is_empty());
}

#[test]
fn deleted_segments_that_come_back_in_part_are_no_hole() {
    let fixture = Fixture::new(small());
    for _ in 0..30 {
        fixture.append(2).unwrap();
    }
    let bases = bases(&fixture.log);
    assert!(bases.len() > 4, "{bases:?}");
    fixture.log.advance_log_start_offset(bases[3] + 1).unwrap();
    fixture.log.flush().unwrap();
    let end_offset = fixture.log.log_end_offset();
    assert_eq!(fixture.log.delete_old_segments(0, end_offset).unwrap(), bases[..3]);
    // The rename of the first one is lost, those of the others are not.
    let name = |suffix| Path::new(PATH).join(format!("{:020}.log{suffix}", bases[0]));
    fixture.fs.rename(&name(".deleted"), &name("")).unwrap();
    let log = open(&fixture.fs, small(), unclean(0)).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (bases[3] + 1, end_offset));
    let lost: u64 = log.recovery_events().iter().map(|event| event.lost_bytes).sum();
    assert_eq!(lost, 0, "{:?}", log.recovery_events());
}

#[test]
fn an_epoch_that_begins_behind_records_without_one_deletes_nothing() {
    let fixture = Fixture::new(roomy());
    for epoch in [-1, 3] {
        let bytes = batch(0, 2, BatchOptions::default());
        fixture.log.append_as_leader(&bytes, epoch, 0, Origin::Client).unwrap();
    }
    fixture.log.flush().unwrap();
    let log = open(&fixture.fs.crash(0, false), roomy(), unclean(0)).unwrap();
    assert_eq!((log.log_start_offset(), log.epoch_entries()[0].start_offset), (0, 2));
}

#[test]
fn a_truncation_keeps_the_recovery_point_before_it_cuts() {
    let fixture = Fixture::new(small());
    for _ in 0..10 {
        fixture.append(3).unwrap();
    }
    fixture.log.flush().unwrap();
    let mut kept = Vec::new();
    let mut keep = |recovery_point| {
        kept.push((recovery_point, fixture.log.log_end_offset(), fixture.log.recovery_point()));
        Ok(())
    };
    assert!(!fixture.log.truncate_to_with(30, 0, &mut keep).unwrap());
    assert!(fixture.log.truncate_to_with(20, 0, &mut keep).unwrap());
    fixture.log.truncate_fully_and_start_at_with(50, 0, &mut keep).unwrap();
    assert_eq!(kept, [(18, 30, 18), (0, 18, 0)]);
    let mut refuse = |_| Err(Error::Invalid("disk full".to_owned()));
    for _ in 0..10 {
        fixture.append(3).unwrap();
    }
    assert!(fixture.log.truncate_to_with(60, 0, &mut refuse).is_err());
    assert!(fixture.log.truncate_fully_and_start_at_with(60, 0, &mut refuse).is_err());
    assert_eq!((fixture.log.log_end_offset(), fixture.log.poisoned()), (80, None));
}

/// Truncate, write other records over it and flush, with the checkpoint the truncation was told.
#[test]
fn a_crash_in_a_truncation_never_brings_old_records_back() {
    for keeps_names in [false, true] {
        for crash_at in 0.. {
            let fixture = Fixture::new(small());
            for _ in 0..30 {
                fixture.append(1).unwrap();
            }
            let mut checkpoint = fixture.log.flush().unwrap();
            fixture.fs.crash_after(fixture.fs.change_count() + crash_at);
            let mut keep = |recovery_point| {
                checkpoint = recovery_point;
                Ok(())
            };
            let run = || -> Result<()> {
                fixture.log.truncate_to_with(11, 0, &mut keep)?;
                for _ in 0..8 {
                    let bytes = batch(500, 1, BatchOptions::default());
                    fixture.log.append_as_leader(&bytes, 2, 0, Origin::Client)?;
                }
                fixture.log.flush().map(drop)
            };
            let is_over = { run }().is_ok();
            let log = open(&fixture.fs.crash(0, keeps_names), small(), unclean(checkpoint)).unwrap();
            let found = records(&log);
            let old = found.iter().filter(|(offset, value)| *value == format!("{offset:08}")).count();
            let context = format!("crash at {crash_at}: {found:?}");
            assert!(old >= 11 && (old == found.len() || old == 11), "{context}");
            assert!(found.iter().map(|(offset, _)| *offset).eq(0..found.len() as i64), "{context}");
            assert!(!is_over || found.len() == 19, "{context}");
            if is_over {
                break;
            }
        }
    }
}

#[test]
fn a_failed_sidecar_poisons_as_well() {
    type Act = fn(&Fixture) -> Result<()>;
    let acts: [(&str, Act); 5] = [
        ("epoch", |fixture| fixture.log.assign_epoch_start(9, 2)),
        ("roll", |fixture| fixture.log.roll(0).map(drop)),
        ("snapshot", |fixture| fixture.log.take_producer_snapshot()),
        ("truncate", |fixture| fixture.log.truncate_to(1, 0).map(drop)),
        ("metadata", |fixture| fixture.log.write_partition_metadata([7; 16])),
    ];
    for (name, act) in acts {
        for operation in [Operation::Write, Operation::Sync, Operation::Change] {
            let fixture = Fixture::new(small());
            fixture.append(1).unwrap();
            fixture.append(1).unwrap();
            fixture.fs.fail(operation, 0, libc::ENOSPC);
            let failed = act(&fixture);
            if failed.is_ok() {
                continue;
            }
            assert!(matches!(failed, Err(Error::Io { .. })), "{name} {operation:?}");
            let context = format!("{name} {operation:?}");
            assert!(matches!(fixture.append(1), Err(Error::Poisoned { .. })), "{context}");
            assert!(matches!(fixture.log.flush(), Err(Error::Poisoned { .. })), "{context}");
            assert!(matches!(fixture.log.read(0, 9, 2, true), Err(Error::Poisoned { .. })), "{context}");
            assert!(fixture.log.poisoned().is_some_and(|reason| reason.contains("t-0")), "{context}");
            let log = open(&fixture.fs, small(), unclean(0)).unwrap();
            assert!(offsets(&log).starts_with(&[0]), "{context}");
        }
    }
}
