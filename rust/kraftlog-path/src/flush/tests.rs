use super::*;
use kraftlog_log::batch::Batches;
use kraftlog_log::fs::MemoryFileSystem;
use kraftlog_log::producer_state::Origin;

use crate::error_code;
use crate::testing::{batch, open_log, token, until, Fixture, Recorder};

#[test]
fn requests_coalesce_until_the_round_begins() {
    let round = Round::default();
    assert!(round.want());
    assert!(!round.want());
    round.begin();
    assert!(!round.want(), "the running round does not cover it");
    assert!(round.end(), "so another follows");
    assert!(!round.want());
    round.begin();
    assert!(!round.end());
    assert!(round.want());
}

#[test]
fn a_bare_log_is_flushed_and_its_inbox_told() {
    let pool = FlushPool::new("flush", 1);
    let log = open_log(&MemoryFileSystem::new(), "/data/m-0");
    log.append_as_leader(&batch("a"), 1, 0, Origin::Client).unwrap();
    let inbox = Arc::new(PythonInbox::new().unwrap());
    pool.request_log(Arc::clone(&log), Arc::clone(&inbox), 7);
    until("flushed", || log.recovery_point() == 1);
    pool.stop();
    let mut events = Vec::new();
    inbox.take(&mut events);
    assert!(matches!(events.as_slice(), [PythonEvent::LogFlushed { token: 7, outcome: Ok(1) }]));
}

#[test]
fn a_caller_that_flushes_itself_leaves_a_round_that_began_alone_and_nothing_to_a_stopped_pool() {
    let fixture = Fixture::new(true);
    let recorder = Arc::new(Recorder::default());
    let append = |id| {
        let ack = Some((&recorder.listener(), token(id)));
        fixture.partition.append(&batch("a"), -1, 0, Origin::Client, ack).unwrap();
    };
    append(0);
    fixture.partition.flush_here();
    assert_eq!((recorder.acks(), fixture.pool.thread_count()), (vec![(0, error_code::NONE)], 0));
    append(1);
    assert!(fixture.partition.round().want());
    fixture.partition.round().begin();
    fixture.partition.flush_here();
    assert_eq!(recorder.acks().len(), 1, "the thread that has the round flushes once more");
    assert!(fixture.partition.round().end());
    fixture.partition.round().begin();
    assert!(!fixture.partition.round().end());
    fixture.pool.stop();
    fixture.partition.flush_here();
    assert_eq!((recorder.acks().len(), fixture.partition.log().recovery_point()), (1, 1));
}

#[test]
fn stepped_flushes_wait_for_their_step_wherever_they_were_asked_for() {
    let pool = Arc::new(FlushPool::stepped("flush"));
    let fixture = Fixture::over(&MemoryFileSystem::new(), 0, true, &pool);
    fixture.partition.append(&batch("a"), 1, 0, Origin::Client, None).unwrap();
    fixture.partition.flush_here();
    assert_eq!((pool.queued_count(), fixture.partition.log().recovery_point()), (1, 0));
    assert!(pool.run_next(0));
    assert_eq!(fixture.partition.log().recovery_point(), 1);
}

#[test]
fn many_partitions_are_flushed_and_the_pool_keeps_to_its_size() {
    let fs = MemoryFileSystem::new();
    let pool = Arc::new(FlushPool::new("flush", 3));
    let recorder = Arc::new(Recorder::default());
    let listener = recorder.listener();
    let fixtures: Vec<Fixture> = (0..20).map(|index| Fixture::over(&fs, index, true, &pool)).collect();
    let mut sent = 0;
    for _ in 0..10 {
        for fixture in &fixtures {
            let ack = Some((&listener, token(sent)));
            fixture.partition.append(&batch("a"), -1, 0, Origin::Client, ack).unwrap();
            fixture.partition.request_flush();
            sent += 1;
        }
    }
    assert!(pool.thread_count() <= 3);
    until("acknowledged", || recorder.acks().len() == 200);
    assert!(recorder.acks().iter().all(|(_, code)| *code == 0));
    pool.stop();
    assert_eq!(pool.thread_count(), 0);
    fixtures[0].partition.append(&batch("a"), 1, 0, Origin::Client, None).unwrap();
    fixtures[0].partition.request_flush();
    assert_eq!(pool.thread_count(), 0, "stopped for good");
}

/// Values of a log after a crash that kept only what was synced, by offset.
fn values_after_crash(fs: &MemoryFileSystem, index: i32) -> Vec<String> {
    let log = open_log(fs, &format!("/data/t-{index}"));
    let bytes = if log.log_end_offset() == 0 {
        Vec::new()
    } else {
        log.read(0, 1 << 20, log.log_end_offset(), true).unwrap().read().unwrap()
    };
    let mut values = Vec::new();
    for batch in Batches::new(&bytes) {
        for record in batch.unwrap().records(&mut Vec::new()).unwrap() {
            values.push(String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap());
        }
    }
    values
}

