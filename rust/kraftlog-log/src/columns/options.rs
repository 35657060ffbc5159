//! Which columns, in which Arrow types.
use crate::{Error, Result};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// A column of decoded records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Column {
    /// Record key, null when the record has none.
    Key,
    /// Record value, null for a tombstone.
    Value,
    /// Name of the topic, one value for all rows.
    Topic,
    /// Partition number, one value for all rows.
    Partition,
    /// Offset in the log.
    Offset,
    /// Time of the record, UTC.
    Timestamp,
    /// 0 CreateTime, 1 LogAppendTime, -1 none (message format v0).
    TimestampType,
    /// List of key and value.
    Headers,
    /// Partition leader epoch of the batch.
    LeaderEpoch,
    /// Producer id of the batch, -1 without one.
    ProducerId,
    /// Producer epoch of the batch, -1 without one.
    ProducerEpoch,
    /// The batch is part of a transaction.
    IsTransactional,
    /// The batch holds control records.
    IsControl,
    /// Bytes of the key, null when the record has none.
    KeyLength,
    /// Bytes of the value, null for a tombstone.
    ValueLength,
    /// Sequence of the record in its producer, -1 without one.
    Sequence,
    /// Name of the codec of the batch.
    Compression,
    /// Base offset of the batch.
    BatchBaseOffset,
    /// Byte position of the batch in its segment file.
    BatchPosition,
    /// The checksum of the batch is right: only without [`check_crc`](ColumnOptions::check_crc) can it be wrong.
    CrcOk,
}

impl Column {
    /// How many of [`ALL`](Self::ALL) a scan gives that names none.
    pub const DEFAULT_COUNT: usize = 8;

    /// Every column. A scan that names none gives the first eight in this order, the others are given when named.
    pub const ALL: [Self; 20] = [
        Self::Key,
        Self::Value,
        Self::Topic,
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::TimestampType,
        Self::Headers,
        Self::LeaderEpoch,
        Self::ProducerId,
        Self::ProducerEpoch,
        Self::IsTransactional,
        Self::IsControl,
        Self::KeyLength,
        Self::ValueLength,
        Self::Sequence,
        Self::Compression,
        Self::BatchBaseOffset,
        Self::BatchPosition,
        Self::CrcOk,
    ];

    /// The name in a schema.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::Topic => "topic",
            Self::Partition => "partition",
            Self::Offset => "offset",
            Self::Timestamp => "timestamp",
            Self::TimestampType => "timestamp_type",
            Self::Headers => "headers",
            Self::LeaderEpoch => "leader_epoch",
            Self::ProducerId => "producer_id",
            Self::ProducerEpoch => "producer_epoch",
            Self::IsTransactional => "is_transactional",
            Self::IsControl => "is_control",
            Self::KeyLength => "key_length",
            Self::ValueLength => "value_length",
            Self::Sequence => "sequence",
            Self::Compression => "compression",
            Self::BatchBaseOffset => "batch_base_offset",
            Self::BatchPosition => "batch_position",
            Self::CrcOk => "crc_ok",
        }
    }

    /// The column with `name`, in snake case or in the camel case of Spark's Kafka source.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "timestampType" => return Some(Self::TimestampType),
            "keyLength" => return Some(Self::KeyLength),
            "valueLength" => return Some(Self::ValueLength),
            _ => {}
        }
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    /// True when the bytes of the records need to be looked at to fill the column.
    pub(crate) const fn needs_records(self) -> bool {
        matches!(
            self,
            Self::Key | Self::Value | Self::Timestamp | Self::Headers | Self::KeyLength | Self::ValueLength
        )
    }
}

/// Arrow type of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BinaryType {
    /// Copied, 32-bit offsets.
    #[default]
    Binary,
    /// Copied, 64-bit offsets.
    LargeBinary,
    /// Views into the bytes that were read or decompressed, which live as long as the Arrow batch.
    BinaryView,
}

/// Unit of the timestamp column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimestampUnit {
    /// As Kafka stores them.
    #[default]
    Millisecond,
    /// As Spark wants them. Times that do not fit become the nearest that does.
    Microsecond,
}

