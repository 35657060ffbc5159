//! Requests of the data path from the frame to the answer, for counting their instructions; see the program of the same
//! name in `kraftlog-log`. The kernel's part of an append, a read or a socket is not counted.
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use kraftlog_log::builder::{BatchBuilder, BatchOptions};
use kraftlog_log::fs::RealFileSystem;
use kraftlog_log::log::{Log, LogConfig, OpenOptions};
use kraftlog_path::core::{Assignment, ReplicaStart};
use kraftlog_path::exchange::{ConnectionId, Outcome, Output, Peer, RequestId, Service};
use kraftlog_path::flush::FlushPool;
use kraftlog_path::mailbox::Mailbox;
use kraftlog_path::partition::{Listener, Partition, PartitionKey, PartitionParts};
use kraftlog_path::partitions::Partitions;
use kraftlog_path::serve::{DataMessage, DataService, ServiceSettings, ServiceShared};
use kraftlog_path::wire;

const REQUESTS: usize = 500;
/// Frames that one receive brings.
const TOGETHER: usize = 5;
const NOW_MS: i64 = 1_700_000_000_000;
const TOPIC_ID: [u8; 16] = [7; 16];

/// What callgrind counts: everything that one call of `work` does.
#[inline(never)]
fn measured<R>(work: &mut dyn FnMut() -> R) -> R {
    black_box(work())
}

/// A service over empty partitions that this node leads alone, without flushes.
struct Fixture {
    service: DataService,
    peer: Peer,
    directory: PathBuf,
    next_number: u64,
}

impl Fixture {
    fn new(partitions: i32) -> Self {
        let directory = std::env::temp_dir().join(format!("kraftlog-instructions-{}", std::process::id()));
        let all = Arc::new(Partitions::new());
        let pool = Arc::new(FlushPool::new("flush", 1));
        let inbox = Arc::new(Mailbox::new().unwrap());
        for index in 0..partitions {
            let partition = Partition::new(PartitionParts {
                key: PartitionKey { topic_id: TOPIC_ID, index },
                topic: "t".to_owned(),
                log: open_log(&directory.join(format!("t-{index}"))),
                start: ReplicaStart {
                    node_id: 1,
                    flush_on_ack: false,
                    min_insync_replicas: 1,
                    log_end_offset: 0,
                    flushed_offset: 0,
                    high_watermark: 0,
                },
                pool: Arc::clone(&pool),
                inbox: Arc::clone(&inbox),
                number: 0,
            });
            let (replicas, isr) = (vec![1], vec![1]);
            partition.assign(
                Assignment { leader_id: 1, leader_epoch: 1, partition_epoch: 0, replicas, isr },
                NOW_MS,
            );
            partition.hold(false);
            partition.publish(true);
            all.add(&partition);
        }
        let shared = ServiceShared::new(all, ServiceSettings::default(), Box::new(|| NOW_MS), 1);
        let listener: Arc<dyn Listener> = Arc::new(Mailbox::<DataMessage>::new().unwrap());
        let service = DataService::new(Arc::new(shared), listener);
        Self { service, peer: Peer::anonymous(0, "127.0.0.1"), directory, next_number: 0 }
    }

    /// One frame in a turn of its own; the bytes of its answer.
    fn answer(&mut self, frame: &[u8], now: Instant) -> Vec<Output> {
        let connection = ConnectionId { thread: 0, slot: 0, generation: 0 };
        let request = RequestId { connection, number: self.next_number };
        self.next_number += 1;
        let outcome = self.service.handle(request, &self.peer, frame, now);
        self.service.end_turn(now, false, &mut Vec::new());
        match outcome {
            Outcome::Answer(outputs) => outputs,
            other => panic!("{other:?}"),
        }
    }

    /// Frames of one receive, in a turn of their own.
    fn answer_together(&mut self, frames: &[&[u8]], now: Instant, outcomes: &mut Vec<Outcome>) {
        let connection = ConnectionId { thread: 0, slot: 0, generation: 0 };
        let first = RequestId { connection, number: self.next_number };
        self.next_number += frames.len() as u64;
        self.service.handle_together(first, &self.peer, frames, now, outcomes);
        self.service.end_turn(now, false, &mut Vec::new());
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // What is left in a temporary directory harms nothing.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn open_log(path: &Path) -> Arc<Log> {
    std::fs::create_dir_all(path).unwrap();
    let options =
        OpenOptions { recovery_point: 0, log_start_offset: 0, clean_shutdown: false, now_ms: NOW_MS };
    let log = Log::open(Arc::new(RealFileSystem), path, LogConfig::default(), options).unwrap();
    log.assign_epoch_start(1, 0).unwrap();
    Arc::new(log)
}

fn batch(records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default()).unwrap();
    for _ in 0..records {
        builder.append(NOW_MS, None, Some(&[b'v'; 100]), &[]).unwrap();
    }
    builder.finish().unwrap()
}

