//! The columns of rows to be written, found by name and checked by type.
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, Int32Array, Int64Array, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};

use crate::builder::{Column, HeaderRef};
use crate::{Error, Result};

/// Of the column `timestampType`, as Spark's Kafka source has it.
const LOG_APPEND_TIME: i32 = 1;

/// Columns of rows. Only `value` has to be there.
pub(super) struct RowColumns<'a> {
    rows: usize,
    key: Column<'a>,
    value: Column<'a>,
    topic: Column<'a>,
    partition: Option<&'a Int32Array>,
    headers: Option<HeaderColumn<'a>>,
    timestamp: Option<Milliseconds<'a>>,
    timestamp_type: Option<&'a Int32Array>,
    offset: Option<&'a Int64Array>,
    leader_epoch: Option<&'a Int32Array>,
}

impl<'a> RowColumns<'a> {
    /// # Errors
    /// [`Error::Invalid`] naming a column that is unknown, missing or of another type.
    pub(super) fn new(rows: &'a StructArray) -> Result<Self> {
        let mut found = Self {
            rows: rows.len(),
            key: Column::Null,
            value: Column::Null,
            topic: Column::Null,
            partition: None,
            headers: None,
            timestamp: None,
            timestamp_type: None,
            offset: None,
            leader_epoch: None,
        };
        let mut has_value = false;
        for (field, array) in rows.fields().iter().zip(rows.columns()) {
            let name = field.name().as_str();
            let array = array.as_ref();
            let set = || -> Result<()> {
                match name {
                    "key" => found.key = Column::new(array)?,
                    "value" => {
                        has_value = true;
                        found.value = Column::new(array)?;
                    }
                    "topic" => found.topic = Column::new(array)?,
                    "partition" => found.partition = Some(primitive32(array)?),
                    "headers" => found.headers = Some(HeaderColumn::new(array)?),
                    "timestamp" => found.timestamp = Some(Milliseconds::new(array)?),
                    "timestampType" => found.timestamp_type = Some(primitive32(array)?),
                    "offset" => found.offset = Some(primitive64(array)?),
                    "leaderEpoch" => found.leader_epoch = Some(primitive32(array)?),
                    _ => return Err(Error::Invalid("it is not known here".to_owned())),
                }
                Ok(())
            };
            let mut set = set;
            set().map_err(|error| Error::Invalid(format!("column {name}: {error}")))?;
        }
        if !has_value {
            return Err(Error::Invalid("the column value is missing".to_owned()));
        }
        Ok(found)
    }

    pub(super) fn len(&self) -> usize {
        self.rows
    }

    pub(super) fn topic(&self, row: usize) -> Result<&[u8]> {
        self.topic.get(row).ok_or_else(|| {
            Error::Invalid(
                "null topic present in the data. Use the topic option for setting a topic.".to_owned(),
            )
        })
    }

    pub(super) fn is_topic(&self, row: usize, topic: &[u8]) -> bool {
        self.topic.get(row) == Some(topic)
    }

    pub(super) fn partition(&self, row: usize) -> Result<i32> {
        int32(self.partition, row).ok_or_else(|| {
            Error::Invalid(
                "null partition present in the data: kraftlog.spark.prepare gives each row one".to_owned(),
            )
        })
    }

    pub(super) fn is_partition(&self, row: usize, partition: i32) -> bool {
        int32(self.partition, row) == Some(partition)
    }

    /// None when offsets are to be given.
    pub(super) fn offset(&self, row: usize) -> Result<Option<i64>> {
        let Some(offsets) = self.offset else { return Ok(None) };
        if offsets.is_null(row) {
            return Err(Error::Invalid(
                "an offset is null: leave the column out, or give every row one".to_owned(),
            ));
        }
        Ok(offsets.values().get(row).copied())
    }

    #[inline(always)]
    pub(super) fn key(&self, row: usize) -> Option<&[u8]> {
        self.key.get(row)
    }

    #[inline(always)]
    pub(super) fn value(&self, row: usize) -> Option<&[u8]> {
        self.value.get(row)
    }

    /// Milliseconds; None where the row has no time.
    #[inline(always)]
    pub(super) fn timestamp(&self, row: usize) -> Option<i64> {
        self.timestamp.as_ref().and_then(|timestamps| timestamps.get(row))
    }

    pub(super) fn is_append_time(&self, row: usize) -> Result<bool> {
        match int32(self.timestamp_type, row) {
            None | Some(-1 | 0) => Ok(false),
            Some(LOG_APPEND_TIME) => Ok(true),
            Some(other) => Err(Error::Invalid(format!(
                "timestampType {other} is not 0 (CreateTime), 1 (LogAppendTime) or -1 (none)"
            ))),
        }
    }