/// Every acknowledged record is where its token says: the partition in the upper half, the offset in the lower.
fn assert_kept(acks: &[(u64, i16)], fs: &MemoryFileSystem, partitions: i32, when: &str) {
    let values: Vec<_> = (0..partitions).map(|index| values_after_crash(fs, index)).collect();
    for (token, _) in acks.iter().filter(|(_, code)| *code == 0) {
        let (index, offset) = ((token >> 32) as usize, (token & 0xffff_ffff) as usize);
        let expected = format!("{index}-{offset}");
        assert_eq!(values[index].get(offset), Some(&expected), "{when}: acknowledged and lost");
    }
}

/// Append to all partitions from a thread each until a write fails or `count` are appended.
fn append_all(fixtures: &[Fixture], recorder: &Arc<Recorder>, count: u64, meanwhile: impl FnOnce()) -> usize {
    std::thread::scope(|scope| {
        let appenders: Vec<_> = fixtures
            .iter()
            .enumerate()
            .map(|(index, fixture)| {
                let listener = recorder.listener();
                scope.spawn(move || {
                    for offset in 0..count {
                        let ack = token((index as u64) << 32 | offset);
                        let value = batch(&format!("{index}-{offset}"));
                        let partition = &fixture.partition;
                        let appended =
                            partition.append(&value, -1, 0, Origin::Client, Some((&listener, ack)));
                        match appended {
                            Ok(appended) => assert!(!appended.is_committed && appended.needs_flush),
                            Err(error) => {
                                assert_eq!(error.error_code(), error_code::KAFKA_STORAGE_ERROR);
                                return offset as usize;
                            }
                        }
                        partition.request_flush();
                    }
                    count as usize
                })
            })
            .collect();
        meanwhile();
        appenders.into_iter().map(|appender| appender.join().unwrap()).sum()
    })
}

#[test]
fn what_is_acknowledged_survives_a_crash_at_any_moment() {
    for keeps_names in [false, true] {
        let fs = MemoryFileSystem::new();
        let pool = Arc::new(FlushPool::new("flush", 3));
        let recorder = Arc::new(Recorder::default());
        let fixtures: Vec<Fixture> = (0..4).map(|index| Fixture::over(&fs, index, true, &pool)).collect();
        let mut crashes = Vec::new();
        let appended = append_all(&fixtures, &recorder, 100, || {
            for _ in 0..20 {
                // In this order: what is acknowledged later need not be there.
                let acks = recorder.acks();
                crashes.push((acks, fs.crash(0, keeps_names)));
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        assert_eq!(appended, 400);
        until("acknowledged", || recorder.acks().len() == 400);
        pool.stop();
        crashes.push((recorder.acks(), fs.crash(0, keeps_names)));
        for (number, (acks, crashed)) in crashes.iter().enumerate() {
            assert_kept(acks, crashed, 4, &format!("crash {number}"));
        }
    }
}

#[test]
fn a_disk_that_fails_acknowledges_nothing_that_it_did_not_keep() {
    for fails_after in (0..120).step_by(3) {
        let fs = MemoryFileSystem::new();
        let pool = Arc::new(FlushPool::new("flush", 2));
        let recorder = Arc::new(Recorder::default());
        let fixtures: Vec<Fixture> = (0..2).map(|index| Fixture::over(&fs, index, true, &pool)).collect();
        fs.crash_after(fs.change_count() + fails_after);
        let appended = append_all(&fixtures, &recorder, 40, || ());
        until("every wait is over", || recorder.acks().len() == appended);
        pool.stop();
        let acks = recorder.acks();
        assert!(acks.iter().all(|(_, code)| [0, error_code::KAFKA_STORAGE_ERROR].contains(code)));
        assert_kept(&acks, &fs.crash(0, false), 2, &format!("failed after {fails_after}"));
        for fixture in fixtures {
            let failures = fixture
                .events()
                .into_iter()
                .filter(|event| matches!(event, PythonEvent::StorageFailed { .. }));
            let expected = usize::from(fixture.partition.log().poisoned().is_some());
            assert_eq!(failures.count(), expected, "Python gets one event");
        }
    }
}

#[test]
fn a_round_that_could_not_begin_stays_queued() {
    let round = Round::default();
    assert!(round.want());
    round.begin();
    round.delay();
    assert!(!round.want(), "it is queued still");
    round.begin();
    assert!(!round.end());
}
