//! Other Arrow types for the same data, as consumers ask for them by `requested_schema`.
//!
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html#schema-requests>: a request chooses
//! between representations of the same data. What a column cannot be given as is left as it is, which the interface
//! allows; columns of other names are another schema, and an error.
use arrow_array::builder::{GenericByteBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::ArrowDictionaryKeyType;
use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, Int16Type, Int32Type, Int64Type, Int8Type, LargeBinaryType,
    LargeUtf8Type, StringViewType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, UInt16Type, UInt32Type, UInt64Type, UInt8Type, Utf8Type,
};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, GenericByteArray, GenericByteViewArray, GenericListArray,
    OffsetSizeTrait, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray, StructArray,
};
use arrow_buffer::{ArrowNativeType, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use kraftlog_log::columns;
use pyo3::exceptions::PyValueError;
use pyo3::PyResult;
use std::sync::Arc;

/// How the decoder can give columns by itself; None for what it was told before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Representation {
    /// Keys and values.
    pub(crate) binary_type: Option<columns::BinaryType>,
    /// Timestamps.
    pub(crate) timestamp_unit: Option<columns::TimestampUnit>,
    /// The topic.
    pub(crate) topic_dictionary: Option<bool>,
}

impl Representation {
    /// What comes nearest to `wanted`, so that little is left to convert.
    pub(crate) fn of(wanted: &Schema) -> Self {
        let mut found = Self::default();
        for field in wanted.fields() {
            match field.data_type() {
                DataType::Binary => found.binary_type = Some(columns::BinaryType::Binary),
                DataType::LargeBinary => found.binary_type = Some(columns::BinaryType::LargeBinary),
                DataType::BinaryView => found.binary_type = Some(columns::BinaryType::BinaryView),
                DataType::Timestamp(TimeUnit::Microsecond, _) => {
                    found.timestamp_unit = Some(columns::TimestampUnit::Microsecond)
                }
                DataType::Timestamp(..) => found.timestamp_unit = Some(columns::TimestampUnit::Millisecond),
                DataType::Utf8 if field.name() == "topic" => found.topic_dictionary = Some(false),
                DataType::Dictionary(..) if field.name() == "topic" => found.topic_dictionary = Some(true),
                _ => {}
            }
        }
        found
    }
}

