use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kraftlog_log::builder::{BatchBuilder, BatchOptions};
use kraftlog_log::compression::Codec;
use kraftlog_log::fs::MemoryFileSystem;

use super::*;
use crate::error_code;
use crate::exchange::Output;
use crate::flush::FlushPool;
use crate::partitions::Partitions;
use crate::session::{SessionCache, SessionLimits};
use crate::testing::{assignment, batch, until, Fixture, NODE};
use crate::wire::fetch::FetchPartition;
use crate::wire::produce::BrokerAddress;
use crate::wire::{Reader, Topic};

const CONNECTION: ConnectionId = ConnectionId { thread: 0, slot: 3, generation: 1 };
const REQUEST: RequestId = RequestId { connection: CONNECTION, number: 5 };
pub(super) const TOPIC: [u8; 16] = [7; 16];

/// A service over partitions in memory, and the mailbox that an I/O thread would empty.
pub(super) struct Bench {
    pub(super) fixtures: Vec<Fixture>,
    pub(super) service: DataService,
    mailbox: Arc<Mailbox<DataMessage>>,
    shared: Arc<ServiceShared>,
    pub(super) start: Instant,
}

impl Bench {
    pub(super) fn new(partition_count: i32, flush_on_ack: bool) -> Self {
        Self::with_grants(partition_count, flush_on_ack, None)
    }

    /// Of a node with an authorizer, if there are grants.
    pub(super) fn with_grants(
        partition_count: i32,
        flush_on_ack: bool,
        grants: Option<Arc<grants::Grants>>,
    ) -> Self {
        let (fs, pool) = (MemoryFileSystem::new(), Arc::new(FlushPool::new("flush", 1)));
        let partitions = Arc::new(Partitions::new());
        let fixtures: Vec<_> =
            (0..partition_count).map(|index| Fixture::over(&fs, index, flush_on_ack, &pool)).collect();
        fixtures.iter().for_each(|fixture| partitions.add(&fixture.partition));
        let clock = AtomicI64::new(1000);
        let clock_ms = Box::new(move || clock.fetch_add(1, Ordering::Relaxed));
        let shared = ServiceShared::new(partitions, ServiceSettings::default(), clock_ms, 1);
        let shared = Arc::new(shared.with_grants(grants));
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let listener = Arc::clone(&mailbox) as Arc<dyn Listener>;
        let service = DataService::new(Arc::clone(&shared), listener);
        Self { fixtures, service, mailbox, shared, start: Instant::now() }
    }

    pub(super) fn handle(&mut self, frame: &[u8]) -> Outcome {
        self.handle_of(&Peer::anonymous(0, "localhost"), frame)
    }

    pub(super) fn handle_of(&mut self, peer: &Peer, frame: &[u8]) -> Outcome {
        self.service.handle(REQUEST, peer, frame, self.start)
    }

    /// What a wake-up of the I/O thread does after its frames.
    pub(super) fn turn(&mut self) -> Vec<Answered> {
        self.turn_of(false)
    }

    fn turn_of(&mut self, is_alone: bool) -> Vec<Answered> {
        let mut answered = Vec::new();
        let mut messages = Vec::new();
        self.mailbox.take(&mut messages);
        for message in messages {
            self.service.message(message, self.start, &mut answered);
        }
        self.service.end_turn(self.start, is_alone, &mut answered);
        answered
    }

    pub(super) fn end_offset(&self, index: usize) -> i64 {
        self.fixtures[index].partition.log().log_end_offset()
    }
}

struct Frame(Vec<u8>);