/// What a [`ColumnsDecoder`](super::ColumnsDecoder) builds.
#[derive(Debug, Clone)]
pub struct ColumnOptions {
    /// Columns with the name that each gets in the schema.
    pub columns: Vec<(Column, String)>,
    /// Type of key and value.
    pub binary_type: BinaryType,
    /// Unit of timestamps.
    pub timestamp_unit: TimestampUnit,
    /// Topic as dictionary of one value instead of plain text.
    pub topic_dictionary: bool,
    /// A record without headers has null instead of an empty list, as Spark's Kafka source has it.
    pub empty_headers_null: bool,
    /// Value of the topic column; null without one.
    pub topic: Option<Arc<str>>,
    /// Value of the partition column; null without one.
    pub partition: Option<i32>,
    /// Most rows of an Arrow batch, at least 1.
    pub batch_rows: usize,
    /// Most bytes of keys, values and headers in an Arrow batch; one larger record still gets a batch.
    pub batch_bytes: usize,
    /// Compare the CRC-32C of every batch.
    pub check_crc: bool,
    /// Give records of control batches too.
    pub include_control: bool,
    /// First offset to give, inclusive.
    pub start_offset: i64,
    /// Offset to stop before, exclusive.
    pub end_offset: i64,
    /// Least timestamp to give in milliseconds, inclusive.
    pub from_timestamp: i64,
    /// Records with this timestamp in milliseconds or a later one are left out; None leaves out none.
    pub to_timestamp: Option<i64>,
}

impl Default for ColumnOptions {
    fn default() -> Self {
        let default = Column::ALL.iter().take(Column::DEFAULT_COUNT);
        Self {
            columns: default.map(|column| (*column, column.name().to_owned())).collect(),
            binary_type: BinaryType::default(),
            timestamp_unit: TimestampUnit::default(),
            topic_dictionary: false,
            empty_headers_null: false,
            topic: None,
            partition: None,
            batch_rows: 16_384,
            batch_bytes: 8 << 20,
            check_crc: true,
            include_control: false,
            start_offset: i64::MIN,
            end_offset: i64::MAX,
            from_timestamp: i64::MIN,
            to_timestamp: None,
        }
    }
}

impl ColumnOptions {
    /// Largest `batch_bytes`: 32-bit offsets have to reach.
    pub const BATCH_BYTES_MAX: usize = 1 << 30;

    /// The columns with these names, in this order.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is no column, or twice the same.
    pub fn parse_columns<S: AsRef<str>>(names: &[S]) -> Result<Vec<(Column, String)>> {
        let mut columns: Vec<(Column, String)> = Vec::with_capacity(names.len().min(Column::ALL.len()));
        for name in names {
            let name = name.as_ref();
            let column = Column::from_name(name).ok_or_else(|| {
                let known: Vec<&str> = Column::ALL.iter().map(|column| column.name()).collect();
                Error::Invalid(format!("no column {name:?}; there are {}", known.join(", ")))
            })?;
            if columns.iter().any(|(other, _)| *other == column) {
                return Err(Error::Invalid(format!("column {name:?} is asked for twice")));
            }
            columns.push((column, name.to_owned()));
        }
        Ok(columns)
    }

    /// True when `column` is asked for.
    pub fn has(&self, column: Column) -> bool {
        self.columns.iter().any(|(other, _)| *other == column)
    }

    /// The schema of all batches.
    pub fn schema(&self) -> SchemaRef {
        let fields =
            self.columns.iter().map(|(column, name)| Field::new(name, self.data_type(*column), true));
        Arc::new(Schema::new(fields.collect::<Fields>()))
    }

    fn data_type(&self, column: Column) -> DataType {
        match column {
            Column::Key | Column::Value => match self.binary_type {
                BinaryType::Binary => DataType::Binary,
                BinaryType::LargeBinary => DataType::LargeBinary,
                BinaryType::BinaryView => DataType::BinaryView,
            },
            Column::Topic if self.topic_dictionary => {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            Column::Topic => DataType::Utf8,
            Column::Partition
            | Column::TimestampType
            | Column::LeaderEpoch
            | Column::KeyLength
            | Column::ValueLength
            | Column::Sequence => DataType::Int32,
            Column::Offset | Column::ProducerId | Column::BatchBaseOffset | Column::BatchPosition => {
                DataType::Int64
            }
            Column::Compression => DataType::Utf8,
            Column::Timestamp => {
                let unit = match self.timestamp_unit {
                    TimestampUnit::Millisecond => TimeUnit::Millisecond,
                    TimestampUnit::Microsecond => TimeUnit::Microsecond,
                };
                DataType::Timestamp(unit, Some("UTC".into()))
            }
            Column::Headers => super::headers::data_type(),
            Column::ProducerEpoch => DataType::Int16,
            Column::IsTransactional | Column::IsControl | Column::CrcOk => DataType::Boolean,
        }
    }
}
