use kraftlog_log::producer_state::Origin;

use super::*;
use crate::testing::{assignment, batch, idempotent_batch, token, until, Fixture, Recorder, NODE};

fn append(fixture: &Fixture, acks: i16, ack: Option<(&Arc<dyn Listener>, AckToken)>) -> Appended {
    fixture.partition.append(&batch("a"), acks, 5, Origin::Client, ack).unwrap()
}

fn code_of(refused: Result<Appended, AppendError>) -> i16 {
    refused.unwrap_err().error_code()
}

#[test]
fn an_append_of_a_sole_replica_is_committed_at_once() {
    let fixture = Fixture::new(false);
    let recorder = Arc::new(Recorder::default());
    let listener = recorder.listener();
    fixture.partition.subscribe(&listener, 9);
    let appended = append(&fixture, -1, Some((&listener, token(1))));
    assert!(appended.is_committed && !appended.needs_flush);
    assert_eq!((appended.info.first_offset, appended.leader_epoch), (0, 1));
    assert_eq!((fixture.partition.high_watermark(), fixture.partition.last_stable_offset()), (1, 1));
    assert_eq!((recorder.acks(), recorder.move_count()), (vec![], 1));
    fixture.partition.unsubscribe(&listener, 9);
    append(&fixture, -1, None);
    assert_eq!(recorder.move_count(), 1);
}

#[test]
fn an_append_that_waits_for_the_disk_is_acknowledged_by_the_flush() {
    let fixture = Fixture::new(true);
    let recorder = Arc::new(Recorder::default());
    let listener = recorder.listener();
    let appended = append(&fixture, -1, Some((&listener, token(1))));
    assert!(!appended.is_committed && appended.needs_flush);
    append(&fixture, 1, Some((&listener, token(2))));
    assert!(recorder.acks().is_empty());
    fixture.partition.request_flush();
    until("acknowledged", || recorder.acks() == [(1, 0)]);
    assert_eq!(fixture.partition.high_watermark(), 2);
    fixture.pool.stop();
}

/// Notes how often a partition had moved when an acknowledgement came.
struct AckAfterMoves {
    moves: Arc<Recorder>,
    seen: Mutex<Vec<usize>>,
}

impl Listener for AckAfterMoves {
    fn acknowledged(&self, _token: AckToken, _error_code: i16) {
        self.seen.lock().unwrap().push(self.moves.move_count());
    }

    fn moved(&self, _token: u64) {}
}

#[test]
fn those_that_follow_a_partition_hear_of_a_move_before_its_acknowledgement_is_sent() {
    let fixture = Fixture::new(true);
    let moves = Arc::new(Recorder::default());
    fixture.partition.subscribe(&moves.listener(), 9);
    let acks = Arc::new(AckAfterMoves { moves, seen: Mutex::default() });
    let listener: Arc<dyn Listener> = Arc::<AckAfterMoves>::clone(&acks);
    append(&fixture, -1, Some((&listener, token(1))));
    fixture.partition.on_flushed(1);
    assert_eq!(*acks.seen.lock().unwrap(), [1]);
}

#[test]
fn a_repeated_batch_is_acknowledged_with_its_first_append() {
    let fixture = Fixture::new(true);
    let recorder = Arc::new(Recorder::default());
    let listener = recorder.listener();
    let send = |value: &str, sequence, id| {
        let records = idempotent_batch(value, 3, sequence);
        fixture.partition.append(&records, -1, 5, Origin::Client, Some((&listener, token(id)))).unwrap()
    };
    send("a", 0, 1);
    send("b", 1, 2);
    let repeated = send("a", 0, 3);
    assert_eq!(
        (repeated.info.is_duplicate, repeated.info.last_offset, repeated.is_committed),
        (true, 0, false)
    );
    fixture.partition.on_flushed(1);
    assert_eq!(recorder.acks(), [(1, 0), (3, 0)]);
    assert!(send("a", 0, 4).is_committed);
}

#[test]
fn the_role_is_told_before_the_batch_is_looked_at() {
    let fixture = Fixture::new(false);
    let mut records = batch("a");
    *records.last_mut().unwrap() ^= 1;
    let damaged = |acks| code_of(fixture.partition.append(&records, acks, 5, Origin::Client, None));
    assert_eq!(damaged(-1), error_code::CORRUPT_MESSAGE);
    let partition = &fixture.partition;
    let settings = PartitionSettings {
        min_insync_replicas: 2,
        flush_messages: i64::MAX,
        flushes_in_time: false,
        answers_followers: true,
    };
    partition.update(settings);
    partition.assign(assignment(NODE, 1, 1, &[NODE, 2], &[NODE]), 0);
    assert_eq!((damaged(-1), damaged(1)), (error_code::NOT_ENOUGH_REPLICAS, error_code::CORRUPT_MESSAGE));
    partition.assign(assignment(2, 2, 2, &[NODE, 2], &[2]), 0);
    assert_eq!(damaged(1), error_code::NOT_LEADER_OR_FOLLOWER);
}

