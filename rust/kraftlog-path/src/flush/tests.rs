use super::*;
use kraftlog_log::fs::MemoryFileSystem;
use kraftlog_log::producer_state::Origin;

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
