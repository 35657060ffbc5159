use super::*;
use crate::batch::Batches;
use crate::builder::{BatchBuilder, BatchOptions};
use crate::fs::{MemoryFileSystem, Operation};
use crate::producer_state::Origin;

mod damage;
mod raft;

const PATH: &str = "/data/t-0";

/// A log in memory whose records carry consecutive numbers.
struct Bench {
    fs: MemoryFileSystem,
    log: Log,
    next: u64,
    epoch: i32,
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 700, index_interval_bytes: 150, ..LogConfig::default() }
}

fn options(recovery_point: i64, clean_shutdown: bool) -> OpenOptions {
    OpenOptions { recovery_point, log_start_offset: 0, clean_shutdown, now_ms: 0 }
}

fn batch(values: std::ops::Range<u64>, options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options).unwrap();
    for value in values {
        builder.append(1000 + value as i64, None, Some(format!("{value:08}").as_bytes()), &[]).unwrap();
    }
    builder.finish().unwrap()
}

/// All values in the log, read piece by piece.
fn values(log: &Log) -> Vec<u64> {
    let mut found = Vec::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let bytes = log.read(offset, 300, log.log_end_offset(), true).unwrap().read().unwrap();
        assert!(!bytes.is_empty(), "nothing at offset {offset}");
        for batch in Batches::new(&bytes) {
            let batch = batch.unwrap();
            batch.validate_crc().unwrap();
            for record in batch.records(&mut Vec::new()).unwrap() {
                let record = record.unwrap();
                if record.offset >= offset {
                    assert_eq!(record.offset, offset);
                    found.push(std::str::from_utf8(record.value.unwrap()).unwrap().parse().unwrap());
                    offset += 1;
                }
            }
        }
    }
    found
}

impl Bench {
    fn new() -> Self {
        let fs = MemoryFileSystem::new();
        fs.create_dir(Path::new("/data")).unwrap();
        fs.sync_dir(Path::new("/data")).unwrap();
        let log = Log::open(Arc::new(fs.clone()), Path::new(PATH), config(), options(0, false)).unwrap();
        Self { fs, log, next: 0, epoch: 1 }
    }

    fn append(&mut self, count: u64) -> Result<AppendInfo> {
        let bytes = batch(self.next..self.next + count, BatchOptions::default());
        let info = self.log.append_as_leader(&bytes, self.epoch, 2000, Origin::Client)?;
        self.next += count;
        Ok(info)
    }

    fn append_sequence(&mut self, sequence: i32, count: u64) -> Result<AppendInfo> {
        let options = BatchOptions {
            producer_id: 9,
            producer_epoch: 0,
            base_sequence: sequence,
            ..BatchOptions::default()
        };
        let bytes = batch(self.next..self.next + count, options);
        let info = self.log.append_as_leader(&bytes, self.epoch, 2000, Origin::Client)?;
        self.next += if info.is_duplicate { 0 } else { count };
        Ok(info)
    }

    fn reopen(&self, options: OpenOptions) -> Log {
        Log::open(Arc::new(self.fs.clone()), Path::new(PATH), config(), options).unwrap()
    }
}

fn code(error: Error) -> i16 {
    match error {
        Error::Rejected { code, .. } => code,
        other => panic!("{other}"),
    }
}

#[test]
fn appends_roll_and_read_back() {
    let mut bench = Bench::new();
    for count in [1, 5, 3, 10, 2, 7, 1, 1, 20] {
        bench.append(count).unwrap();
    }
    assert!(bench.log.segment_count() > 1);
    assert_eq!(values(&bench.log), (0..50).collect::<Vec<_>>());
    let info = bench.append(3).unwrap();
    assert_eq!((info.first_offset, info.last_offset, info.log_start_offset), (50, 52, 0));
    bench.log.close().unwrap();
    assert!(bench.append(1).is_err());
    let log = bench.reopen(options(53, true));
    assert_eq!(values(&log), (0..53).collect::<Vec<_>>());
    assert_eq!(log.epoch_entries().len(), 1);
}

