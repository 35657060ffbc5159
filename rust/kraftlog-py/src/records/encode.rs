//! Python records, lists of bytes and Arrow columns to batch bytes.
use crate::arrow_import::import_array;
use crate::errors::PyLogError;
use crate::raw::ByteBuffer;
use kraftlog_log::batch::TimestampType;
use kraftlog_log::builder::{
    empty_batch, encode_columns, BatchBuilder, BatchOptions, Column, HeaderRef, Timestamps,
};
use kraftlog_log::compression::Codec;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyIterator, PyList, PySequence, PyString, PyTuple};
use std::cell::Cell;

/// Compression and checksum of less take less than giving up the lock may cost.
const DETACH_BYTES_MIN: usize = 16 * 1024;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(encode_batch, m)?)?;
    m.add_function(wrap_pyfunction!(encode_values, m)?)?;
    m.add_function(wrap_pyfunction!(py_encode_columns, m)?)
}

/// What the keyword arguments of the encoders say.
#[derive(Default)]
struct Keywords {
    options: BatchOptions,
    offset_deltas: Option<Vec<i32>>,
    batch_bytes_max: Option<usize>,
}

impl Keywords {
    fn new(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut keywords = Self::default();
        for (name, value) in given.into_iter().flatten() {
            let name = name.cast::<PyString>()?;
            keywords.set(&name.to_cow()?, &value)?;
        }
        Ok(keywords)
    }

    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let options = &mut self.options;
        match name {
            "base_offset" => options.base_offset = value.extract()?,
            "partition_leader_epoch" => options.partition_leader_epoch = value.extract()?,
            "compression" => {
                let name = value.cast::<PyString>()?.to_cow()?;
                options.codec = Codec::from_name(&name)
                    .ok_or_else(|| PyValueError::new_err(format!("no codec is called {name:?}")))?;
            }
            "compression_level" => options.level = value.extract()?,
            "timestamp_type" => {
                let name = value.cast::<PyString>()?.to_cow()?;
                options.timestamp_type = TimestampType::from_name(&name)
                    .ok_or_else(|| PyValueError::new_err(format!("no timestamp type is called {name:?}")))?;
            }
            "log_append_time_ms" => {
                options.log_append_time_ms = value.extract::<Option<i64>>()?.unwrap_or(-1)
            }
            "producer_id" => options.producer_id = value.extract()?,
            "producer_epoch" => options.producer_epoch = value.extract()?,
            "base_sequence" => options.base_sequence = value.extract()?,
            "transactional" => options.is_transactional = value.extract()?,
            "control" => options.is_control = value.extract()?,
            "delete_horizon_ms" => options.delete_horizon_ms = value.extract()?,
            "last_offset_delta" => options.last_offset_delta = value.extract()?,
            "max_timestamp_ms" => options.max_timestamp_ms = value.extract()?,
            "offset_deltas" => self.offset_deltas = value.extract()?,
            "batch_bytes_max" => self.batch_bytes_max = value.extract()?,
            _ => refuse(name, true)?,
        }
        Ok(())
    }

    /// Without the keywords that make no sense for one batch.
    fn for_one_batch(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let keywords = Self::new(given)?;
        refuse("batch_bytes_max", keywords.batch_bytes_max.is_some())?;
        Ok(keywords)
    }

    /// Without the keywords that make no sense for several batches.
    fn for_columns(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let keywords = Self::new(given)?;
        refuse("offset_deltas", keywords.offset_deltas.is_some())?;
        refuse("last_offset_delta", keywords.options.last_offset_delta.is_some())?;
        refuse("max_timestamp_ms", keywords.options.max_timestamp_ms.is_some())?;
        Ok(keywords)
    }
}

fn refuse(name: &str, is_given: bool) -> PyResult<()> {
    if is_given {
        return Err(PyTypeError::new_err(format!("unexpected keyword argument {name:?}")));
    }
    Ok(())
}

