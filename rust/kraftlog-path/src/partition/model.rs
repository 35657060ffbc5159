//! Orders of threads at one partition, tried by loom: appends and fetches of followers against assignments, flushes and
//! withdrawals.
//!
//! The engine below runs for real, over a file system in memory. It has locks of its own and none of loom's, so that each of
//! its calls is one step here.
use std::sync::Arc;

use kraftlog_log::producer_state::Origin;
use loom::thread;

use super::*;
use crate::core::FollowerFetch;
use crate::testing::{assignment, batch, token, Fixture, Recorder, NODE};

/// In words; an append of the engine without optimisation needs more than the 4096 that loom gives.
const STACK_WORDS: usize = 1 << 16;

fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(STACK_WORDS).spawn(work).unwrap()
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    let model = Arc::new(model);
    // The first thread has a small stack and only waits.
    builder.check(move || {
        let model = Arc::clone(&model);
        spawn(move || model()).join().unwrap();
    });
}

fn append(partition: &Partition, listener: &Arc<dyn Listener>, id: u64) -> Result<Appended, AppendError> {
    partition.append(&batch("a"), -1, 0, Origin::Client, Some((listener, token(id))))
}

/// What the pool does for a partition, on the caller's thread.
fn flush(partition: &Partition) {
    if !partition.round.want() {
        return;
    }
    loop {
        partition.round.begin();
        partition.flush_ended(partition.log.flush());
        if !partition.round.end() {
            return;
        }
    }
}

#[test]
fn model_nothing_of_an_older_epoch_is_appended_after_an_assignment() {
    explore(|| {
        let fixture = Fixture::new(false);
        let partition = Arc::clone(&fixture.partition);
        let listener = Arc::new(Recorder::default()).listener();
        let appender = spawn(move || append(&partition, &listener, 1).map(|appended| appended.leader_epoch));
        let partition = &fixture.partition;
        partition.assign(assignment(2, 2, 1, &[NODE, 2], &[2]), 0);
        let end_offset = partition.log.log_end_offset();
        match appender.join().unwrap() {
            Ok(epoch) => assert_eq!((epoch, end_offset), (1, 1)),
            Err(error) => assert_eq!(error.error_code(), error_code::NOT_LEADER_OR_FOLLOWER),
        }
        assert_eq!(partition.log.log_end_offset(), end_offset);
        assert_eq!(partition.high_watermark(), end_offset);
    });
}

#[test]
fn model_an_append_carries_the_epoch_under_which_it_lands() {
    explore(|| {
        let fixture = Fixture::new(false);
        let partition = Arc::clone(&fixture.partition);
        let listener = Arc::new(Recorder::default()).listener();
        let appender = spawn(move || append(&partition, &listener, 1).unwrap().leader_epoch);
        let partition = &fixture.partition;
        let assigned = partition.assign(assignment(NODE, 2, 1, &[NODE], &[NODE]), 0);
        let end_offset = assigned.epoch_start.map(|(_, start_offset)| start_offset);
        let epoch = appender.join().unwrap();
        // Epoch 2 begins behind what was appended in epoch 1; the log knows it already if it has a batch of it.
        assert_eq!(end_offset.unwrap_or(0), i64::from(epoch == 1));
        assert_eq!(partition.log.epoch_for_offset(0), Some(epoch));
    });
}

#[test]
fn model_every_append_is_acknowledged_once_by_rounds_that_coalesce() {
    explore(|| {
        let fixture = Fixture::new(true);
        let recorder = Arc::new(Recorder::default());
        let appenders: Vec<_> = (1..=2)
            .map(|id| {
                let (partition, listener) = (Arc::clone(&fixture.partition), recorder.listener());
                spawn(move || {
                    assert!(append(&partition, &listener, id).unwrap().needs_flush);
                    flush(&partition);
                })
            })
            .collect();
        for appender in appenders {
            appender.join().unwrap();
        }
        let mut acks = recorder.acks();
        acks.sort_unstable();
        assert_eq!(acks, [(1, 0), (2, 0)]);
        assert_eq!(fixture.partition.high_watermark(), 2);
    });
}

#[test]
fn model_an_append_beside_a_withdrawal_is_refused_or_told() {
    explore(|| {
        let fixture = Fixture::new(true);
        let recorder = Arc::new(Recorder::default());
        let (partition, listener) = (Arc::clone(&fixture.partition), recorder.listener());
        let appender = spawn(move || {
            let appended = append(&partition, &listener, 1);
            flush(&partition);
            appended.is_ok()
        });
        fixture.partition.withdraw();
        let told = recorder.acks();
        let was_appended = appender.join().unwrap();
        let acks = recorder.acks();
        assert_eq!(acks.len(), usize::from(was_appended), "once, or not at all if it was refused");
        assert_eq!(told, acks, "nothing is told after the withdrawal");
        assert!(acks.iter().all(|(_, code)| [0, error_code::NOT_LEADER_OR_FOLLOWER].contains(code)));
    });
}

#[test]
fn model_a_wait_that_begins_beside_a_flush_ends() {
    explore(|| {
        let fixture = Fixture::new(true);
        let recorder = Arc::new(Recorder::default());
        let listener = recorder.listener();
        fixture.partition.append(&batch("a"), -1, 0, Origin::Client, None).unwrap();
        let partition = Arc::clone(&fixture.partition);
        let flusher = spawn(move || flush(&partition));
        let known = fixture.partition.wait_for_ack(1, 1, &listener, token(1));
        flusher.join().unwrap();
        match known {
            Some(code) => assert_eq!((code, recorder.acks()), (0, vec![])),
            None => assert_eq!(recorder.acks(), [(1, 0)]),
        }
    });
}

#[test]
fn model_a_reader_that_subscribes_first_misses_no_move() {
    explore(|| {
        let fixture = Fixture::new(false);
        let recorder = Arc::new(Recorder::default());
        let listener = recorder.listener();
        let partition = Arc::clone(&fixture.partition);
        let appender = spawn(move || partition.append(&batch("a"), 1, 0, Origin::Client, None).unwrap());
        fixture.partition.subscribe(&listener, 9);
        let seen = fixture.partition.high_watermark();
        appender.join().unwrap();
        assert!(seen == 1 || recorder.move_count() == 1);
    });
}

#[test]
fn model_a_new_leader_takes_no_fetch_of_a_brokers_earlier_life() {
    explore(|| {
        let fixture = Fixture::new(false);
        let partition = Arc::clone(&fixture.partition);
        partition.assign(assignment(NODE, 2, 1, &[NODE, 2], &[NODE, 2]), 0);
        partition.append(&batch("a"), 1, 0, Origin::Client, None).unwrap();
        let fetcher = spawn(move || {
            let fetch = FollowerFetch {
                replica_id: 2,
                broker_epoch: 5,
                fetch_offset: 1,
                log_start_offset: 0,
                now_ms: 0,
            };
            let position = FollowerPosition { fetch, current_leader_epoch: 3, last_fetched_epoch: -1 };
            partition.follower_fetch(&position).error_code
        });
        let live = LiveBroker { broker_id: 2, epoch: 6, is_shutting_down: false };
        let elected = assignment(NODE, 3, 2, &[NODE, 2], &[NODE, 2]);
        fixture.partition.assign_among(elected, Some(vec![live]), 0);
        assert_ne!(fetcher.join().unwrap(), error_code::NONE);
        assert_eq!(fixture.partition.high_watermark(), 0);
    });
}
