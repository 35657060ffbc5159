//! Columns of the rows that stand for record batches.
use crate::batch::{BatchHeader, HEADER_SIZE};
use crate::columns::TimestampUnit;
use crate::compression::Codec;
use crate::{Error, Result};
use arrow_array::{
    ArrayRef, BooleanArray, Int16Array, Int32Array, Int64Array, Int8Array, RecordBatch, RecordBatchOptions,
    StringArray, TimestampMicrosecondArray, TimestampMillisecondArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// What a column says of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchColumn {
    /// Name of the topic.
    Topic,
    /// Number of the partition.
    Partition,
    /// Offset of the first record as written.
    BaseOffset,
    /// Offset of the last record as written, inclusive.
    LastOffset,
    /// Records in the batch; 0 after compaction removed all.
    RecordCount,
    /// Bytes of the batch, header included.
    SizeBytes,
    /// Format version.
    Magic,
    /// Name of the codec; null for an unknown one.
    Compression,
    /// 0 CreateTime, 1 LogAppendTime, -1 none.
    TimestampType,
    /// What record timestamp deltas count from; the delete horizon where there is one.
    BaseTimestamp,
    /// Largest record timestamp.
    MaxTimestamp,
    /// Epoch of the leader that appended the batch.
    LeaderEpoch,
    /// -1 for a producer that is not idempotent.
    ProducerId,
    /// -1 for a producer that is not idempotent.
    ProducerEpoch,
    /// Sequence of the first record, -1 when there is none.
    BaseSequence,
    /// Part of a transaction.
    IsTransactional,
    /// Holds control records.
    IsControl,
    /// The checksum as stored.
    Crc,
    /// Whether the stored checksum is that of the bytes; null where it was not computed.
    CrcOk,
    /// Offset in the name of the segment file.
    SegmentBaseOffset,
    /// Byte position in the segment file.
    Position,
    /// Compaction has said when the batch's tombstones may go (KIP-534).
    HasDeleteHorizon,
    /// Path of the segment file.
    File,
}

use BatchColumn as C;

/// Each column with its name in snake case, and in the camel case that Spark's users expect.
const ALL: [(BatchColumn, &str, &str); 23] = [
    (C::Topic, "topic", "topic"),
    (C::Partition, "partition", "partition"),
    (C::BaseOffset, "base_offset", "baseOffset"),
    (C::LastOffset, "last_offset", "lastOffset"),
    (C::RecordCount, "record_count", "recordCount"),
    (C::SizeBytes, "size_bytes", "sizeInBytes"),
    (C::Magic, "magic", "magic"),
    (C::Compression, "compression", "compression"),
    (C::TimestampType, "timestamp_type", "timestampType"),
    (C::BaseTimestamp, "base_timestamp", "baseTimestamp"),
    (C::MaxTimestamp, "max_timestamp", "maxTimestamp"),
    (C::LeaderEpoch, "leader_epoch", "partitionLeaderEpoch"),
    (C::ProducerId, "producer_id", "producerId"),
    (C::ProducerEpoch, "producer_epoch", "producerEpoch"),
    (C::BaseSequence, "base_sequence", "baseSequence"),
    (C::IsTransactional, "is_transactional", "isTransactional"),
    (C::IsControl, "is_control", "isControl"),
    (C::Crc, "crc", "crc"),
    (C::CrcOk, "crc_ok", "crcOk"),
    (C::SegmentBaseOffset, "segment_base_offset", "segmentBaseOffset"),
    (C::Position, "position", "position"),
    (C::HasDeleteHorizon, "has_delete_horizon", "hasDeleteHorizon"),
    (C::File, "file", "file"),
];
/// The first so many are given when none is named.
const DEFAULT_COUNT: usize = 21;

/// Columns and types of the rows.
#[derive(Debug, Clone)]
pub struct BatchColumns {
    columns: Vec<(BatchColumn, String)>,
    unit: TimestampUnit,
    schema: SchemaRef,
}

impl BatchColumns {
    /// The columns with these names in this order, or all but `has_delete_horizon` and `file`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is no column, or twice the same.
    pub fn new<S: AsRef<str>>(names: Option<&[S]>, unit: TimestampUnit) -> Result<Self> {
        let columns = match names {
            None => {
                let first = ALL.iter().take(DEFAULT_COUNT);
                first.map(|(column, name, _)| (*column, (*name).to_owned())).collect()
            }
            Some(names) => parse(names)?,
        };
        let field = |(column, name): &(BatchColumn, String)| Field::new(name, data_type(*column, unit), true);
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        Ok(Self { columns, unit, schema })
    }

