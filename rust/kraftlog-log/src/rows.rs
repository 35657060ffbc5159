//! Rows of Arrow columns to the segments of partitions: what a bulk load writes.
//!
//! Rows of a partition come one behind the other, and a partition comes once; what comes otherwise is an error, as the
//! file would have another order than its reader was promised.
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::StructArray;

use crate::batch::{TimestampType, NO_TIMESTAMP};
use crate::builder::{BatchBuilder, BatchOptions};
use crate::compression::Codec;
use crate::epoch_checkpoint::EpochEntry;
use crate::fs::FileSystem;
use crate::log::{Log, LogConfig, OpenOptions};
use crate::{Error, Result};

mod columns;
mod named_columns;
mod produced;

use columns::RowColumns;
pub use named_columns::{named_columns, ColumnNames};
pub use produced::{produced_batches, seal, BatchProducer, ProducedBatch, ProducedOptions};

/// Encoded batches are handed to the log when there are this many bytes of them.
const FLUSH_BYTES: usize = 4 << 20;
/// Small integers of a record, at most.
const RECORD_OVERHEAD_MAX: usize = 32;
/// A record batch and the index of a segment hold offsets as what is added to their base, in 31 bits.
const OFFSET_DELTA_MAX: i64 = i32::MAX as i64;

/// How rows become batches and batches segments.
#[derive(Clone, Debug)]
pub struct RowOptions {
    /// Codec of the batches.
    pub codec: Codec,
    /// Level of the codec; None is Kafka's default.
    pub level: Option<i32>,
    /// A batch ends before it would grow beyond this many bytes uncompressed, header included.
    pub batch_bytes: usize,
    /// Most records of a batch.
    pub batch_rows: i32,
    /// Whose time the records have. None: what the column `timestampType` says, or CreateTime.
    pub timestamp_type: Option<TimestampType>,
    /// Settings of the logs.
    pub log: LogConfig,
}

/// Where the next record of a partition goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Least offset of its first record.
    pub offset: i64,
    /// Leader epoch of its records, unless rows say otherwise.
    pub leader_epoch: i32,
}

/// A partition that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenPartition {
    /// Name of the topic.
    pub topic: String,
    /// Number of the partition.
    pub partition: i32,
    /// Offset of the first record.
    pub first_offset: i64,
    /// Offset after the last record.
    pub end_offset: i64,
    /// Records.
    pub rows: u64,
    /// Bytes of all segments.
    pub size_bytes: u64,
    /// Leader epochs of the batches.
    pub epochs: Vec<EpochEntry>,
}

/// The partition that rows are written to.
struct Current {
    topic: String,
    partition: i32,
    log: Log,
    first_offset: i64,
    next_offset: i64,
    leader_epoch: i32,
    rows: u64,
}

/// Writes partition directories below a directory of its own.
pub struct RowWriter {
    fs: Arc<dyn FileSystem>,
    directory: PathBuf,
    options: RowOptions,
    /// For rows without the columns topic and partition.
    topic: Option<String>,
    partition: Option<i32>,
    starts: HashMap<(String, i32), Start>,
    default_start: Start,
    current: Option<Current>,
    seen: HashSet<(String, i32)>,
    written: Vec<WrittenPartition>,
    buffer: Vec<u8>,
}

/// What names a partition: the option that stands for a column wins over the column.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Topic of all rows.
    pub topic: Option<String>,
    /// Partition of all rows.
    pub partition: Option<i32>,
    /// Where partitions begin that have records already.
    pub starts: HashMap<(String, i32), Start>,
    /// Leader epoch of partitions that are not in `starts`.
    pub leader_epoch: i32,
}

