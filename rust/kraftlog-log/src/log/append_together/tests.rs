use std::path::Path;

use proptest::prelude::*;

use super::super::testing::{batch, names, small, Fixture, PATH};
use super::super::AppendOptions;
use super::*;
use crate::builder::BatchOptions;
use crate::fs::{read_file, FileSystem, MemoryFileSystem, Operation};
use crate::Error;

const EPOCH: i32 = 3;

/// One batch of a client.
#[derive(Clone, Debug)]
struct Produced {
    records: i64,
    timestamp: i64,
    /// Producer id, epoch and base sequence.
    producer: Option<(i64, i16, i32)>,
    is_transactional: bool,
}

impl Produced {
    fn plain(records: i64) -> Self {
        Self { records, timestamp: 5, producer: None, is_transactional: false }
    }

    fn of(producer_id: i64, base_sequence: i32, records: i64) -> Self {
        Self { producer: Some((producer_id, 0, base_sequence)), ..Self::plain(records) }
    }

    fn bytes(&self) -> Vec<u8> {
        let (producer_id, producer_epoch, base_sequence) = self.producer.unwrap_or((-1, -1, -1));
        let is_transactional = self.is_transactional && self.producer.is_some();
        let options = BatchOptions {
            producer_id,
            producer_epoch,
            base_sequence,
            is_transactional,
            ..BatchOptions::default()
        };
        batch(self.timestamp, self.records, options)
    }
}

fn options() -> AppendOptions {
    AppendOptions { requires_verification: true, ..AppendOptions::new(-1, 9, Origin::Client) }
}

fn prepare<'a>(log: &Log, batches: &'a [Vec<u8>]) -> Vec<PreparedAppend<'a>> {
    batches.iter().map(|bytes| log.prepare_append(bytes, options()).unwrap()).collect()
}

fn append_one_by_one(log: &Log, batches: &[Vec<u8>]) -> Vec<String> {
    let requests = prepare(log, batches);
    requests.into_iter().map(|request| format!("{:?}", log.commit_append(request, EPOCH))).collect()
}

fn append_together(log: &Log, batches: &[Vec<u8>]) -> Vec<String> {
    let results = log.commit_appends(prepare(log, batches), EPOCH);
    results.into_iter().map(|result| format!("{result:?}")).collect()
}

/// Every file of the partition with its bytes.
fn files(fs: &MemoryFileSystem) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = read_file(fs as &dyn FileSystem, &Path::new(PATH).join(&name)).unwrap().unwrap();
        (name, bytes)
    };
    names(fs).into_iter().map(read).collect()
}

/// Writes to files that one call makes.
fn changes_of(fs: &MemoryFileSystem, call: impl FnOnce()) -> u64 {
    let before = fs.change_count();
    call();
    fs.change_count() - before
}

fn batches(produced: &[Produced]) -> Vec<Vec<u8>> {
    produced.iter().map(Produced::bytes).collect()
}

#[test]
fn batches_of_several_requests_share_a_write() {
    let Fixture { fs, log } = Fixture::new(LogConfig::default());
    append_one_by_one(&log, &batches(&[Produced::plain(1)]));
    let five = batches(&[
        Produced::plain(2),
        Produced::of(7, 0, 1),
        Produced::of(7, 1, 2),
        Produced::of(8, 0, 1),
        Produced::plain(1),
    ]);
    let writes = changes_of(&fs, || {
        assert!(append_together(&log, &five).iter().all(|result| result.starts_with("Ok")));
    });
    assert_eq!(writes, 1);
    assert_eq!(log.log_end_offset(), 8);
}

#[test]
fn a_failed_write_is_told_to_all_and_nothing_of_them_is_readable() {
    let Fixture { fs, log } = Fixture::new(LogConfig::default());
    append_one_by_one(&log, &batches(&[Produced::plain(1)]));
    fs.fail(Operation::Write, 0, 5);
    let bytes = batches(&[Produced::plain(1), Produced::plain(1), Produced::plain(1)]);
    let results = log.commit_appends(prepare(&log, &bytes), EPOCH);
    assert!(matches!(results.first(), Some(Err(Error::Io { .. }))), "{results:?}");
    assert!(
        results.iter().skip(1).all(|result| matches!(result, Err(Error::Poisoned { .. }))),
        "{results:?}"
    );
    assert_eq!(log.log_end_offset(), 1);
}

#[test]
fn a_closed_log_refuses_each() {
    let Fixture { log, .. } = Fixture::new(LogConfig::default());
    append_one_by_one(&log, &batches(&[Produced::plain(1)]));
    let bytes = batches(&[Produced::plain(1), Produced::plain(1)]);
    let requests = prepare(&log, &bytes);
    log.close().unwrap();
    let results = log.commit_appends(requests, EPOCH);
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(Result::is_err), "{results:?}");
}

fn produced() -> impl Strategy<Value = Produced> {
    let producer =
        proptest::option::weighted(0.7, (1_i64..3, prop_oneof![9 => Just(0_i16), 1 => Just(1)], 0_i32..6));
    (1_i64..4, 0_i64..40, producer, proptest::bool::weighted(0.05)).prop_map(
        |(records, timestamp, producer, is_transactional)| Produced {
            records,
            timestamp,
            producer,
            is_transactional,
        },
    )
}

/// Sequences that follow each other more often than chance has it; some repeat the one before.
fn requests() -> impl Strategy<Value = Vec<Produced>> {
    let one = (produced(), 0_u8..10);
    proptest::collection::vec(one, 1..7).prop_map(|drawn| {
        let mut next = [0_i32; 3];
        let mut all: Vec<Produced> = Vec::new();
        for (mut one, how) in drawn {
            if let (Some((id, epoch, sequence)), 1..) = (one.producer, how) {
                let follows = next.get(id as usize).copied().unwrap_or(0);
                let sequence = if how == 9 { sequence } else { follows };
                one.producer = Some((id, epoch, sequence));
                if let Some(next) = next.get_mut(id as usize) {
                    *next = sequence + one.records as i32;
                }
            }
            all.push(one.clone());
            if how == 8 {
                all.push(one);
            }
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn together_gives_what_one_by_one_gives(
        turns in proptest::collection::vec(requests(), 1..12),
        segment_bytes in prop_oneof![Just(400_u64), Just(700), Just(100_000)],
        segment_ms in prop_oneof![Just(20_i64), Just(i64::MAX)],
        index_bytes in prop_oneof![Just(40_u64), Just(10_000)],
        is_dated in any::<bool>(),
    ) {
        let timestamp_type = if is_dated { TimestampType::LogAppendTime } else { TimestampType::CreateTime };
        let config = LogConfig { segment_bytes, segment_ms, segment_index_bytes: index_bytes, timestamp_type, ..small() };
        let (one, other) = (Fixture::new(config.clone()), Fixture::new(config));
        for turn in &turns {
            let bytes = batches(turn);
            prop_assert_eq!(append_together(&one.log, &bytes), append_one_by_one(&other.log, &bytes));
        }
        for log in [&one.log, &other.log] {
            log.take_producer_snapshot().unwrap();
            log.close().unwrap();
        }
        prop_assert_eq!(files(&one.fs), files(&other.fs));
    }
}