    /// The schema of every Arrow batch.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Rows of one segment file as an Arrow batch.
    pub(super) fn record_batch(&self, rows: &[Row], place: &Place<'_>) -> Result<RecordBatch> {
        let arrays = self.columns.iter().map(|(column, _)| self.array(*column, rows, place)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(self.schema(), arrays, &options)
            .map_err(|error| Error::Invalid(error.to_string()))
    }

    fn array(&self, column: BatchColumn, rows: &[Row], place: &Place<'_>) -> ArrayRef {
        match column {
            C::Topic => match place.topic {
                Some(topic) => Arc::new(StringArray::new_repeated(topic, rows.len())),
                None => Arc::new(StringArray::new_null(rows.len())),
            },
            C::Partition => Arc::new(rows.iter().map(|_| place.partition).collect::<Int32Array>()),
            C::BaseOffset => longs(rows, |header| header.base_offset()),
            C::LastOffset => longs(rows, |header| header.last_offset()),
            C::RecordCount => ints(rows, |header| header.record_count()),
            C::SizeBytes => ints(rows, |header| i32::try_from(header.size_bytes()).unwrap_or(i32::MAX)),
            C::Magic => Arc::new(Int8Array::from_iter_values(each(rows, |header| header.magic()))),
            C::Compression => {
                Arc::new(each(rows, |header| header.codec().ok().map(Codec::name)).collect::<StringArray>())
            }
            C::TimestampType => ints(rows, |header| header.timestamp_type().id()),
            C::BaseTimestamp => self.times(rows, |header| header.base_timestamp()),
            C::MaxTimestamp => self.times(rows, |header| header.max_timestamp()),
            C::LeaderEpoch => ints(rows, |header| header.partition_leader_epoch()),
            C::ProducerId => longs(rows, |header| header.producer_id()),
            C::ProducerEpoch => {
                Arc::new(Int16Array::from_iter_values(each(rows, |header| header.producer_epoch())))
            }
            C::BaseSequence => ints(rows, |header| header.base_sequence()),
            C::IsTransactional => flags(rows, |header| header.is_transactional()),
            C::IsControl => flags(rows, |header| header.is_control()),
            C::Crc => longs(rows, |header| i64::from(header.crc())),
            C::CrcOk => Arc::new(rows.iter().map(|row| row.is_crc_valid).collect::<BooleanArray>()),
            C::SegmentBaseOffset => Arc::new(Int64Array::from_value(place.segment_base_offset, rows.len())),
            C::Position => Arc::new(Int64Array::from_iter_values(
                rows.iter().map(|row| i64::try_from(row.position).unwrap_or(i64::MAX)),
            )),
            C::HasDeleteHorizon => flags(rows, |header| header.delete_horizon_ms().is_some()),
            C::File => Arc::new(StringArray::new_repeated(place.file, rows.len())),
        }
    }

    fn times(&self, rows: &[Row], value: fn(&BatchHeader<'_>) -> i64) -> ArrayRef {
        let values = each(rows, value);
        match self.unit {
            TimestampUnit::Millisecond => {
                Arc::new(TimestampMillisecondArray::from_iter_values(values).with_timezone("UTC"))
            }
            TimestampUnit::Microsecond => {
                let values = values.map(|time| time.saturating_mul(1000));
                Arc::new(TimestampMicrosecondArray::from_iter_values(values).with_timezone("UTC"))
            }
        }
    }
}

/// One batch.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) header: [u8; HEADER_SIZE],
    pub(super) is_crc_valid: Option<bool>,
    pub(super) position: u64,
}

/// What the rows of one segment file have in common.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) topic: Option<&'a str>,
    pub(super) partition: Option<i32>,
    pub(super) segment_base_offset: i64,
    pub(super) file: &'a str,
}

fn parse<S: AsRef<str>>(names: &[S]) -> Result<Vec<(BatchColumn, String)>> {
    let mut columns: Vec<(BatchColumn, String)> = Vec::with_capacity(names.len().min(ALL.len()));
    for name in names {
        let name = name.as_ref();
        let found = ALL.iter().find(|(_, snake, camel)| *snake == name || *camel == name);
        let Some((column, _, _)) = found else {
            let known: Vec<&str> = ALL.iter().map(|(_, name, _)| *name).collect();
            return Err(Error::Invalid(format!("no column {name:?}; there are {}", known.join(", "))));
        };
        if columns.iter().any(|(other, _)| other == column) {
            return Err(Error::Invalid(format!("column {name:?} is asked for twice")));
        }
        columns.push((*column, name.to_owned()));
    }
    Ok(columns)
}

fn data_type(column: BatchColumn, unit: TimestampUnit) -> DataType {
    match column {
        C::Topic | C::Compression | C::File => DataType::Utf8,
        C::Magic => DataType::Int8,
        C::ProducerEpoch => DataType::Int16,
        C::Partition
        | C::RecordCount
        | C::SizeBytes
        | C::TimestampType
        | C::LeaderEpoch
        | C::BaseSequence => DataType::Int32,
        C::BaseOffset | C::LastOffset | C::ProducerId | C::Crc | C::SegmentBaseOffset | C::Position => {
            DataType::Int64
        }
        C::BaseTimestamp | C::MaxTimestamp => {
            let unit = match unit {
                TimestampUnit::Millisecond => TimeUnit::Millisecond,
                TimestampUnit::Microsecond => TimeUnit::Microsecond,
            };
            DataType::Timestamp(unit, Some("UTC".into()))
        }
        C::IsTransactional | C::IsControl | C::CrcOk | C::HasDeleteHorizon => DataType::Boolean,
    }
}

fn each<'a, T: 'a>(
    rows: &'a [Row],
    value: impl Fn(&BatchHeader<'_>) -> T + 'a,
) -> impl Iterator<Item = T> + 'a {
    rows.iter().map(move |row| value(&BatchHeader::new(&row.header)))
}

fn longs(rows: &[Row], value: fn(&BatchHeader<'_>) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(each(rows, value)))
}

fn ints(rows: &[Row], value: fn(&BatchHeader<'_>) -> i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(each(rows, value)))
}

fn flags(rows: &[Row], value: fn(&BatchHeader<'_>) -> bool) -> ArrayRef {
    Arc::new(each(rows, value).map(Some).collect::<BooleanArray>())
}