/// Our schema with the types of `requested` where we can give them.
///
/// # Errors
/// `ValueError` when the names of the columns differ.
pub(crate) fn negotiate(ours: &Schema, requested: &Schema) -> PyResult<SchemaRef> {
    let names =
        |schema: &Schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    if names(ours) != names(requested) {
        return Err(PyValueError::new_err(format!(
            "requested_schema has the columns {}; there are {}",
            names(requested).join(", "),
            names(ours).join(", ")
        )));
    }
    let fields = ours.fields().iter().zip(requested.fields()).map(|(ours, requested)| {
        let is_ours_to_give = can_give(ours.data_type(), requested.data_type(), true);
        let wanted = if is_ours_to_give { requested.data_type() } else { ours.data_type() };
        Field::new(ours.name(), wanted.clone(), true)
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// Whether a column can be given as `wanted`. A dictionary is built for columns, not for what is in lists.
pub(crate) fn can_give(ours: &DataType, wanted: &DataType, is_column: bool) -> bool {
    use DataType::{
        Binary, BinaryView, Dictionary, LargeBinary, LargeList, LargeUtf8, List, Struct, Timestamp, Utf8,
        Utf8View,
    };
    let of_fields =
        |ours: &FieldRef, wanted: &FieldRef| can_give(ours.data_type(), wanted.data_type(), false);
    match (ours, wanted) {
        (ours, wanted) if ours == wanted => true,
        (Binary | LargeBinary | BinaryView, Binary | LargeBinary | BinaryView) => true,
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        (Dictionary(_, values), Utf8 | LargeUtf8 | Utf8View) => **values == Utf8,
        (Utf8, Dictionary(keys, values)) => is_column && keys.is_dictionary_key_type() && is_text(values),
        (Dictionary(_, ours), Dictionary(keys, values)) => {
            is_column && **ours == Utf8 && keys.is_dictionary_key_type() && is_text(values)
        }
        // The zone says how an instant is shown. Without one it is no instant.
        (Timestamp(_, Some(_)), Timestamp(unit, Some(_))) => *unit != TimeUnit::Second,
        (List(ours) | LargeList(ours), List(wanted) | LargeList(wanted)) => of_fields(ours, wanted),
        (Struct(ours), Struct(wanted)) => {
            ours.len() == wanted.len()
                && ours.iter().zip(wanted).all(|(ours, wanted)| {
                    ours.name() == wanted.name() && wanted.is_nullable() && of_fields(ours, wanted)
                })
        }
        _ => false,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The rows in the types of `schema`, which [`negotiate`] gave.
///
/// # Errors
/// A time that does not fit into nanoseconds, or more bytes than 32-bit offsets reach.
pub(crate) fn convert_batch(rows: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if rows.schema_ref().fields() == schema.fields() {
        return Ok(rows);
    }
    let convert_column = |(array, field): (&ArrayRef, &FieldRef)| convert(array, field.data_type());
    let arrays = rows.columns().iter().zip(schema.fields()).map(convert_column).collect::<Result<_, _>>()?;
    let count = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &count)
}

/// The array as `wanted`, for which [`can_give`] is true.
pub(crate) fn convert(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    let given = array.data_type();
    match (given, wanted) {
        (given, wanted) if given == wanted => Ok(Arc::clone(array)),
        (Binary, LargeBinary) => widen::<BinaryType, LargeBinaryType>(array.as_binary::<i32>()),
        (LargeBinary, Binary) => collect::<BinaryType>(array.as_binary::<i64>().iter()),
        (Binary, BinaryView) => {
            Ok(Arc::new(GenericByteViewArray::<BinaryViewType>::from(array.as_binary::<i32>())))
        }
        (LargeBinary, BinaryView) => {
            Ok(Arc::new(GenericByteViewArray::<BinaryViewType>::from(array.as_binary::<i64>())))
        }
        (BinaryView, Binary) => collect::<BinaryType>(array.as_binary_view().iter()),
        (BinaryView, LargeBinary) => collect::<LargeBinaryType>(array.as_binary_view().iter()),
        (Utf8, LargeUtf8) => widen::<Utf8Type, LargeUtf8Type>(array.as_string::<i32>()),
        (Utf8, Utf8View) => {
            Ok(Arc::new(GenericByteViewArray::<StringViewType>::from(array.as_string::<i32>())))
        }
        (DataType::Dictionary(..), Utf8) => Ok(Arc::new(texts(array)?)),
        (DataType::Dictionary(..), _) if is_text(wanted) => {
            convert(&(Arc::new(texts(array)?) as ArrayRef), wanted)
        }
        (_, DataType::Dictionary(keys, values)) => dictionary(array, keys, values),
        (DataType::Timestamp(unit, _), DataType::Timestamp(..)) => timestamps(array, *unit, wanted),
        (DataType::List(_), DataType::List(item)) => list::<i32, i32>(array.as_list::<i32>(), item, |at| at),
        (DataType::List(_), DataType::LargeList(item)) => {
            list::<i32, i64>(array.as_list::<i32>(), item, i64::from)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let items = array.as_struct();
            let columns =
                items.columns().iter().zip(fields).map(|(column, field)| convert(column, field.data_type()));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, items.nulls().cloned())?))
        }
        _ => Err(ArrowError::CastError(format!("{given} is not given as {wanted}"))),
    }
}

/// 64-bit offsets over the same bytes.
fn widen<From, To>(array: &GenericByteArray<From>) -> Result<ArrayRef, ArrowError>
where
    From: ByteArrayType<Offset = i32>,
    To: ByteArrayType<Offset = i64>,
{
    let offsets: Vec<i64> = array.value_offsets().iter().map(|&offset| i64::from(offset)).collect();
    let offsets = OffsetBuffer::new(offsets.into());
    let wide = GenericByteArray::<To>::try_new(offsets, array.values().clone(), array.nulls().cloned())?;
    Ok(Arc::new(wide))
}

/// A copy with offsets.
fn collect<'a, To>(rows: impl Iterator<Item = Option<&'a [u8]>> + Clone) -> Result<ArrayRef, ArrowError>
where
    To: ByteArrayType<Native = [u8]>,
{
    let bytes = rows.clone().flatten().map(<[u8]>::len).sum::<usize>();
    if To::Offset::from_usize(bytes).is_none() {
        return Err(ArrowError::OffsetOverflowError(bytes));
    }
    let mut builder = GenericByteBuilder::<To>::with_capacity(rows.clone().count(), bytes);
    rows.for_each(|row| builder.append_option(row));
    Ok(Arc::new(builder.finish()))
}