#[test]
fn losing_the_leadership_ends_what_waits() {
    let fixture = Fixture::new(true);
    let recorder = Arc::new(Recorder::default());
    let listener = recorder.listener();
    fixture.partition.subscribe(&listener, 9);
    append(&fixture, -1, Some((&listener, token(1))));
    fixture.partition.assign(assignment(2, 2, 1, &[NODE, 2], &[2]), 0);
    assert_eq!(recorder.acks(), [(1, error_code::NOT_LEADER_OR_FOLLOWER)]);
    assert_eq!(recorder.move_count(), 1);
    let waited = fixture.partition.wait_for_ack(1, 1, &listener, token(2));
    assert_eq!(waited, Some(error_code::NOT_LEADER_OR_FOLLOWER));
    fixture.partition.assign(assignment(NODE, 3, 2, &[NODE], &[NODE]), 0);
    let waited = fixture.partition.wait_for_ack(1, 1, &listener, token(3));
    assert_eq!(waited, Some(error_code::NOT_LEADER_OR_FOLLOWER), "the append was of epoch 1");
    assert_eq!(fixture.partition.wait_for_ack(1, 3, &listener, token(4)), None);
    fixture.partition.on_flushed(1);
    assert_eq!(recorder.acks().last(), Some(&(4, 0)));
    assert_eq!(fixture.partition.wait_for_ack(1, 3, &listener, token(5)), Some(0));
}

#[test]
fn a_new_epoch_is_to_be_written_unless_the_log_has_it() {
    let fixture = Fixture::new(false);
    let partition = &fixture.partition;
    append(&fixture, -1, None);
    let assigned = partition.assign(assignment(NODE, 2, 1, &[NODE], &[NODE]), 0);
    assert_eq!(assigned.epoch_start, Some((2, 1)));
    assert!(!partition.is_published(), "held until it is written");
    partition.log().assign_epoch_start(2, 1).unwrap();
    partition.hold(false);
    assert!(partition.is_published() && partition.is_high_watermark_settled());
    assert_eq!(partition.assign(assignment(NODE, 2, 2, &[NODE], &[NODE]), 0), Assigned::default());
    partition.log().assign_epoch_start(3, 1).unwrap();
    assert_eq!(partition.assign(assignment(NODE, 3, 3, &[NODE], &[NODE]), 0).epoch_start, None);
}

#[test]
fn a_withdrawn_partition_takes_nothing_more() {
    let fixture = Fixture::new(true);
    let recorder = Arc::new(Recorder::default());
    let listener = recorder.listener();
    fixture.partition.subscribe(&listener, 9);
    append(&fixture, -1, Some((&listener, token(1))));
    fixture.partition.withdraw();
    assert_eq!(recorder.acks(), [(1, error_code::NOT_LEADER_OR_FOLLOWER)]);
    assert_eq!(recorder.move_count(), 1);
    fixture.partition.assign(assignment(NODE, 9, 9, &[NODE], &[NODE]), 0);
    fixture.partition.publish(true);
    assert!(!fixture.partition.is_published() && !fixture.partition.is_leader());
    let refused = fixture.partition.append(&batch("b"), 1, 5, Origin::Client, None);
    assert_eq!(code_of(refused), error_code::NOT_LEADER_OR_FOLLOWER);
}

#[test]
fn epochs_and_roles_are_checked_like_those_of_the_core() {
    let fixture = Fixture::new(false);
    let partition = &fixture.partition;
    for (role, leader) in [(NODE, true), (2, false)] {
        partition.assign(assignment(role, 5, 5, &[NODE, 2], &[role]), 0);
        assert_eq!((partition.role(), partition.is_leader()), ((5, role), leader));
        assert_eq!(partition.check_leader_epoch(4, true), error_code::FENCED_LEADER_EPOCH);
        assert_eq!(partition.check_leader_epoch(6, true), error_code::UNKNOWN_LEADER_EPOCH);
        assert_eq!(partition.check_leader_epoch(5, false), error_code::NONE);
        let expected = if leader { error_code::NONE } else { error_code::NOT_LEADER_OR_FOLLOWER };
        assert_eq!(partition.check_leader_epoch(-1, true), expected);
    }
    partition.withdraw();
    assert_eq!(partition.role(), (5, NO_LEADER));
}

#[test]
fn settings_ask_for_flushes() {
    let fixture = Fixture::new(false);
    let settings = PartitionSettings {
        min_insync_replicas: 1,
        flush_messages: 2,
        flushes_in_time: true,
        answers_followers: true,
    };
    fixture.partition.update(settings);
    assert!(!append(&fixture, 1, None).needs_flush);
    assert!(append(&fixture, 1, None).needs_flush);
    let unflushed = |events: Vec<PythonEvent>| {
        events.iter().filter(|event| matches!(event, PythonEvent::Unflushed { partition: 42 })).count()
    };
    assert_eq!(unflushed(fixture.events()), 1, "once until Python asked for the flush");
    fixture.partition.flush_in_time();
    until("flushed", || fixture.partition.with_core(|core| core.flushed_offset()) == 2);
    append(&fixture, 1, None);
    assert_eq!(unflushed(fixture.events()), 1);
    fixture.pool.stop();
}

#[test]
fn a_failed_log_ends_what_waits_and_tells_python_once() {
    let fixture = Fixture::new(true);
    let recorder = Arc::new(Recorder::default());
    let listener = recorder.listener();
    append(&fixture, -1, Some((&listener, token(1))));
    fixture.partition.on_log_failed("gone");
    fixture.partition.on_log_failed("gone again");
    assert_eq!(recorder.acks(), [(1, error_code::KAFKA_STORAGE_ERROR)]);
    assert!(!fixture.partition.is_published());
    let waited = fixture.partition.wait_for_ack(1, 1, &listener, token(2));
    assert_eq!(waited, Some(error_code::KAFKA_STORAGE_ERROR));
    let events = fixture.events();
    assert!(
        matches!(events.as_slice(), [PythonEvent::StorageFailed { partition: 42, reason }] if reason == "gone")
    );
}