    /// None where the row has none.
    pub(super) fn leader_epoch(&self, row: usize) -> Option<i32> {
        int32(self.leader_epoch, row).filter(|epoch| *epoch >= 0)
    }

    /// The headers of a row, in place of what `out` held.
    pub(super) fn headers<'s>(&'s self, row: usize, out: &mut Vec<HeaderRef<'s>>) -> Result<()> {
        out.clear();
        match &self.headers {
            Some(headers) => headers.get(row, out),
            None => Ok(()),
        }
    }
}

#[inline(always)]
fn int32(array: Option<&Int32Array>, row: usize) -> Option<i32> {
    let array = array?;
    if array.nulls().is_some_and(|nulls| nulls.is_null(row)) {
        return None;
    }
    array.values().get(row).copied()
}

fn primitive32(array: &dyn Array) -> Result<&Int32Array> {
    array
        .as_primitive_opt::<Int32Type>()
        .ok_or_else(|| Error::Invalid(format!("its type is int32, not {}", array.data_type())))
}

fn primitive64(array: &dyn Array) -> Result<&Int64Array> {
    array
        .as_primitive_opt::<Int64Type>()
        .ok_or_else(|| Error::Invalid(format!("its type is int64, not {}", array.data_type())))
}

/// Times of any unit, handed out as milliseconds, rounded down.
struct Milliseconds<'a> {
    values: &'a [i64],
    nulls: Option<&'a NullBuffer>,
    /// Milliseconds are the value times this, divided by the other.
    factor: i64,
    divisor: i64,
}

impl<'a> Milliseconds<'a> {
    fn new(array: &'a dyn Array) -> Result<Self> {
        let (values, factor, divisor) = match array.data_type() {
            DataType::Int64 => (array.as_primitive::<Int64Type>().values(), 1, 1),
            DataType::Timestamp(TimeUnit::Second, _) => {
                (array.as_primitive::<TimestampSecondType>().values(), 1000, 1)
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                (array.as_primitive::<TimestampMillisecondType>().values(), 1, 1)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                (array.as_primitive::<TimestampMicrosecondType>().values(), 1, 1000)
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                (array.as_primitive::<TimestampNanosecondType>().values(), 1, 1_000_000)
            }
            other => return Err(Error::Invalid(format!("its type is timestamp or int64, not {other}"))),
        };
        Ok(Self { values, nulls: array.nulls(), factor, divisor })
    }

    #[inline(always)]
    fn get(&self, row: usize) -> Option<i64> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        let value = self.values.get(row)?;
        Some(value.saturating_mul(self.factor).div_euclid(self.divisor))
    }
}

/// A list of keys and values for each row.
struct HeaderColumn<'a> {
    offsets: ListOffsets<'a>,
    nulls: Option<&'a NullBuffer>,
    structs: Option<&'a NullBuffer>,
    keys: Column<'a>,
    values: Column<'a>,
}

enum ListOffsets<'a> {
    Bits32(&'a [i32]),
    Bits64(&'a [i64]),
}

impl<'a> HeaderColumn<'a> {
    fn new(array: &'a dyn Array) -> Result<Self> {
        let wrong = || {
            Error::Invalid(format!(
                "its type is a list of structs of key and value, not {}",
                array.data_type()
            ))
        };
        let (offsets, items) = match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                (ListOffsets::Bits32(list.value_offsets()), list.values())
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                (ListOffsets::Bits64(list.value_offsets()), list.values())
            }
            _ => return Err(wrong()),
        };
        let structs = items.as_struct_opt().ok_or_else(wrong)?;
        let [keys, values] = structs.columns() else { return Err(wrong()) };
        Ok(Self {
            offsets,
            nulls: array.nulls(),
            structs: structs.nulls(),
            keys: Column::new(keys.as_ref())?,
            values: Column::new(values.as_ref())?,
        })
    }

    fn range(&self, row: usize) -> Range<usize> {
        let range =
            |start: i64, end: i64| usize::try_from(start).unwrap_or(0)..usize::try_from(end).unwrap_or(0);
        match self.offsets {
            ListOffsets::Bits32(offsets) => match offsets.get(row..) {
                Some([start, end, ..]) => range((*start).into(), (*end).into()),
                _ => 0..0,
            },
            ListOffsets::Bits64(offsets) => match offsets.get(row..) {
                Some([start, end, ..]) => range(*start, *end),
                _ => 0..0,
            },
        }
    }

    fn get<'s>(&'s self, row: usize, out: &mut Vec<HeaderRef<'s>>) -> Result<()> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(());
        }
        for item in self.range(row) {
            let is_null = self.structs.is_some_and(|nulls| nulls.is_null(item));
            let key = self.keys.get(item).filter(|_| !is_null);
            let key = key.ok_or_else(|| Error::Invalid("a header has no key".to_owned()))?;
            out.push((key, self.values.get(item)));
        }
        Ok(())
    }
}