impl Frame {
    fn new(api_key: i16, version: i16) -> Self {
        let mut frame = Self(Vec::new());
        frame.put(&api_key.to_be_bytes()).put(&version.to_be_bytes()).put(&9_i32.to_be_bytes());
        frame.put(&2_i16.to_be_bytes()).put(b"me").put(&[0]);
        frame
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn uvarint(&mut self, value: usize) -> &mut Self {
        kraftlog_log::varint::write_unsigned_varint(&mut self.0, u32::try_from(value).unwrap());
        self
    }
}

/// Produce version 13 for partitions of the one topic.
pub(super) fn produce(acks: i16, timeout_ms: i32, batches: &[(i32, &[u8])]) -> Vec<u8> {
    produce_in(&[0], acks, timeout_ms, batches)
}

/// As [`produce`], with these bytes for the transactional id.
pub(super) fn produce_in(id: &[u8], acks: i16, timeout_ms: i32, batches: &[(i32, &[u8])]) -> Vec<u8> {
    let mut frame = Frame::new(PRODUCE_KEY, 13);
    frame.put(id).put(&acks.to_be_bytes()).put(&timeout_ms.to_be_bytes());
    frame.put(&[2]).put(&TOPIC).uvarint(batches.len() + 1);
    for (index, batch) in batches {
        frame.put(&index.to_be_bytes()).uvarint(batch.len() + 1).put(batch).put(&[0]);
    }
    frame.put(&[0, 0]);
    frame.0
}

pub(super) struct Ask {
    /// -1 for a consumer.
    pub(super) replica_id: i32,
    pub(super) max_wait_ms: i32,
    pub(super) min_bytes: i32,
    pub(super) session: (i32, i32),
    pub(super) partitions: Vec<FetchPartition>,
    pub(super) forgotten: Vec<i32>,
}

pub(super) fn wanted(index: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        index,
        current_leader_epoch: -1,
        fetch_offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: 1 << 20,
    }
}

impl Ask {
    pub(super) fn of(session: (i32, i32), partitions: &[(i32, i64)]) -> Self {
        let partitions = partitions.iter().map(|&(index, offset)| wanted(index, offset)).collect();
        Self { replica_id: -1, max_wait_ms: 500, min_bytes: 1, session, partitions, forgotten: Vec::new() }
    }

    pub(super) fn frame(&self) -> Vec<u8> {
        let mut frame = Frame::new(FETCH_KEY, 13);
        for number in [self.replica_id, self.max_wait_ms, self.min_bytes, 1 << 20] {
            frame.put(&i32::to_be_bytes(number));
        }
        frame.put(&[0]).put(&self.session.0.to_be_bytes()).put(&self.session.1.to_be_bytes());
        frame.uvarint(1 + usize::from(!self.partitions.is_empty()));
        if !self.partitions.is_empty() {
            frame.put(&TOPIC).uvarint(self.partitions.len() + 1);
            for partition in &self.partitions {
                frame.put(&partition.index.to_be_bytes()).put(&partition.current_leader_epoch.to_be_bytes());
                frame.put(&partition.fetch_offset.to_be_bytes());
                frame.put(&partition.last_fetched_epoch.to_be_bytes());
                frame.put(&partition.log_start_offset.to_be_bytes());
                frame.put(&partition.max_bytes.to_be_bytes()).put(&[0]);
            }
            frame.put(&[0]);
        }
        frame.uvarint(1 + usize::from(!self.forgotten.is_empty()));
        if !self.forgotten.is_empty() {
            frame.put(&TOPIC).uvarint(self.forgotten.len() + 1);
            for index in &self.forgotten {
                frame.put(&index.to_be_bytes());
            }
            frame.put(&[0]);
        }
        frame.put(&[1, 0]);
        frame.0
    }
}

fn bytes_of(outcome: Outcome) -> Vec<u8> {
    let Outcome::Answer(outputs) = outcome else { panic!("{outcome:?}") };
    let mut all = Vec::new();
    for output in outputs {
        match output {
            Output::Bytes(bytes) => all.extend_from_slice(&bytes),
            Output::File(slice) => all.extend_from_slice(&slice.read().unwrap()),
        }
    }
    assert_eq!(i32::from_be_bytes(*all.first_chunk().unwrap()), i32::try_from(all.len()).unwrap() - 4);
    all
}