#[test]
fn reads_stop_before_the_end_offset_and_at_the_size() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        bench.append(2).unwrap();
    }
    let size = bench.log.read(0, 1, 8, true).unwrap().size_bytes();
    assert_eq!(bench.log.read(0, u64::MAX >> 1, 8, true).unwrap().size_bytes(), size * 4);
    assert_eq!(bench.log.read(3, size * 2 + 1, 8, true).unwrap().size_bytes(), size * 2);
    assert_eq!(bench.log.read(0, u64::MAX >> 1, 5, true).unwrap().size_bytes(), size * 2);
    assert_eq!(bench.log.read(4, 100_000, 5, true).unwrap().size_bytes(), 0);
    assert_eq!(bench.log.read(0, 1, 8, false).unwrap().size_bytes(), 0);
    assert_eq!(bench.log.read(8, 100, 8, true).unwrap().size_bytes(), 0);
    assert!(matches!(bench.log.read(9, 100, 8, true), Err(Error::OffsetOutOfRange { .. })));
}

#[test]
fn duplicates_answer_with_the_old_offsets_also_after_recovery() {
    let mut bench = Bench::new();
    bench.append(1).unwrap();
    for sequence in [0, 3, 6] {
        bench.append_sequence(sequence, 3).unwrap();
    }
    let again = bench.append_sequence(3, 3).unwrap();
    assert_eq!((again.is_duplicate, again.first_offset, again.last_offset), (true, 4, 6));
    assert_eq!(code(bench.append_sequence(12, 3).unwrap_err()), 45);
    assert_eq!(bench.log.log_end_offset(), 10);
    bench.log.flush().unwrap();
    bench.log = bench.reopen(options(0, false));
    assert!(bench.append_sequence(6, 3).unwrap().is_duplicate);
    assert_eq!(bench.append_sequence(9, 3).unwrap().first_offset, 10);
}

#[test]
fn refusals_leave_the_log_alone() {
    let mut bench = Bench::new();
    bench.append(1).unwrap();
    let good = batch(0..2, BatchOptions::default());
    let mut bad_crc = good.clone();
    *bad_crc.last_mut().unwrap() ^= 1;
    let twice = [good.clone(), good.clone()].concat();
    let control = batch(0..1, BatchOptions { is_control: true, ..BatchOptions::default() });
    let large = batch(0..200, BatchOptions::default());
    let append = |bytes: &[u8]| bench.log.append_as_leader(bytes, 1, 2000, Origin::Client).unwrap_err();
    assert_eq!(code(append(&bad_crc)), 2);
    assert_eq!(code(append(&twice)), 87);
    assert_eq!(code(append(&control)), 87);
    assert_eq!(code(append(&[])), 87);
    assert_eq!(code(append(&large)), 18);
    bench.log.update_config(LogConfig { max_message_bytes: 70, ..config() });
    assert_eq!(code(append(&good)), 10);
    assert_eq!((bench.log.log_end_offset(), bench.log.poisoned()), (1, None));
}

#[test]
fn log_append_time_and_recompression_are_the_topics_choice() {
    let mut bench = Bench::new();
    bench.log.update_config(LogConfig {
        timestamp_type: crate::batch::TimestampType::LogAppendTime,
        compression: Some(crate::compression::Codec::Zstd),
        ..config()
    });
    assert_eq!(bench.append(3).unwrap().log_append_time_ms, 2000);
    let bytes = bench.log.read(0, 1000, 3, true).unwrap().read().unwrap();
    let batch = Batches::new(&bytes).next().unwrap().unwrap();
    batch.validate_crc().unwrap();
    assert_eq!((batch.max_timestamp(), batch.partition_leader_epoch()), (2000, 1));
    assert_eq!(batch.codec(), Ok(crate::compression::Codec::Zstd));
    assert_eq!(values(&bench.log), [0, 1, 2]);
}