/// A key or value on its way into a batch: borrowed from its Python object.
enum Field<'py> {
    Null,
    Bytes(Bound<'py, PyBytes>),
    Buffer(ByteBuffer),
    Text(Bound<'py, PyString>),
}

impl<'py> Field<'py> {
    #[inline]
    fn new(object: Bound<'py, PyAny>) -> PyResult<Self> {
        match object.cast_into::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(error) => {
                let object = error.into_inner();
                if object.is_none() {
                    Ok(Self::Null)
                } else {
                    object.extract().map(Self::Buffer)
                }
            }
        }
    }

    fn header_key(object: Bound<'py, PyAny>) -> PyResult<Self> {
        match object.cast_into::<PyString>() {
            Ok(text) => Ok(Self::Text(text)),
            Err(error) => match Self::new(error.into_inner())? {
                Self::Null => Err(PyTypeError::new_err("a header key is not None")),
                key => Ok(key),
            },
        }
    }

    #[inline]
    fn as_bytes(&self) -> PyResult<Option<&[u8]>> {
        Ok(match self {
            Self::Null => None,
            Self::Bytes(bytes) => Some(bytes.as_bytes()),
            Self::Buffer(buffer) => Some(buffer.as_slice()),
            Self::Text(text) => Some(text.to_str()?.as_bytes()),
        })
    }
}

#[pyfunction]
#[pyo3(
    signature = (records, **options),
    text_signature = "(records, *, base_offset=0, partition_leader_epoch=-1, compression='none', \
                      compression_level=None, timestamp_type='CreateTime', log_append_time_ms=None, producer_id=-1, \
                      producer_epoch=-1, base_sequence=-1, transactional=False, control=False, delete_horizon_ms=None, \
                      offset_deltas=None, last_offset_delta=None, max_timestamp_ms=None)"
)]
fn encode_batch<'py>(
    py: Python<'py>,
    records: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let Keywords { options, offset_deltas, .. } = Keywords::for_one_batch(options)?;
    let mut builder = builder(options)?;
    for (index, record) in records.try_iter()?.enumerate() {
        let delta = match &offset_deltas {
            Some(deltas) => *deltas.get(index).ok_or_else(delta_count)?,
            None => builder.record_count(),
        };
        append(&mut builder, delta, &record?)?;
    }
    if offset_deltas.is_some_and(|deltas| deltas.len() as i32 != builder.record_count()) {
        return Err(delta_count());
    }
    if builder.record_count() == 0 && options.last_offset_delta.is_some() {
        return Ok(PyBytes::new(py, &empty_batch(&options).map_err(invalid)?));
    }
    finish(py, builder)
}

fn delta_count() -> PyErr {
    PyValueError::new_err("offset_deltas has another length than records")
}

/// One record: (timestamp_ms, key, value, headers).
fn append(builder: &mut BatchBuilder, delta: i32, record: &Bound<'_, PyAny>) -> PyResult<()> {
    let (timestamp, key, value, headers): (i64, Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>) =
        match record.cast::<PyTuple>() {
            Ok(tuple) => tuple.extract()?,
            Err(_) => record.cast::<PySequence>()?.to_tuple()?.extract()?,
        };
    let (key, value) = (Field::new(key)?, Field::new(value)?);
    let mut fields = Vec::new();
    for header in header_iter(&headers)?.into_iter().flatten() {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = header?.extract()?;
        fields.push((Field::header_key(key)?, Field::new(value)?));
    }
    let mut headers: Vec<HeaderRef<'_>> = Vec::with_capacity(fields.len());
    for (key, value) in &fields {
        headers.push((key.as_bytes()?.unwrap_or_default(), value.as_bytes()?));
    }
    builder.append_at(delta, timestamp, key.as_bytes()?, value.as_bytes()?, &headers).map_err(invalid)
}

/// The headers one by one; none is the rule, and an empty tuple or list is told without an iterator.
fn header_iter<'py>(headers: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyIterator>>> {
    let is_empty = match headers.cast::<PyTuple>() {
        Ok(tuple) => tuple.is_empty(),
        Err(_) => headers.cast::<PyList>().is_ok_and(|list| list.is_empty()),
    };
    if is_empty {
        return Ok(None);
    }
    headers.try_iter().map(Some)
}

