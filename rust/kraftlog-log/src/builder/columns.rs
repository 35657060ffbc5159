//! Batches from Arrow columns.
use super::BatchBuilder;
use crate::{Error, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{ByteArrayType, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, BinaryViewArray, FixedSizeBinaryArray, GenericByteArray, StringViewArray};
use arrow_buffer::{ArrowNativeType, NullBuffer};
use arrow_schema::{DataType, TimeUnit};

/// Bytes of a record besides key and value, mostly.
const RECORD_OVERHEAD_GUESS: usize = 16;
/// More is left to the buffer's own growth, as views may repeat and cover little of their buffers.
const RESERVE_BYTES_MAX: usize = 256 << 20;

/// Keys or values of records: any binary or string array.
pub enum Column<'a> {
    /// Null in every row.
    Null,
    /// Offsets of 32 bits into one buffer.
    Offsets32(Slices<'a, i32>),
    /// Offsets of 64 bits into one buffer.
    Offsets64(Slices<'a, i64>),
    /// Views into several buffers.
    BinaryView(&'a BinaryViewArray),
    /// Views of text.
    StringView(&'a StringViewArray),
    /// Values of one size.
    Fixed(&'a FixedSizeBinaryArray),
}

/// Values back to back in one buffer.
pub struct Slices<'a, O> {
    offsets: &'a [O],
    data: &'a [u8],
    nulls: Option<&'a NullBuffer>,
}

impl<'a, O: ArrowNativeType> Slices<'a, O> {
    fn new<T: ByteArrayType<Offset = O>>(array: &'a GenericByteArray<T>) -> Self {
        Self { offsets: array.value_offsets(), data: array.value_data(), nulls: array.nulls() }
    }

    fn data_bytes(&self) -> usize {
        match self.offsets {
            [first, .., last] => last.as_usize().saturating_sub(first.as_usize()),
            _ => 0,
        }
    }

    #[inline(always)]
    fn get(&self, row: usize) -> Option<&'a [u8]> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        let [start, end, ..] = self.offsets.get(row..)? else {
            return None;
        };
        self.data.get(start.as_usize()..end.as_usize())
    }
}

impl<'a> Column<'a> {
    /// The column of an array.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is neither binary nor text.
    pub fn new(array: &'a dyn Array) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Binary => Self::Offsets32(Slices::new(array.as_binary::<i32>())),
            DataType::Utf8 => Self::Offsets32(Slices::new(array.as_string::<i32>())),
            DataType::LargeBinary => Self::Offsets64(Slices::new(array.as_binary::<i64>())),
            DataType::LargeUtf8 => Self::Offsets64(Slices::new(array.as_string::<i64>())),
            DataType::BinaryView => Self::BinaryView(array.as_binary_view()),
            DataType::Utf8View => Self::StringView(array.as_string_view()),
            DataType::FixedSizeBinary(_) => Self::Fixed(array.as_fixed_size_binary()),
            other => return Err(Error::Invalid(format!("a column of {other} has no bytes to encode"))),
        })
    }

    /// Rows; None where every row is null.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::Null => None,
            Self::Offsets32(slices) => Some(slices.offsets.len().saturating_sub(1)),
            Self::Offsets64(slices) => Some(slices.offsets.len().saturating_sub(1)),
            Self::BinaryView(array) => Some(array.len()),
            Self::StringView(array) => Some(array.len()),
            Self::Fixed(array) => Some(array.len()),
        }
    }

    /// About how many bytes the rows hold: what to reserve.
    fn data_bytes(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Offsets32(slices) => slices.data_bytes(),
            Self::Offsets64(slices) => slices.data_bytes(),
            Self::BinaryView(array) => array.data_buffers().iter().map(|buffer| buffer.len()).sum(),
            Self::StringView(array) => array.data_buffers().iter().map(|buffer| buffer.len()).sum(),
            Self::Fixed(array) => array.len() * array.value_length() as usize,
        }
    }

    /// The bytes of a row, None where it is null.
    #[inline(always)]
    pub(crate) fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Null => None,
            Self::Offsets32(slices) => slices.get(row),
            Self::Offsets64(slices) => slices.get(row),
            Self::BinaryView(array) => array.is_valid(row).then(|| array.value(row)),
            Self::StringView(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
            Self::Fixed(array) => array.is_valid(row).then(|| array.value(row)),
        }
    }
}

/// Timestamps of records, in milliseconds since the epoch.
pub enum Timestamps<'a> {
    /// The same in every row.
    Same(i64),
    /// One a row; -1 where it is null.
    Each(&'a [i64], Option<&'a NullBuffer>),
}

impl<'a> Timestamps<'a> {
    /// The timestamps of an int64 or timestamp[ms] array.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another type.
    pub fn new(array: &'a dyn Array) -> Result<Self> {
        let values = match array.data_type() {
            DataType::Int64 => array.as_primitive::<Int64Type>().values(),
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                array.as_primitive::<TimestampMillisecondType>().values()
            }
            other => {
                return Err(Error::Invalid(format!("timestamps are int64 or timestamp[ms], not {other}")))
            }
        };
        Ok(Self::Each(values, array.nulls()))
    }

    #[inline(always)]
    fn get(&self, row: usize) -> i64 {
        match self {
            Self::Same(timestamp) => *timestamp,
            Self::Each(_, Some(nulls)) if nulls.is_null(row) => crate::batch::NO_TIMESTAMP,
            Self::Each(values, _) => values.get(row).copied().unwrap_or(crate::batch::NO_TIMESTAMP),
        }
    }

    fn len(&self) -> Option<usize> {
        match self {
            Self::Same(_) => None,
            Self::Each(values, _) => Some(values.len()),
        }
    }
}

/// Batches of the rows of columns, finished by `builder`: one, or as many as needed so that none grows past `batch_bytes_max` before
/// compression. Offsets and sequences go on from batch to batch.
///
/// # Errors
/// [`Error::Invalid`] when the columns differ in length, or a batch passes 2 GiB.
pub fn encode_columns(
    mut builder: BatchBuilder,
    batch_bytes_max: Option<usize>,
    timestamps: &Timestamps<'_>,
    keys: &Column<'_>,
    values: &Column<'_>,
) -> Result<Vec<u8>> {
    let rows = [values.len(), keys.len(), timestamps.len()];
    let count = rows.into_iter().flatten().next().unwrap_or(0);
    if rows.into_iter().flatten().any(|rows| rows != count) {
        return Err(Error::Invalid(format!("columns of {rows:?} rows (values, keys, timestamps)")));
    }
    let reserve = values.data_bytes() + keys.data_bytes() + count * RECORD_OVERHEAD_GUESS;
    builder.reserve(reserve.min(RESERVE_BYTES_MAX));
    for row in 0..count {
        builder.append_within(batch_bytes_max, timestamps.get(row), keys.get(row), values.get(row))?;
    }
    builder.finish()
}