#[test]
fn followers_take_batches_as_they_are() {
    let mut bench = Bench::new();
    let build = |base_offset, epoch| {
        batch(0..2, BatchOptions { base_offset, partition_leader_epoch: epoch, ..BatchOptions::default() })
    };
    let bytes = [build(5, 1), build(7, 2), build(9, 4)].concat();
    let info = bench.log.append_as_follower(&bytes, 3, 0).unwrap();
    assert_eq!((info.first_offset, info.last_offset, info.record_count), (5, 8, 4));
    assert_eq!(bench.log.epoch_entries().len(), 2);
    let overlap = bench.log.append_as_follower(&build(8, 2), 3, 0);
    assert!(matches!(overlap, Err(Error::OffsetOutOfRange { offset: 8, .. })));
    let backwards = [build(20, 2), build(10, 2)].concat();
    assert!(matches!(bench.log.append_as_follower(&backwards, 3, 0), Err(Error::Corrupt { .. })));
    assert_eq!(bench.log.log_end_offset(), 9);
    bench.epoch = 5;
    assert_eq!(bench.append(1).unwrap().first_offset, 9);
}

#[test]
fn truncation_drops_records_epochs_and_producers() {
    let mut bench = Bench::new();
    for sequence in 0..30 {
        bench.epoch = 1 + sequence / 10;
        bench.append_sequence(sequence, 1).unwrap();
    }
    assert!(bench.log.segment_count() > 3);
    assert!(bench.log.truncate_to(12, 0).unwrap());
    assert_eq!(values(&bench.log), (0..12).collect::<Vec<_>>());
    assert_eq!(bench.log.end_offset_for_epoch(2), (2, 12));
    assert_eq!(bench.log.active_producers()[0].last_sequence(), 11);
    assert!(!bench.log.truncate_to(12, 0).unwrap());
    bench.next = 12;
    bench.append_sequence(12, 1).unwrap();
    bench.log.truncate_fully_and_start_at(100, 0).unwrap();
    assert_eq!((bench.log.log_start_offset(), bench.log.log_end_offset()), (100, 100));
    assert_eq!(bench.append(2).unwrap().first_offset, 100);
    assert_eq!(bench.log.active_producers(), []);
}

#[test]
fn retention_keeps_what_it_should() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.append(2).unwrap();
    }
    let bases: Vec<_> = bench.log.segments().unwrap().iter().map(|segment| segment.base_offset).collect();
    bench.log.update_config(LogConfig { retention_ms: -1, retention_bytes: -1, ..config() });
    bench.log.advance_log_start_offset(bases[1] + 1).unwrap();
    assert_eq!(bench.log.delete_old_segments(0, 40).unwrap(), bases[..1]);
    assert_eq!(values(&bench.log).first(), Some(&(bases[1] as u64 + 1)));
    bench.log.update_config(LogConfig { retention_ms: 10, retention_bytes: -1, ..config() });
    assert_eq!(bench.log.delete_old_segments(5000, bases[2]).unwrap(), bases[1..2]);
    assert_eq!(bench.log.delete_old_segments(5000, 40).unwrap(), bases[2..]);
    assert_eq!((bench.log.log_start_offset(), bench.log.segment_count()), (40, 1));
    let names = |bench: &Bench| bench.fs.list(Path::new(PATH)).unwrap();
    assert!(names(&bench).iter().any(|name| name.ends_with(".deleted")));
    assert!(bench.log.remove_deleted(100_000).unwrap() > 0);
    assert!(!names(&bench).iter().any(|name| name.ends_with(".deleted")));
    bench.append(1).unwrap();
    bench.log.update_config(LogConfig { retention_ms: -1, retention_bytes: 0, ..config() });
    assert_eq!(bench.log.delete_old_segments(5000, 41).unwrap(), [40]);
}