#[pyfunction]
#[pyo3(
    signature = (values, *, timestamps = None, keys = None, **options),
    text_signature = "(values, *, timestamps=None, keys=None, base_offset=0, partition_leader_epoch=-1, \
                      compression='none', compression_level=None, timestamp_type='CreateTime', \
                      log_append_time_ms=None, producer_id=-1, producer_epoch=-1, base_sequence=-1, \
                      transactional=False, batch_bytes_max=None)"
)]
fn encode_values<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyList>,
    timestamps: Option<&Bound<'py, PyAny>>,
    keys: Option<&Bound<'py, PyList>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let Keywords { options, batch_bytes_max, .. } = Keywords::for_columns(options)?;
    if keys.is_some_and(|keys| keys.len() != values.len()) {
        return Err(PyValueError::new_err("keys has another length than values"));
    }
    let (timestamp, timestamps) = match timestamps {
        None => (-1, None),
        Some(one) if one.is_instance_of::<PyInt>() => (one.extract()?, None),
        Some(many) => (-1, Some(many.extract::<Vec<i64>>()?)),
    };
    if timestamps.as_ref().is_some_and(|timestamps| timestamps.len() != values.len()) {
        return Err(PyValueError::new_err("timestamps has another length than values"));
    }
    let mut builder = builder(options)?;
    if let Some(first) = values.iter().next() {
        let size = Field::new(first)?.as_bytes()?.map_or(0, <[u8]>::len) + RECORD_OVERHEAD_GUESS;
        builder.reserve(
            size.saturating_mul(values.len())
                .min(batch_bytes_max.unwrap_or(usize::MAX))
                .min(RESERVE_BYTES_MAX),
        );
    }
    for (index, value) in values.iter().enumerate() {
        let key = match keys {
            Some(keys) => Field::new(keys.get_item(index)?)?,
            None => Field::Null,
        };
        let value = Field::new(value)?;
        let timestamp = match &timestamps {
            Some(timestamps) => timestamps.get(index).copied().unwrap_or(timestamp),
            None => timestamp,
        };
        let (key, value) = (key.as_bytes()?, value.as_bytes()?);
        builder.append_within(batch_bytes_max, timestamp, key, value).map_err(invalid)?;
    }
    finish(py, builder)
}

/// Header of a record without key and headers, at most.
const RECORD_OVERHEAD_GUESS: usize = 16;
/// More is left to the buffer's own growth.
const RESERVE_BYTES_MAX: usize = 16 << 20;

#[pyfunction(name = "encode_columns")]
#[pyo3(
    signature = (keys, values, timestamps, **options),
    text_signature = "(keys, values, timestamps, *, base_offset=0, partition_leader_epoch=-1, compression='none', \
                      compression_level=None, timestamp_type='CreateTime', log_append_time_ms=None, \
                      producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False, batch_bytes_max=None)"
)]
fn py_encode_columns<'py>(
    py: Python<'py>,
    keys: Option<&Bound<'py, PyAny>>,
    values: &Bound<'py, PyAny>,
    timestamps: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let Keywords { options, batch_bytes_max, .. } = Keywords::for_columns(options)?;
    let keys = keys.map(import_array).transpose()?;
    let values = import_array(values)?;
    let (one, many) = match timestamps.extract::<i64>() {
        Ok(one) => (one, None),
        Err(_) => (0, Some(import_array(timestamps)?)),
    };
    let encoded = py.detach(|| {
        let keys = keys.as_deref().map(Column::new).transpose()?.unwrap_or(Column::Null);
        let timestamps = match many.as_deref() {
            Some(array) => Timestamps::new(array)?,
            None => Timestamps::Same(one),
        };
        let builder = BatchBuilder::with_buffer(options, BUFFER.take())?;
        encode_columns(builder, batch_bytes_max, &timestamps, &keys, &Column::new(&*values)?)
    });
    Ok(keep_buffer(py, encoded.map_err(invalid)?))
}

thread_local! {
    /// The buffer of the last batch, so that the next one meets memory that is already mapped.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A larger buffer is given back to the system.
const KEPT_BYTES_MAX: usize = 4 << 20;

fn builder(options: BatchOptions) -> PyResult<BatchBuilder> {
    BatchBuilder::with_buffer(options, BUFFER.take()).map_err(invalid)
}

fn finish<'py>(py: Python<'py>, builder: BatchBuilder) -> PyResult<Bound<'py, PyBytes>> {
    let is_small = builder.batch_bytes() < DETACH_BYTES_MIN;
    let bytes = if is_small { builder.finish() } else { py.detach(|| builder.finish()) };
    Ok(keep_buffer(py, bytes.map_err(invalid)?))
}

fn keep_buffer(py: Python<'_>, encoded: Vec<u8>) -> Bound<'_, PyBytes> {
    let bytes = PyBytes::new(py, &encoded);
    if encoded.capacity() <= KEPT_BYTES_MAX {
        BUFFER.set(encoded);
    }
    bytes
}

/// Arguments that make no batch are a ValueError, not a fault of a log.
fn invalid(error: kraftlog_log::Error) -> PyErr {
    match error {
        kraftlog_log::Error::Invalid(reason) => PyValueError::new_err(reason),
        other => PyLogError(other).into(),
    }
}
