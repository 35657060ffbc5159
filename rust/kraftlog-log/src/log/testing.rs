//! What the tests of this module share: a log in memory whose records are numbered and dated by their number.
use std::path::Path;
use std::sync::Arc;

use super::{AppendInfo, Log, LogConfig, OpenOptions};
use crate::batch::Batches;
use crate::builder::{BatchBuilder, BatchOptions};
use crate::fs::{FileSystem, MemoryFileSystem};
use crate::producer_state::Origin;
use crate::Result;

pub(super) const PATH: &str = "/data/t-0";

pub(super) struct Fixture {
    pub(super) fs: MemoryFileSystem,
    pub(super) log: Log,
}

pub(super) fn small() -> LogConfig {
    LogConfig { segment_bytes: 700, index_interval_bytes: 150, ..LogConfig::default() }
}

pub(super) fn unclean(recovery_point: i64) -> OpenOptions {
    OpenOptions { recovery_point, log_start_offset: 0, clean_shutdown: false, now_ms: 0 }
}

pub(super) fn clean() -> OpenOptions {
    OpenOptions { clean_shutdown: true, ..unclean(0) }
}

/// A batch of `count` records with the timestamps `from..` and eight digits as value.
pub(super) fn batch(from: i64, count: i64, options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options).unwrap();
    for number in from..from + count {
        builder.append(number, None, Some(format!("{number:08}").as_bytes()), &[]).unwrap();
    }
    builder.finish().unwrap()
}

/// Offset and value of every record, read piece by piece.
pub(super) fn records(log: &Log) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    let mut offset = log.log_start_offset();
    while offset < log.log_end_offset() {
        let bytes = log.read(offset, 400, log.log_end_offset(), true).unwrap().read().unwrap();
        if bytes.is_empty() {
            break;
        }
        for one in Batches::new(&bytes) {
            let one = one.unwrap();
            one.validate_crc().unwrap();
            for record in one.records(&mut Vec::new()).unwrap() {
                let record = record.unwrap();
                if record.offset >= offset {
                    let value = String::from_utf8(record.value.unwrap_or_default().to_vec()).unwrap();
                    found.push((record.offset, value));
                }
            }
            offset = one.next_offset();
        }
    }
    found
}

pub(super) fn offsets(log: &Log) -> Vec<i64> {
    records(log).into_iter().map(|(offset, _)| offset).collect()
}

pub(super) fn bases(log: &Log) -> Vec<i64> {
    log.segments().unwrap().iter().map(|segment| segment.base_offset).collect()
}

pub(super) fn open(fs: &MemoryFileSystem, config: LogConfig, options: OpenOptions) -> Result<Log> {
    Log::open(Arc::new(fs.clone()), Path::new(PATH), config, options)
}

/// Names in the partition directory, sorted.
pub(super) fn names(fs: &MemoryFileSystem) -> Vec<String> {
    let mut names = fs.list(Path::new(PATH)).unwrap();
    names.sort_unstable();
    names
}

impl Fixture {
    pub(super) fn new(config: LogConfig) -> Self {
        let fs = MemoryFileSystem::new();
        fs.create_dir(Path::new("/data")).unwrap();
        fs.sync_dir(Path::new("/data")).unwrap();
        let log = open(&fs, config, unclean(0)).unwrap();
        Self { fs, log }
    }

    /// Append `count` records dated by their offset, at the same time.
    pub(super) fn append(&self, count: i64) -> Result<AppendInfo> {
        let from = self.log.log_end_offset();
        self.append_bytes(&batch(from, count, BatchOptions::default()), from)
    }

    pub(super) fn append_bytes(&self, bytes: &[u8], now_ms: i64) -> Result<AppendInfo> {
        self.log.append_as_leader(bytes, 1, now_ms, Origin::Client)
    }
}