/// A dictionary of texts, or texts, as plain texts.
fn texts(array: &ArrayRef) -> Result<StringArray, ArrowError> {
    if let Some(texts) = array.as_string_opt::<i32>() {
        return Ok(texts.clone());
    }
    let wrong = || ArrowError::CastError(format!("{} is no dictionary of texts", array.data_type()));
    let dictionary = array.as_dictionary_opt::<Int32Type>().ok_or_else(wrong)?;
    let values = dictionary.downcast_dict::<StringArray>().ok_or_else(wrong)?;
    let mut builder = StringBuilder::with_capacity(array.len(), 0);
    for text in values {
        let end = text.map_or(0, str::len) + builder.values_slice().len();
        if i32::try_from(end).is_err() {
            return Err(ArrowError::OffsetOverflowError(end));
        }
        builder.append_option(text);
    }
    Ok(builder.finish())
}

/// The distinct texts, and which of them each row is.
fn dictionary(array: &ArrayRef, keys: &DataType, values: &DataType) -> Result<ArrayRef, ArrowError> {
    let texts = texts(array)?;
    let mut distinct: Vec<&str> = Vec::new();
    let mut last = 0;
    let rows: Vec<Option<usize>> = texts
        .iter()
        .map(|text| {
            let text = text?;
            if distinct.get(last) != Some(&text) {
                // Topics and codecs are few.
                last = distinct.iter().position(|known| *known == text).unwrap_or(distinct.len());
                if last == distinct.len() {
                    distinct.push(text);
                }
            }
            Some(last)
        })
        .collect();
    let names = convert(&(Arc::new(StringArray::from_iter_values(distinct)) as ArrayRef), values)?;
    match keys {
        DataType::Int8 => keyed::<Int8Type>(&rows, names),
        DataType::Int16 => keyed::<Int16Type>(&rows, names),
        DataType::Int32 => keyed::<Int32Type>(&rows, names),
        DataType::Int64 => keyed::<Int64Type>(&rows, names),
        DataType::UInt8 => keyed::<UInt8Type>(&rows, names),
        DataType::UInt16 => keyed::<UInt16Type>(&rows, names),
        DataType::UInt32 => keyed::<UInt32Type>(&rows, names),
        DataType::UInt64 => keyed::<UInt64Type>(&rows, names),
        other => Err(ArrowError::CastError(format!("{other} is no type of dictionary keys"))),
    }
}

fn keyed<K: ArrowDictionaryKeyType>(rows: &[Option<usize>], names: ArrayRef) -> Result<ArrayRef, ArrowError> {
    let key = |row: &Option<usize>| match row {
        Some(row) => K::Native::from_usize(*row).map(Some).ok_or(ArrowError::DictionaryKeyOverflowError),
        None => Ok(None),
    };
    let keys = rows.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    let keys: PrimitiveArray<K> = keys.into_iter().collect();
    Ok(Arc::new(DictionaryArray::try_new(keys, names)?))
}

/// Timestamps of another unit or zone.
fn timestamps(array: &ArrayRef, unit: TimeUnit, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    let DataType::Timestamp(wanted_unit, zone) = wanted else {
        return Err(ArrowError::CastError(format!("{wanted} is no timestamp")));
    };
    let zone = zone.clone();
    match (unit, wanted_unit) {
        (TimeUnit::Millisecond, TimeUnit::Millisecond) => {
            Ok(Arc::new(array.as_primitive::<TimestampMillisecondType>().clone().with_timezone_opt(zone)))
        }
        (TimeUnit::Microsecond, TimeUnit::Microsecond) => {
            Ok(Arc::new(array.as_primitive::<TimestampMicrosecondType>().clone().with_timezone_opt(zone)))
        }
        (TimeUnit::Millisecond, TimeUnit::Nanosecond) => {
            let nanoseconds = |time: i64| {
                time.checked_mul(1_000_000).ok_or_else(|| {
                    ArrowError::ComputeError(format!("timestamp {time} ms does not fit into nanoseconds"))
                })
            };
            let times = array.as_primitive::<TimestampMillisecondType>();
            let times: PrimitiveArray<TimestampNanosecondType> = times.try_unary(nanoseconds)?;
            Ok(Arc::new(times.with_timezone_opt(zone)))
        }
        _ => Err(ArrowError::CastError(format!("{unit:?} is not given as {wanted}"))),
    }
}

fn list<From: OffsetSizeTrait, To: OffsetSizeTrait>(
    array: &GenericListArray<From>,
    item: &FieldRef,
    offset: impl Fn(From) -> To,
) -> Result<ArrayRef, ArrowError> {
    let offsets: Vec<To> = array.value_offsets().iter().map(|&at| offset(at)).collect();
    let offsets = OffsetBuffer::new(offsets.into());
    let items = convert(array.values(), item.data_type())?;
    let list = GenericListArray::<To>::try_new(Arc::clone(item), offsets, items, array.nulls().cloned())?;
    Ok(Arc::new(list))
}
