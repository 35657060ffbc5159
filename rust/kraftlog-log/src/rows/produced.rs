//! Rows of Arrow columns to the batches that a producer sends: one list per partition, in the order of the rows.
use std::collections::BTreeMap;

use arrow_array::{Array, StructArray};

use super::columns::RowColumns;
use crate::batch::{split_header_mut, update_crc, BatchHeader};
use crate::builder::{BatchBuilder, BatchOptions};
use crate::byte_pool;
use crate::compression::Codec;
use crate::partitioner::murmur2;
use crate::{Error, Result};

/// Small integers of a record, at most, and the most that a header adds to its bytes.
const RECORD_OVERHEAD_MAX: usize = 32;
const HEADER_OVERHEAD_MAX: usize = 10;
/// The builder wants this much room behind a record that it appends.
const APPEND_SLACK: usize = 256;
/// More is left to the buffer's own growth.
const RESERVE_BYTES_MAX: usize = 4 << 20;

/// How rows become batches.
#[derive(Clone, Debug)]
pub struct ProducedOptions {
    /// Partitions of the topic, at least 1.
    pub partition_count: i32,
    /// Where rows without a key go first; when a batch there is full, the next partition follows.
    pub sticky_partition: i32,
    /// Codec of the batches.
    pub codec: Codec,
    /// Level of the codec, its default when None.
    pub level: Option<i32>,
    /// Most bytes of a batch before compression; one larger record still gets a batch.
    pub batch_bytes: usize,
    /// Timestamp of rows without one, in milliseconds.
    pub now_ms: i64,
}

/// One batch.
#[derive(Debug)]
pub struct ProducedBatch {
    /// Where it goes.
    pub partition: i32,
    /// Its records.
    pub record_count: i32,
    /// The batch at offset 0, without a producer and without its checksum: see [`seal`].
    pub bytes: Vec<u8>,
}

/// The producer of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchProducer {
    /// Its id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// Sequence of the first record.
    pub base_sequence: i32,
    /// Whether the batch is part of a transaction.
    pub is_transactional: bool,
}

/// The batches of `rows`, whose columns are `value` and maybe `key`, `headers`, `timestamp` and `partition`. A row
/// without a partition goes where the hash of its key says, as with Kafka's default partitioner.
///
/// # Errors
/// [`Error::Invalid`] for other columns or types, or a partition that the topic does not have.
pub fn produced_batches(rows: &StructArray, options: &ProducedOptions) -> Result<Vec<ProducedBatch>> {
    let count = u32::try_from(options.partition_count).ok().filter(|count| *count > 0);
    let Some(count) = count else {
        return Err(Error::Invalid(format!("{} partitions: there is at least one", options.partition_count)));
    };
    for name in ["topic", "timestampType", "offset", "leaderEpoch"] {
        if rows.column_by_name(name).is_some() {
            return Err(Error::Invalid(format!("column {name}: a producer does not send it; leave it out")));
        }
    }
    let columns = RowColumns::new(rows)?;
    let has_partitions = rows.column_by_name("partition").is_some();
    let reserve =
        (rows.get_buffer_memory_size() / count as usize).min(options.batch_bytes).min(RESERVE_BYTES_MAX);
    let mut builders: BTreeMap<i32, BatchBuilder> = BTreeMap::new();
    let mut sticky = options.sticky_partition.rem_euclid(options.partition_count);
    let mut headers = Vec::new();
    let mut produced = Vec::new();
    for row in 0..columns.len() {
        let (key, value) = (columns.key(row), columns.value(row));
        let partition = match key {
            _ if has_partitions => columns.partition(row)?,
            Some(key) => ((murmur2(key) & 0x7fff_ffff) % count) as i32,
            None => sticky,
        };
        if !(0..options.partition_count).contains(&partition) {
            return Err(Error::Invalid(format!(
                "row {row}: partition {partition} is not one of {}",
                options.partition_count
            )));
        }
        let builder = match builders.entry(partition) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let batch =
                    BatchOptions { codec: options.codec, level: options.level, ..BatchOptions::default() };
                entry.insert(BatchBuilder::with_buffer(batch, byte_pool::take(reserve + APPEND_SLACK))?)
            }
        };
        let timestamp = columns.timestamp(row).unwrap_or(options.now_ms);
        columns.headers(row, &mut headers)?;
        let size = RECORD_OVERHEAD_MAX
            + key.map_or(0, <[u8]>::len)
            + value.map_or(0, <[u8]>::len)
            + headers.iter().map(of_header).sum::<usize>();
        if builder.record_count() > 0 && builder.batch_bytes() + size > options.batch_bytes {
            take(builder, partition, &mut produced)?;
            if key.is_none() && !has_partitions {
                sticky = (sticky + 1) % options.partition_count;
            }
        }
        builder.append(timestamp, key, value, &headers)?;
    }
    for (partition, mut builder) in builders {
        take(&mut builder, partition, &mut produced)?;
        builder.recycle();
    }
    // Full ones were taken while rows of other partitions came: those of a partition stay in their order.
    produced.sort_by_key(|batch| batch.partition);
    Ok(produced)
}

fn of_header((key, value): &(&[u8], Option<&[u8]>)) -> usize {
    HEADER_OVERHEAD_MAX + key.len() + value.map_or(0, <[u8]>::len)
}

fn take(builder: &mut BatchBuilder, partition: i32, produced: &mut Vec<ProducedBatch>) -> Result<()> {
    if let Some(bytes) = builder.take_batch()? {
        let header = bytes.first_chunk().map(BatchHeader::new);
        let record_count = header.map_or(0, |header| header.record_count());
        produced.push(ProducedBatch { partition, record_count, bytes });
    }
    Ok(())
}

/// Gives a batch its producer, if it has one, and its checksum.
///
/// # Errors
/// [`Error::Invalid`] for fewer bytes than a header.
pub fn seal(batch: &mut [u8], producer: Option<BatchProducer>) -> Result<()> {
    let (header, body) = split_header_mut(batch)?;
    if let Some(producer) = producer {
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(field) = header.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        };
        put(43, &producer.id.to_be_bytes());
        put(51, &producer.epoch.to_be_bytes());
        put(53, &producer.base_sequence.to_be_bytes());
        if let Some(low) = header.get_mut(22) {
            *low = if producer.is_transactional { *low | 0x10 } else { *low & !0x10 };
        }
    }
    update_crc(header, body);
    Ok(())
}