impl RowWriter {
    /// A writer into `directory`, which exists and is empty.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that make no sense.
    pub fn new(
        fs: Arc<dyn FileSystem>,
        directory: PathBuf,
        options: RowOptions,
        target: Target,
    ) -> Result<Self> {
        options.log.validate()?;
        if options.batch_rows < 1 || options.batch_bytes < 1 {
            return Err(Error::Invalid("a batch has room for at least one row and one byte".to_owned()));
        }
        // A batch has to fit a segment.
        let segment_bytes = usize::try_from(options.log.segment_bytes).unwrap_or(usize::MAX);
        let options = RowOptions { batch_bytes: options.batch_bytes.min(segment_bytes), ..options };
        let Target { topic, partition, starts, leader_epoch } = target;
        if let Some(topic) = &topic {
            check_topic(topic)?;
        }
        Ok(Self {
            fs,
            directory,
            options,
            topic,
            partition,
            starts,
            default_start: Start { offset: 0, leader_epoch },
            current: None,
            seen: HashSet::new(),
            written: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// Append rows; `now_ms` is the time of those that have none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for rows that cannot be written, named by topic, partition and offset. The writer is of no
    /// use afterwards.
    pub fn write(&mut self, rows: &StructArray, now_ms: i64) -> Result<()> {
        let columns = RowColumns::new(rows)?;
        let mut start = 0;
        while start < columns.len() {
            let topic = match &self.topic {
                Some(topic) => topic.as_bytes(),
                None => columns.topic(start)?,
            };
            let partition = match self.partition {
                Some(partition) => partition,
                None => columns.partition(start)?,
            };
            let is_same = |row| {
                (self.topic.is_some() || columns.is_topic(row, topic))
                    && (self.partition.is_some() || columns.is_partition(row, partition))
            };
            let end = (start + 1..columns.len()).find(|row| !is_same(*row)).unwrap_or(columns.len());
            let is_open = self
                .current
                .as_ref()
                .is_some_and(|current| current.partition == partition && current.topic.as_bytes() == topic);
            if !is_open {
                let topic = std::str::from_utf8(topic)
                    .map_err(|_| Error::Invalid("a topic that is not UTF-8".to_owned()))?
                    .to_owned();
                self.open(topic, partition, columns.offset(start)?)?;
            }
            self.write_run(&columns, start..end, now_ms)?;
            start = end;
        }
        Ok(())
    }

    /// Close the last log and tell what was written. All of it is durable then.
    ///
    /// # Errors
    /// An I/O error.
    pub fn finish(mut self) -> Result<Vec<WrittenPartition>> {
        self.close_current()?;
        Ok(self.written)
    }

    fn open(&mut self, topic: String, partition: i32, first_offset: Option<i64>) -> Result<()> {
        self.close_current()?;
        check_topic(&topic)?;
        if partition < 0 {
            return Err(Error::Invalid(format!("partition {partition} of topic {topic} is negative")));
        }
        let key = (topic, partition);
        let start = self.starts.get(&key).copied().unwrap_or(self.default_start);
        let (topic, partition) = key.clone();
        if !self.seen.insert(key) {
            return Err(Error::Invalid(format!(
                "rows of {topic}-{partition} come again after rows of another partition: the rows of a task have to be \
                 sorted by topic and partition, see kraftlog.spark.prepare"
            )));
        }
        let offset = first_offset.unwrap_or(start.offset);
        if offset < start.offset || offset < 0 {
            return Err(Error::Invalid(format!(
                "offset {offset} of {topic}-{partition} is below {}, where the partition ends",
                start.offset
            )));
        }
        let path = self.directory.join(format!("{topic}-{partition}"));
        let options = OpenOptions {
            recovery_point: offset,
            log_start_offset: offset,
            clean_shutdown: true,
            now_ms: NO_TIMESTAMP,
        };
        let log = Log::open(Arc::clone(&self.fs), &path, self.options.log.clone(), options)?;
        self.current = Some(Current {
            topic,
            partition,
            log,
            first_offset: offset,
            next_offset: offset,
            leader_epoch: start.leader_epoch,
            rows: 0,
        });
        Ok(())
    }

    fn close_current(&mut self) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let size_bytes = current.log.size_bytes();
        let epochs = current.log.epoch_entries();
        current.log.close()?;
        self.written.push(WrittenPartition {
            topic: current.topic,
            partition: current.partition,
            first_offset: current.first_offset,
            end_offset: current.next_offset,
            rows: current.rows,
            size_bytes,
            epochs,
        });
        Ok(())
    }

    /// Rows of the current partition.
    fn write_run(&mut self, columns: &RowColumns<'_>, run: Range<usize>, now_ms: i64) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let options = &self.options;
        let mut shape =
            Shape { leader_epoch: current.leader_epoch, is_append_time: false, timestamp: now_ms };
        let mut base_offset = current.next_offset;
        // Of the first batch in the builder: what is appended together has to fit one segment, whose files count from it.
        let mut append_offset = base_offset;
        let mut builder = BatchBuilder::with_buffer(
            batch_options(options, base_offset, shape),
            std::mem::take(&mut self.buffer),
        )?;
        let mut headers = Vec::new();
        for row in run {
            let named =
                |reason: String| Error::Invalid(format!("{}-{}: {reason}", current.topic, current.partition));
            let offset = columns.offset(row).map_err(|error| named(error.to_string()))?;
            let offset = offset.unwrap_or(current.next_offset);
            if offset < current.next_offset {
                return Err(named(format!(
                    "offset {offset} comes after offset {}: the rows of a partition have to be sorted by offset and \
                     each offset is there once, see kraftlog.spark.prepare",
                    current.next_offset - 1
                )));
            }
            if offset == i64::MAX {
                return Err(named(format!("offset {offset} is the last there is, no other can follow")));
            }
            let timestamp = columns.timestamp(row).unwrap_or(now_ms);
            let is_append_time = match options.timestamp_type {
                Some(wanted) => wanted == TimestampType::LogAppendTime,
                None => columns.is_append_time(row).map_err(|error| named(error.to_string()))?,
            };
            let leader_epoch = columns.leader_epoch(row).unwrap_or(current.leader_epoch);
            if leader_epoch < current.leader_epoch {
                return Err(named(format!(
                    "leader epoch {leader_epoch} of offset {offset} comes after epoch {}",
                    current.leader_epoch
                )));
            }
            columns
                .headers(row, &mut headers)
                .map_err(|error| named(format!("headers of offset {offset}: {error}")))?;
            let (key, value) = (columns.key(row), columns.value(row));
            let wanted = Shape { leader_epoch, is_append_time, timestamp };
            let size = RECORD_OVERHEAD_MAX
                + key.map_or(0, <[u8]>::len)
                + value.map_or(0, <[u8]>::len)
                + headers
                    .iter()
                    .map(|(key, value)| 10 + key.len() + value.map_or(0, <[u8]>::len))
                    .sum::<usize>();
            let count = builder.record_count();
            let is_far = offset - append_offset > OFFSET_DELTA_MAX;
            let is_full =
                is_far || count >= options.batch_rows || builder.batch_bytes() + size > options.batch_bytes;
            if count == 0 || is_full || !shape.takes(wanted) {
                if is_far || builder.finished_bytes() + builder.batch_bytes() > FLUSH_BYTES {
                    self.buffer = append(&current.log, builder)?;
                    builder = BatchBuilder::with_buffer(
                        batch_options(options, offset, wanted),
                        std::mem::take(&mut self.buffer),
                    )?;
                    append_offset = offset;
                } else {
                    builder.begin_batch(batch_options(options, offset, wanted))?;
                }
                (base_offset, shape) = (offset, wanted);
            }
            // Not above OFFSET_DELTA_MAX, as a batch was begun otherwise.
            let delta = (offset - base_offset) as i32;
            builder
                .append_at(delta, timestamp, key, value, &headers)
                .map_err(|error| named(format!("offset {offset}: {error}")))?;
            current.leader_epoch = leader_epoch;
            current.next_offset = offset + 1;
            current.rows += 1;
        }
        self.buffer = append(&current.log, builder)?;
        Ok(())
    }
}

/// What all records of a batch share.
#[derive(Clone, Copy)]
struct Shape {
    leader_epoch: i32,
    is_append_time: bool,
    /// Of the whole batch with LogAppendTime.
    timestamp: i64,
}

impl Shape {
    fn takes(&self, other: Self) -> bool {
        self.leader_epoch == other.leader_epoch
            && self.is_append_time == other.is_append_time
            && (!self.is_append_time || self.timestamp == other.timestamp)
    }
}

fn batch_options(options: &RowOptions, base_offset: i64, shape: Shape) -> BatchOptions {
    BatchOptions {
        base_offset,
        partition_leader_epoch: shape.leader_epoch,
        codec: options.codec,
        level: options.level,
        timestamp_type: match shape.is_append_time {
            true => TimestampType::LogAppendTime,
            false => TimestampType::CreateTime,
        },
        log_append_time_ms: shape.timestamp,
        ..BatchOptions::default()
    }
}

/// Give the finished batches to the log; the buffer comes back.
fn append(log: &Log, builder: BatchBuilder) -> Result<Vec<u8>> {
    let batches = builder.finish()?;
    match log.append_as_follower(&batches, i32::MAX, NO_TIMESTAMP) {
        Ok(_) => Ok(batches),
        // A record that is larger than segment.bytes.
        Err(Error::Rejected { reason, .. }) => {
            Err(Error::Invalid(format!("{}: {reason}", log.path().display())))
        }
        Err(error) => Err(error),
    }
}

/// Kafka's rule for names of topics; they become names of directories here.
fn check_topic(topic: &str) -> Result<()> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if topic.is_empty() || topic.len() > 249 || matches!(topic, "." | "..") || !topic.bytes().all(is_legal) {
        return Err(Error::Invalid(format!(
            "topic {topic:?} is no name for a topic: 1 to 249 ASCII letters, digits, '.', '_' and '-', not \".\" or \"..\""
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