/// Index, error code and base offset of each partition.
pub(super) fn produced(outcome: Outcome) -> Vec<(i32, i16, i64)> {
    let bytes = bytes_of(outcome);
    let mut reader = Reader::new(&bytes);
    reader.skip(9).unwrap();
    assert_eq!(reader.count(1).unwrap(), 1);
    assert_eq!(reader.topic(true).unwrap(), Topic::Id(&TOPIC));
    let mut found = Vec::new();
    for _ in 0..reader.count(1).unwrap() {
        found.push((reader.int32().unwrap(), reader.int16().unwrap(), reader.int64().unwrap()));
        reader.skip(16).unwrap();
        assert_eq!(reader.count(1).unwrap(), 0);
        reader.nullable_text().unwrap();
        reader.tags(0).unwrap();
    }
    found
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fetched {
    pub(super) error_code: i16,
    pub(super) session_id: i32,
    /// Index, error code, high watermark and bytes of records.
    pub(super) partitions: Vec<(i32, i16, i64, usize)>,
}

pub(super) fn fetched(outcome: Outcome) -> Fetched {
    let bytes = bytes_of(outcome);
    let mut reader = Reader::new(&bytes);
    reader.skip(13).unwrap();
    let mut found = Fetched {
        error_code: reader.int16().unwrap(),
        session_id: reader.int32().unwrap(),
        ..Fetched::default()
    };
    for _ in 0..reader.count(1).unwrap() {
        assert_eq!(reader.topic(true).unwrap(), Topic::Id(&TOPIC));
        for _ in 0..reader.count(1).unwrap() {
            let (index, error_code) = (reader.int32().unwrap(), reader.int16().unwrap());
            let high_watermark = reader.int64().unwrap();
            reader.skip(16).unwrap();
            assert_eq!(reader.uvarint().unwrap(), 0);
            reader.skip(4).unwrap();
            let records = reader.records().unwrap().unwrap();
            reader.tags(0).unwrap();
            found.partitions.push((index, error_code, high_watermark, records.len()));
        }
        reader.tags(0).unwrap();
    }
    reader.tags(0).unwrap();
    assert_eq!(reader.position(), bytes.len());
    found
}

pub(super) fn only(answered: Vec<Answered>) -> Outcome {
    let [answer] = <[Answered; 1]>::try_from(answered).unwrap();
    assert_eq!(answer.request, REQUEST);
    answer.outcome
}

#[test]
fn an_append_of_a_sole_replica_is_answered_at_once() {
    let mut bench = Bench::new(2, false);
    let records = batch("a");
    let frame = produce(-1, 1000, &[(0, &records), (1, &records)]);
    assert_eq!(produced(bench.handle(&frame)), [(0, 0, 0), (1, 0, 0)]);
    assert_eq!(produced(bench.handle(&frame)), [(0, 0, 1), (1, 0, 1)]);
    assert!(matches!(bench.handle(&produce(0, 0, &[(0, &records)])), Outcome::NoAnswer));
    assert_eq!((bench.end_offset(0), bench.end_offset(1), bench.service.pending_count()), (3, 2, 0));
}

#[test]
fn acknowledgements_come_with_the_flush_of_the_turn() {
    let mut bench = Bench::new(2, true);
    let records = batch("a");
    let frame = produce(-1, 1000, &[(0, &records), (1, &records)]);
    assert!(matches!(bench.handle(&frame), Outcome::Pending));
    assert!(bench.turn().is_empty(), "the flush is only asked for here");
    let mut answered = Vec::new();
    until("acknowledged", || bench.fixtures.iter().all(|fixture| fixture.partition.high_watermark() == 1));
    until("told", || true);
    while answered.is_empty() {
        answered = bench.turn();
    }
    assert_eq!(produced(only(answered)), [(0, 0, 0), (1, 0, 0)]);
    assert_eq!(bench.service.pending_count(), 0);
}

#[test]
fn what_is_not_committed_in_time_is_named() {
    let mut bench = Bench::new(2, true);
    let records = batch("a");
    let frame = produce(-1, 70, &[(0, &records), (1, &records)]);
    assert!(matches!(bench.handle(&frame), Outcome::Pending));
    bench.fixtures[1].partition.on_flushed(1);
    let mut answered = Vec::new();
    let due = bench.start + Duration::from_millis(70);
    assert_eq!(bench.service.next_deadline(), Some(due));
    bench.service.on_time(due, &mut answered);
    assert_eq!(produced(only(answered)), [(0, error_code::REQUEST_TIMED_OUT, 0), (1, 0, 0)], "ISR-65");
    assert_eq!(bench.end_offset(0), 1, "the record stays");
    assert!(bench.turn().is_empty(), "the acknowledgement comes too late");
    assert_eq!(bench.service.next_deadline(), None);
}

#[test]
fn a_leader_that_loses_its_role_names_it() {
    let mut bench = Bench::new(1, true);
    let records = batch("a");
    assert!(matches!(bench.handle(&produce(-1, 1000, &[(0, &records)])), Outcome::Pending));
    let address = |broker_id, host: &str| BrokerAddress {
        broker_id,
        host: host.to_owned(),
        port: 9092,
        rack: Some("r".to_owned()),
    };
    bench.shared.publish_brokers(vec![vec![address(NODE, "a"), address(2, "b")], Vec::new()]);
    bench.fixtures[0].partition.assign(assignment(2, 2, 1, &[NODE, 2], &[2]), 0);
    let outcome = only(bench.turn());
    // As the Python encoder writes leader 2 in epoch 2, which clients reach at b:9092.
    let mut expected = [&0x59_i32.to_be_bytes(), &9_i32.to_be_bytes(), [0, 2].as_slice(), &TOPIC].concat();
    // Its offset, no append time, the start of the log.
    expected.extend([&[2, 0, 0, 0, 0, 0, 6], [0; 8].as_slice(), &[0xff; 8], &[0; 8]].concat());
    expected.extend([1, 0, 1, 0, 9, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
    expected.extend([1, 0, 14, 2, 0, 0, 0, 2, 2, b'b', 0, 0, 0x23, 0x84, 2, b'r', 0]);
    assert_eq!(bytes_of(outcome), expected);
    assert!(matches!(bench.handle(&produce(-1, 1000, &[(0, &records)])), Outcome::HandOver));
}

#[test]
fn clients_are_handed_over_while_quotas_may_apply() {
    let mut bench = Bench::new(1, false);
    let records = batch("a");
    let produce = produce(-1, 1000, &[(0, &records)]);
    assert_eq!(produced(bench.handle(&produce)), [(0, 0, 0)]);
    let first = fetched(bench.handle(&Ask::of((0, 0), &[(0, 0)]).frame()));
    let (id, next) = (first.session_id, Ask::of((first.session_id, 1), &[]).frame());
    assert_ne!(id, 0);
    bench.shared.hand_over_clients(true);
    let one_way = self::produce(0, 0, &[(0, &records)]);
    for frame in [&produce, &one_way, &next, &Ask::of((0, -1), &[(0, 0)]).frame()] {
        assert!(matches!(bench.handle(frame), Outcome::HandOver));
    }
    assert_eq!(bench.end_offset(0), 1, "nothing was appended");
    bench.shared.hand_over_clients(false);
    let ended = fetched(bench.handle(&next));
    assert_eq!(
        ended.error_code,
        error_code::FETCH_SESSION_ID_NOT_FOUND,
        "Python may have moved its client on"
    );
    assert_eq!(produced(bench.handle(&produce)), [(0, 0, 1)]);
}

#[test]
fn nothing_is_appended_of_a_request_that_is_handed_over() {
    let mut bench = Bench::new(2, false);
    let records = batch("a");
    let edited = |position: usize, value: u8| {
        let mut edited = records.clone();
        edited[position] = value;
        edited
    };
    let twice = [records.as_slice(), &records].concat();
    let (magic, transactional, control) = (edited(16, 1), edited(22, 0x10), edited(22, 0x20));
    let large = vec![0; 9 << 20];
    for other in [&magic, &transactional, &control, &twice, &large, &Vec::new()] {
        let frame = produce(-1, 1000, &[(0, &records), (1, other)]);
        assert!(matches!(bench.handle(&frame), Outcome::HandOver));
    }
    let held = &bench.fixtures[1].partition;
    held.hold(true);
    let frames = [
        produce(-1, 1000, &[(0, &records), (1, &records)]),
        produce(-1, 1000, &[(0, &records), (2, &records)]),
        produce(2, 1000, &[(0, &records)]),
        produce(-1, 1000, &[(0, &records)])[..40].to_vec(),
    ];
    for frame in frames {
        assert!(matches!(bench.handle(&frame), Outcome::HandOver));
    }
    assert_eq!((bench.end_offset(0), bench.end_offset(1)), (0, 0));
}

#[test]
fn a_batch_that_grows_far_is_handed_over_before_anything_is_appended() {
    let mut bench = Bench::new(3, false);
    let zeros = |bytes: usize| {
        let options = BatchOptions { codec: Codec::Gzip, ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options).unwrap();
        builder.append(0, None, Some(&vec![0; bytes]), &[]).unwrap();
        builder.finish().unwrap()
    };
    let (small, large, half) = (zeros(1 << 20), zeros(16 << 20), zeros(5 << 20));
    assert!(large.len() < 20_000, "{}", large.len());
    for last in [&large, &half] {
        let frame = produce(-1, 1000, &[(0, &small), (1, &half), (2, last)]);
        assert!(matches!(bench.handle(&frame), Outcome::HandOver));
    }
    assert_eq!([0, 1, 2].map(|index| bench.end_offset(index)), [0, 0, 0]);
    let answer = bench.handle(&produce(-1, 1000, &[(0, &small), (1, &half)]));
    assert_eq!(produced(answer), [(0, 0, 0), (1, 0, 0)]);
}

#[test]
fn a_damaged_batch_is_named_or_closes_a_connection_that_wants_no_answer() {
    let mut bench = Bench::new(1, false);
    let mut records = batch("a");
    *records.last_mut().unwrap() ^= 1;
    let frame = produce(1, 1000, &[(0, &records)]);
    assert_eq!(produced(bench.handle(&frame)), [(0, error_code::CORRUPT_MESSAGE, -1)]);
    let Outcome::Close(reason) = bench.handle(&produce(0, 1000, &[(0, &records)])) else { panic!() };
    assert!(reason.starts_with("Produce with acks=0 failed for 1 partition(s); t-0: error 2 "), "{reason}");
}

fn append(bench: &Bench, index: usize) {
    let partition = &bench.fixtures[index].partition;
    let origin = kraftlog_log::producer_state::Origin::Client;
    partition.append(&batch("a"), 1, 5, origin, None).unwrap();
}

#[test]
fn a_session_answers_what_is_new() {
    let mut bench = Bench::new(3, false);
    append(&bench, 1);
    let size = batch("a").len();
    let first = fetched(bench.handle(&Ask::of((0, 0), &[(0, 0), (1, 0), (2, 0)]).frame()));
    let id = first.session_id;
    assert!(SessionCache::owns(id));
    assert_eq!(first.partitions, [(0, 0, 0, 0), (1, 0, 1, size), (2, 0, 0, 0)]);
    assert!(matches!(bench.handle(&Ask::of((id, 1), &[(1, 1)]).frame()), Outcome::Pending));
    append(&bench, 2);
    append(&bench, 0);
    let changed = fetched(only(bench.turn()));
    assert_eq!(changed.partitions, [(0, 0, 1, size), (2, 0, 1, size)]);
    let again = fetched(bench.handle(&Ask::of((id, 2), &[(0, 1)]).frame()));
    assert_eq!(again.partitions, [(2, 0, 1, size)], "the offset of 2 did not move");
    assert!(matches!(bench.handle(&Ask::of((id, 3), &[(2, 1)]).frame()), Outcome::Pending));
    let mut answered = Vec::new();
    bench.service.on_time(bench.start + Duration::from_millis(500), &mut answered);
    assert_eq!(fetched(only(answered)), Fetched { session_id: id, ..Fetched::default() });
    let mut gone = Ask::of((id, 4), &[]);
    gone.forgotten = vec![0, 1, 2];
    assert_eq!(fetched(bench.handle(&gone.frame())), Fetched::default());
    assert!(bench.shared.sessions().is_empty());
}

#[test]
fn a_fetch_without_a_session_waits_too() {
    let mut bench = Bench::new(2, false);
    let frame = Ask::of((0, -1), &[(0, 0), (1, 0)]).frame();
    assert!(matches!(bench.handle(&frame), Outcome::Pending));
    append(&bench, 1);
    let answer = fetched(only(bench.turn()));
    assert_eq!(answer.partitions, [(0, 0, 0, 0), (1, 0, 1, batch("a").len())]);
    assert_eq!((answer.session_id, bench.shared.sessions().len()), (0, 0));
}

#[test]
fn min_bytes_count_over_all_partitions() {
    let mut bench = Bench::new(2, false);
    let size = batch("a").len();
    let mut ask = Ask::of((0, 0), &[(0, 0), (1, 0)]);
    ask.min_bytes = i32::try_from(2 * size).unwrap();
    append(&bench, 0);
    assert!(matches!(bench.handle(&ask.frame()), Outcome::Pending));
    assert!(bench.turn().is_empty());
    append(&bench, 1);
    assert_eq!(fetched(only(bench.turn())).partitions, [(0, 0, 1, size), (1, 0, 1, size)]);
}

#[test]
fn a_session_names_a_new_leader_and_ends_when_python_has_to_answer() {
    let mut bench = Bench::new(2, false);
    let mut ask = Ask::of((0, 0), &[(0, 0), (1, 0)]);
    ask.max_wait_ms = 0;
    let id = fetched(bench.handle(&ask.frame())).session_id;
    assert!(matches!(bench.handle(&Ask::of((id, 1), &[]).frame()), Outcome::Pending));
    bench.fixtures[1].partition.assign(assignment(2, 2, 1, &[NODE, 2], &[2]), 0);
    let ended = Fetched { error_code: error_code::FETCH_SESSION_ID_NOT_FOUND, ..Fetched::default() };
    let moved = Fetched {
        session_id: id,
        partitions: vec![(1, error_code::NOT_LEADER_OR_FOLLOWER, -1, 0)],
        ..Fetched::default()
    };
    assert_eq!(fetched(only(bench.turn())), moved);
    assert_eq!(fetched(bench.handle(&Ask::of((id, 2), &[]).frame())), moved);
    bench.fixtures[1].partition.withdraw();
    assert_eq!(fetched(bench.handle(&Ask::of((id, 3), &[]).frame())), ended);
    assert_eq!(fetched(bench.handle(&Ask::of((id, 4), &[]).frame())), ended);
    assert!(matches!(bench.handle(&ask.frame()), Outcome::HandOver));
    ask.partitions.truncate(1);
    let id = fetched(bench.handle(&ask.frame())).session_id;
    assert_eq!(fetched(bench.handle(&Ask::of((id, 1), &[(7, 0)]).frame())), ended);
    assert!(matches!(bench.handle(&Ask::of((id + 1, 1), &[]).frame()), Outcome::HandOver), "of Python");
    assert!(bench.shared.sessions().is_empty());
}

#[test]
fn an_offset_outside_of_the_log_is_answered_at_once() {
    let mut bench = Bench::new(1, false);
    let answer = fetched(bench.handle(&Ask::of((0, 0), &[(0, 5)]).frame()));
    assert_eq!(answer.partitions, [(0, error_code::OFFSET_OUT_OF_RANGE, -1, 0)]);
}

#[test]
fn a_later_request_of_a_session_ends_the_one_that_waits() {
    let mut bench = Bench::new(1, false);
    let mut ask = Ask::of((0, 0), &[(0, 0)]);
    ask.max_wait_ms = 0;
    let id = fetched(bench.handle(&ask.frame())).session_id;
    assert!(matches!(bench.handle(&Ask::of((id, 1), &[]).frame()), Outcome::Pending));
    assert!(matches!(bench.handle(&Ask::of((id, 2), &[]).frame()), Outcome::Pending));
    assert_eq!(fetched(only(bench.turn())), Fetched { session_id: id, ..Fetched::default() });
    append(&bench, 0);
    assert_eq!(fetched(only(bench.turn())).partitions, [(0, 0, 1, batch("a").len())]);
}

#[test]
fn the_thread_of_a_sole_connection_flushes_one_partition_itself_and_gives_several_to_the_pool() {
    let mut bench = Bench::new(2, true);
    let pool = Arc::clone(&bench.fixtures[0].pool);
    let records = batch("a");
    assert!(matches!(bench.handle(&produce(-1, 1000, &[(0, &records)])), Outcome::Pending));
    assert!(bench.turn_of(true).is_empty());
    assert_eq!((pool.thread_count(), pool.queued_count()), (0, 0));
    assert_eq!(produced(only(bench.turn())), [(0, error_code::NONE, 0)]);
    assert!(matches!(bench.handle(&produce(-1, 1000, &[(0, &records), (1, &records)])), Outcome::Pending));
    assert!(bench.turn_of(true).is_empty());
    assert_eq!(pool.thread_count(), 1);
    let mut answered = Vec::new();
    until("flushed by the pool", || {
        answered.extend(bench.turn());
        !answered.is_empty()
    });
    assert_eq!(produced(only(answered)), [(0, error_code::NONE, 1), (1, error_code::NONE, 0)]);
}

#[test]
fn a_lost_connection_leaves_nothing_and_its_session_forgets_nothing() {
    let mut bench = Bench::new(1, true);
    let records = batch("a");
    assert!(matches!(bench.handle(&produce(-1, 1000, &[(0, &records)])), Outcome::Pending));
    let mut ask = Ask::of((0, 0), &[(0, 0)]);
    ask.min_bytes = 1000;
    ask.max_wait_ms = 0;
    let id = fetched(bench.handle(&ask.frame())).session_id;
    let mut waits = Ask::of((id, 1), &[]);
    waits.min_bytes = 1000;
    assert!(matches!(bench.handle(&waits.frame()), Outcome::Pending));
    bench.fixtures[0].partition.on_flushed(1);
    bench.service.end_turn(bench.start, false, &mut Vec::new());
    bench.service.connection_lost(CONNECTION);
    assert_eq!((bench.service.pending_count(), bench.turn().len()), (0, 0));
    let next = fetched(bench.handle(&Ask::of((id, 2), &[]).frame()));
    assert_eq!(next.partitions, [(0, 0, 1, records.len())]);
}

#[test]
fn settings_hold_from_the_next_request_on() {
    let mut bench = Bench::new(2, false);
    (0..2).for_each(|index| append(&bench, index));
    let ask = Ask::of((0, 0), &[(0, 0), (1, 0)]).frame();
    let sizes = |answer: Fetched| answer.partitions.iter().map(|found| found.3).collect::<Vec<_>>();
    let size = batch("a").len();
    let first = fetched(bench.handle(&ask));
    assert_eq!((first.session_id > 0, sizes(first)), (true, vec![size, size]));
    let sessions = SessionLimits { max_slots: 0, eviction_ms: 0 };
    bench.shared.publish(ServiceSettings { fetch_max_bytes: 1, sessions, selects_replicas: false });
    let second = fetched(bench.handle(&ask));
    assert_eq!((second.session_id, sizes(second)), (0, vec![size, 0]));
}