#[test]
fn time_lookups_find_records() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.append(3).unwrap();
    }
    let find = |timestamp| bench.log.offset_for_timestamp(timestamp).unwrap().map(|found| found.offset);
    assert_eq!([find(0), find(1031), find(1059), find(1060)], [Some(0), Some(31), Some(59), None]);
    assert_eq!(bench.log.max_timestamp().unwrap().map(|found| found.offset), Some(59));
}

#[test]
fn transactions_are_indexed_and_hold_the_stable_offset() {
    let bench = Bench::new();
    let txn = BatchOptions {
        producer_id: 9,
        producer_epoch: 0,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };
    bench.log.append_as_leader(&batch(0..2, txn), 1, 2000, Origin::Client).unwrap();
    assert_eq!(bench.log.first_unstable_offset(), Some(0));
    let mut marker = BatchBuilder::new(BatchOptions { is_control: true, base_sequence: -1, ..txn }).unwrap();
    marker.append(2000, Some(&[0, 0, 0, 0]), Some(&[0, 0, 0, 0, 0, 3]), &[]).unwrap();
    let marker = marker.finish().unwrap();
    assert_eq!(code(bench.log.append_as_leader(&marker, 1, 2000, Origin::Client).unwrap_err()), 87);
    bench.log.append_as_leader(&marker, 1, 2000, Origin::Coordinator).unwrap();
    bench.log.update_high_watermark(3);
    assert_eq!(bench.log.first_unstable_offset(), None);
    let aborted = bench.log.aborted_transactions(0, 3).unwrap();
    assert_eq!((aborted.len(), aborted[0].first_offset, aborted[0].last_offset), (1, 0, 2));
    bench.log.close().unwrap();
    assert_eq!(bench.reopen(options(3, true)).aborted_transactions(0, 3).unwrap(), aborted);
    assert_eq!(bench.reopen(options(0, false)).aborted_transactions(0, 3).unwrap(), aborted);
}

#[test]
fn failed_writes_and_syncs_poison() {
    for operation in [Operation::Write, Operation::Sync] {
        for errno in [libc::EIO, libc::ENOSPC] {
            let mut bench = Bench::new();
            bench.append(2).unwrap();
            bench.log.flush().unwrap();
            bench.fs.fail(operation, 0, errno);
            let failed = bench.append(2).and_then(|_| bench.log.flush());
            assert!(matches!(failed, Err(Error::Io { .. })));
            assert!(matches!(bench.append(1), Err(Error::Poisoned { .. })));
            assert!(matches!(bench.log.flush(), Err(Error::Poisoned { .. })));
            assert!(matches!(bench.log.read(0, 1, 1, true), Err(Error::Poisoned { .. })));
            bench.log.close().unwrap();
            let log = bench.reopen(options(2, false));
            assert_eq!(values(&log)[..2], [0, 1]);
        }
    }
}

#[test]
fn a_full_disk_tears_the_write_and_recovery_cuts_it() {
    let mut bench = Bench::new();
    bench.append(2).unwrap();
    let size = bench.log.size_bytes();
    bench.fs.set_capacity(Some(size + 100));
    assert!(matches!(bench.append(20), Err(Error::Io { .. })));
    bench.fs.set_capacity(None);
    let log = bench.reopen(options(0, false));
    assert_eq!((values(&log), log.size_bytes()), (vec![0, 1], size));
}

#[test]
fn a_reader_keeps_its_slice_when_the_segment_goes() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.append(2).unwrap();
    }
    let slice = bench.log.read(0, 100_000, 40, true).unwrap();
    let before = slice.read().unwrap();
    bench.log.delete_old_segments(i64::MAX / 2, 40).unwrap();
    bench.log.remove_deleted(i64::MAX).unwrap();
    assert_eq!(slice.read().unwrap(), before);
}