fn request(key: i16, version: i16, body: &[&[u8]]) -> Vec<u8> {
    let mut frame = [key.to_be_bytes(), version.to_be_bytes()].concat();
    frame.extend_from_slice(&[0, 0, 0, 1, 0, 4]); // correlation id, length of the client id
    frame.extend_from_slice(b"load\0");
    frame.extend(body.iter().copied().flatten());
    frame
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Produce v13 with acks=all of one batch to partition 0.
fn produce_frame(records: usize) -> Vec<u8> {
    let batch = batch(records);
    let head = [0, 0xff, 0xff, 0, 0, 0x75, 0x30, 2];
    let size = varint(batch.len() + 1);
    request(wire::PRODUCE_KEY, 13, &[&head, &TOPIC_ID, &[2, 0, 0, 0, 0], &size, &batch, &[0, 0, 0]])
}

/// Fetch v17 that waits for nothing; session 0 with epoch 0 opens one.
fn fetch_frame(session_id: i32, epoch: i32, partitions: i32, max_bytes: i32) -> Vec<u8> {
    let mut body = [0_i32.to_be_bytes(), 1_i32.to_be_bytes(), max_bytes.to_be_bytes()].concat();
    body.push(0); // isolation level
    body.extend([session_id.to_be_bytes(), epoch.to_be_bytes()].concat());
    if partitions == 0 {
        body.push(1);
    } else {
        body.push(2);
        body.extend(TOPIC_ID);
        body.extend(varint(partitions as usize + 1));
        for index in 0..partitions {
            body.extend(index.to_be_bytes());
            body.extend((-1_i32).to_be_bytes()); // current leader epoch
            body.extend(0_i64.to_be_bytes()); // fetch offset
            body.extend((-1_i32).to_be_bytes()); // last fetched epoch
            body.extend((-1_i64).to_be_bytes()); // log start offset
            body.extend(max_bytes.to_be_bytes());
            body.push(0);
        }
        body.push(0);
    }
    body.extend([1, 1, 0]); // no forgotten topics, no rack, no tagged fields
    request(wire::FETCH_KEY, 17, &[&body])
}

fn parse_case(records: usize) {
    let frame = produce_frame(records);
    measured(&mut || {
        for _ in 0..REQUESTS {
            let parsed = wire::produce::parse(black_box(&frame), |topic, index, records| {
                black_box((topic, index, records));
                Ok(())
            });
            assert!(parsed.is_ok());
        }
    });
}

fn produce_case(records: usize) {
    let mut fixture = Fixture::new(1);
    let frame = produce_frame(records);
    let now = Instant::now();
    fixture.answer(&frame, now);
    measured(&mut || (0..REQUESTS).for_each(|_| drop(fixture.answer(&frame, now))));
}

/// Frames that one receive brought.
fn produce_together_case() {
    let mut fixture = Fixture::new(1);
    let frame = produce_frame(1);
    let now = Instant::now();
    fixture.answer(&frame, now);
    let (frames, mut outcomes) = ([frame.as_slice(); TOGETHER], Vec::new());
    measured(&mut || {
        for _ in 0..REQUESTS / TOGETHER {
            fixture.answer_together(&frames, now, &mut outcomes);
            assert_eq!(outcomes.len(), TOGETHER);
            outcomes.clear();
        }
    });
}

/// A full fetch without a session, of one batch of 16 KB.
fn fetch_case() {
    let mut fixture = Fixture::new(1);
    let now = Instant::now();
    fixture.answer(&produce_frame(150), now);
    let frame = fetch_frame(0, -1, 1, 16 << 10);
    let answer = fixture.answer(&frame, now);
    assert!(answer.iter().any(|output| matches!(output, Output::File(_))), "{answer:?}");
    measured(&mut || (0..REQUESTS).for_each(|_| drop(fixture.answer(&frame, now))));
}

/// Incremental fetches of a session in which nothing moved.
fn session_case(partitions: i32) {
    let mut fixture = Fixture::new(partitions);
    let now = Instant::now();
    let opened = fixture.answer(&fetch_frame(0, 0, partitions, 1 << 20), now);
    let Some(Output::Bytes(bytes)) = opened.first() else { panic!("{opened:?}") };
    // Behind length, correlation id, tagged fields, throttle time and error code.
    let session_id = i32::from_be_bytes(bytes[15..19].try_into().unwrap());
    assert_ne!(session_id, 0);
    let frames: Vec<_> =
        (1..=REQUESTS as i32).map(|epoch| fetch_frame(session_id, epoch, 0, 1 << 20)).collect();
    measured(&mut || frames.iter().for_each(|frame| drop(fixture.answer(frame, now))));
}

/// Name, what its count is divided by, and the case.
type Case = (&'static str, usize, fn());

const CASES: &[Case] = &[
    ("Produce, 1 record: parse", REQUESTS, || parse_case(1)),
    ("Produce, 1 record: frame to answer", REQUESTS, || produce_case(1)),
    ("Produce, 1 record, five together: frame to answer", REQUESTS, produce_together_case),
    ("Produce, 150 records: frame to answer", REQUESTS, || produce_case(150)),
    ("Fetch, 16 KB: frame to answer", REQUESTS, fetch_case),
    ("Fetch, idle session of 10: frame to answer", REQUESTS, || session_case(10)),
    ("Fetch, idle session of 1000: frame to answer", REQUESTS, || session_case(1000)),
];

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    for (name, divisor, case) in CASES {
        if wanted.is_empty() {
            println!("{divisor}\t{name}");
        } else if wanted.iter().any(|wanted| wanted == name) {
            case();
        }
    }
}
