//! Record batches and log directories as Arrow.
use crate::arrow::ArrowBatch;
use crate::errors::PyLogError;
use crate::raw::arrow_buffer;
use arrow_buffer::Buffer;
use kraftlog_log::batch::next_batch;
use kraftlog_log::columns::{
    BatchCursor, BinaryType, ColumnOptions, ColumnsDecoder, Progress, TimestampUnit,
};

use kraftlog_log::{Error, Result};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;

mod cells;
mod directories;
mod python_stream;
mod remote;

fn binary_type(name: &str) -> PyResult<BinaryType> {
    match name {
        "binary" => Ok(BinaryType::Binary),
        "large_binary" => Ok(BinaryType::LargeBinary),
        "binary_view" => Ok(BinaryType::BinaryView),
        _ => Err(PyValueError::new_err(format!(
            "binary_type is binary, large_binary or binary_view, not {name:?}"
        ))),
    }
}

fn timestamp_unit(name: &str) -> PyResult<TimestampUnit> {
    match name {
        "ms" => Ok(TimestampUnit::Millisecond),
        "us" => Ok(TimestampUnit::Microsecond),
        _ => Err(PyValueError::new_err(format!("timestamp_unit is ms or us, not {name:?}"))),
    }
}

/// Column options from keyword arguments; those that are left out keep their defaults.
pub(crate) fn column_options(kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<ColumnOptions> {
    let mut options = ColumnOptions::default();
    for (name, value) in kwargs.into_iter().flatten() {
        let name: PyBackedStr = name.extract()?;
        match &*name {
            "columns" => {
                if let Some(columns) = value.extract::<Option<Vec<PyBackedStr>>>()? {
                    options.columns = ColumnOptions::parse_columns(&columns).map_err(value_error)?;
                }
            }
            "binary_type" => options.binary_type = binary_type(&value.extract::<PyBackedStr>()?)?,
            "timestamp_unit" => options.timestamp_unit = timestamp_unit(&value.extract::<PyBackedStr>()?)?,
            "topic_dictionary" => options.topic_dictionary = value.extract()?,
            "empty_headers_null" => options.empty_headers_null = value.extract()?,
            "topic" => {
                options.topic = value.extract::<Option<PyBackedStr>>()?.map(|topic| Arc::from(&*topic))
            }
            "partition" => options.partition = value.extract()?,
            "batch_rows" => options.batch_rows = positive(&name, &value)?,
            "batch_bytes" => options.batch_bytes = positive(&name, &value)?,
            "check_crc" => options.check_crc = value.extract()?,
            "include_control" => options.include_control = value.extract()?,
            "start_offset" => options.start_offset = value.extract::<Option<i64>>()?.unwrap_or(i64::MIN),
            "end_offset" => options.end_offset = value.extract::<Option<i64>>()?.unwrap_or(i64::MAX),
            "from_timestamp" => options.from_timestamp = value.extract::<Option<i64>>()?.unwrap_or(i64::MIN),
            "to_timestamp" => options.to_timestamp = value.extract()?,
            other => return Err(PyTypeError::new_err(format!("unexpected keyword argument {other:?}"))),
        }
    }
    Ok(options)
}

fn value_error(error: Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn positive(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    match value.extract::<usize>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(PyValueError::new_err(format!("{name} has to be at least 1"))),
    }
}

/// Adds all whole batches of `buffer`; a truncated one at the end is left out.
fn decode_all(decoder: &mut ColumnsDecoder, buffer: &Buffer) -> Result<()> {
    let mut position = 0;
    while let Some(batch) = next_batch(buffer, position)? {
        let mut cursor = BatchCursor::default();
        if decoder.decode(&batch, buffer, &mut cursor)? == Progress::Full {
            return Err(Error::Invalid(format!(
                "more than {} bytes of records for one Arrow batch",
                ColumnOptions::BATCH_BYTES_MAX
            )));
        }
        position += batch.bytes().len();
    }
    Ok(())
}

/// How many records the headers of sound batches promise; no more than they have bytes.
fn count_rows(buffer: &Buffer) -> usize {
    let (mut rows, mut position) = (0, 0);
    while let Ok(Some(batch)) = next_batch(buffer, position) {
        rows += usize::try_from(batch.record_count()).unwrap_or(0).min(batch.body().len());
        position += batch.bytes().len();
    }
    rows
}

/// A decoder that puts everything into one Arrow batch.
fn whole_decoder(kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<ColumnsDecoder> {
    let mut options = column_options(kwargs)?;
    options.batch_rows = i32::MAX as usize;
    options.batch_bytes = ColumnOptions::BATCH_BYTES_MAX;
    Ok(ColumnsDecoder::new(Arc::new(options)))
}

#[pyfunction]
#[pyo3(signature = (data, **options))]
fn decode_batches(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<ArrowBatch> {
    let mut decoder = whole_decoder(options)?;
    let buffers = match data.cast::<PyList>() {
        Ok(list) => list.iter().map(|item| arrow_buffer(&item)).collect::<PyResult<Vec<_>>>()?,
        Err(_) => vec![arrow_buffer(data)?],
    };
    let rows = py.detach(move || {
        decoder.expect(buffers.iter().map(count_rows).sum(), buffers.iter().map(Buffer::len).sum());
        for buffer in &buffers {
            decode_all(&mut decoder, buffer)?;
        }
        decoder.finish()
    });
    Ok(ArrowBatch(rows.map_err(PyLogError)?))
}

#[pyfunction]
fn decompressed_size(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
    let buffer = arrow_buffer(data)?;
    let size = py.detach(move || {
        let (mut scratch, mut position, mut size) = (Vec::new(), 0, 0);
        while let Some(batch) = next_batch(&buffer, position)? {
            size += batch.uncompressed_body(kraftlog_log::compression::Bound::DEFAULT, &mut scratch)?.len();
            position += batch.bytes().len();
        }
        Ok(size)
    });
    Ok(size.map_err(PyLogError)?)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::arrow::register(m)?;
    m.add_function(wrap_pyfunction!(decode_batches, m)?)?;
    cells::register(m)?;
    directories::register(m)?;
    python_stream::register(m)?;
    remote::register(m)?;
    m.add_function(wrap_pyfunction!(decompressed_size, m)?)?;
    Ok(())
}
