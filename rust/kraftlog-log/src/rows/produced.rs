//! Rows of Arrow columns to the batches that a producer sends: one list per partition, in the order of the rows.
use std::collections::BTreeMap;

use arrow_array::{Array, StructArray};

use super::columns::RowColumns;
use crate::batch::{split_header_mut, update_crc, BatchView, Batches};
use crate::builder::{BatchBuilder, BatchOptions};
use crate::compression::Codec;
use crate::partitioner::murmur2;
use crate::{Error, Result};

/// Small integers of a record, at most, and the most that a header adds to its bytes.
const RECORD_OVERHEAD_MAX: usize = 32;
const HEADER_OVERHEAD_MAX: usize = 10;
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
    /// The batch at offset 0, without a producer.
    pub bytes: Vec<u8>,
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
                let mut builder = BatchBuilder::new(batch)?;
                builder.reserve(reserve);
                entry.insert(builder)
            }
        };
        let timestamp = columns.timestamp(row).unwrap_or(options.now_ms);
        columns.headers(row, &mut headers)?;
        let finished_before = builder.finished_bytes();
        if headers.is_empty() {
            builder.append_within(Some(options.batch_bytes), timestamp, key, value)?;
        } else {
            let of_header = |(key, value): &(&[u8], Option<&[u8]>)| {
                HEADER_OVERHEAD_MAX + key.len() + value.map_or(0, <[u8]>::len)
            };
            let size = RECORD_OVERHEAD_MAX
                + key.map_or(0, <[u8]>::len)
                + value.map_or(0, <[u8]>::len)
                + headers.iter().map(of_header).sum::<usize>();
            if builder.record_count() > 0 && builder.batch_bytes() + size > options.batch_bytes {
                builder.next_batch()?;
            }
            builder.append(timestamp, key, value, &headers)?;
        }
        if key.is_none() && !has_partitions && builder.finished_bytes() > finished_before {
            sticky = (sticky + 1) % options.partition_count;
        }
    }
    let mut produced = Vec::new();
    for (partition, builder) in builders {
        let bytes = builder.finish()?;
        for batch in Batches::new(&bytes) {
            produced.push(restarted(&batch?, partition)?);
        }
    }
    Ok(produced)
}

/// The batch at offset 0; the checksum does not cover the base offset.
fn restarted(batch: &BatchView<'_>, partition: i32) -> Result<ProducedBatch> {
    let mut bytes = batch.bytes().to_vec();
    let (header, _) = split_header_mut(&mut bytes)?;
    crate::batch::set_base_offset(header, 0);
    Ok(ProducedBatch { partition, record_count: batch.record_count(), bytes })
}

/// Gives a batch its producer and sequence, and its checksum anew.
///
/// # Errors
/// [`Error::Invalid`] for fewer bytes than a header.
pub fn set_producer(
    batch: &mut [u8],
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    is_transactional: bool,
) -> Result<()> {
    let (header, body) = split_header_mut(batch)?;
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = header.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(43, &producer_id.to_be_bytes());
    put(51, &producer_epoch.to_be_bytes());
    put(53, &base_sequence.to_be_bytes());
    if let Some(low) = header.get_mut(22) {
        *low = if is_transactional { *low | 0x10 } else { *low & !0x10 };
    }
    update_crc(header, body);
    Ok(())
}
