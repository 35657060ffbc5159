//! Binary cells that hold record batches, as lists of records.
use crate::arrow::ArrowArray;
use crate::arrow_import::import_array;
use crate::errors::PyLogError;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, GenericBinaryArray, ListArray, OffsetSizeTrait, StructArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use kraftlog_log::batch::next_batch;
use kraftlog_log::columns::{BatchCursor, ColumnOptions, ColumnsDecoder, Progress};
use kraftlog_log::{Error, Result};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// What becomes of a cell that is not whole record batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnError {
    /// An error that names it.
    Fail,
    /// Its list is null.
    Null,
}

/// Cells and what is asked of them.
struct Cells {
    array: ArrayRef,
    /// Number of the first cell in error texts.
    first_row: u64,
    on_error: OnError,
    keep_truncated: bool,
}

/// Lists of records of some cells.
struct Decoded {
    lists: ListArray,
    /// The cell after the last of them.
    next: usize,
    /// Cells that are null because they are bad.
    bad: usize,
}

impl Cells {
    /// The cells from `start` on whose records fit into the bounds of `options`, one at least: a cell that alone is
    /// larger gets the largest bound that Arrow's 32-bit offsets allow.
    fn decode(&self, start: usize, options: &Arc<ColumnOptions>) -> Result<Decoded> {
        let mut decoder = ColumnsDecoder::new(Arc::clone(options));
        let mut bounded = true;
        let (mut ends, mut valid, mut bad, mut next) = (vec![0i32], Vec::new(), 0, start);
        while next < self.array.len() {
            let mark = decoder.mark();
            let outcome = match self.cell(next) {
                None => Ok(Some(false)),
                Some(cell) => self.add(&mut decoder, &cell).map(|fits| fits.then_some(true)),
            };
            match outcome {
                Ok(Some(is_valid)) => valid.push(is_valid),
                Ok(None) if next > start => {
                    decoder.back_to(mark);
                    break;
                }
                Ok(None) if bounded => {
                    bounded = false;
                    let mut largest = options.as_ref().clone();
                    largest.batch_bytes = ColumnOptions::BATCH_BYTES_MAX;
                    decoder = ColumnsDecoder::new(Arc::new(largest));
                    continue;
                }
                outcome => {
                    let error = outcome.err().unwrap_or_else(too_large);
                    decoder.back_to(mark);
                    if self.on_error == OnError::Fail {
                        return Err(self.named(error, next));
                    }
                    valid.push(false);
                    bad += 1;
                }
            }
            ends.push(i32::try_from(decoder.rows()).map_err(|_| too_large())?);
            next += 1;
            if !bounded {
                break;
            }
        }
        let items = StructArray::from(decoder.finish()?);
        let field = Field::new("element", items.data_type().clone(), true);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        let lists =
            ListArray::try_new(Arc::new(field), offsets, Arc::new(items), Some(NullBuffer::from(valid)))
                .map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(Decoded { lists, next, bad })
    }

    /// Adds the records of a cell; false when they do not fit.
    fn add(&self, decoder: &mut ColumnsDecoder, cell: &Buffer) -> Result<bool> {
        let mut position = 0;
        while let Some(batch) = next_batch(cell, position)? {
            let mut cursor = BatchCursor::default();
            if decoder.decode(&batch, cell, &mut cursor)? == Progress::Full {
                return Ok(false);
            }
            position += batch.bytes().len();
        }
        let left = cell.len() - position;
        if left > 0 && !self.keep_truncated {
            let reason = format!("{left} bytes are not a whole batch");
            return Err(Error::corrupt(position as u64, -1, reason));
        }
        Ok(true)
    }

    fn cell(&self, index: usize) -> Option<Buffer> {
        if self.array.is_null(index) {
            return None;
        }
        match self.array.data_type() {
            DataType::Binary => Some(slice_of(self.array.as_binary::<i32>(), index)),
            DataType::LargeBinary => Some(slice_of(self.array.as_binary::<i64>(), index)),
            DataType::BinaryView => Some(Buffer::from(self.array.as_binary_view().value(index))),
            _ => None,
        }
    }

    fn named(&self, error: Error, index: usize) -> Error {
        let row = self.first_row.saturating_add(index as u64);
        match error {
            Error::Corrupt { .. } => error.located(format!("row {row}"), 0),
            other => Error::Invalid(format!("row {row}: {other}")),
        }
    }
}

fn too_large() -> Error {
    Error::Invalid(format!("more than {} bytes of records in one cell", ColumnOptions::BATCH_BYTES_MAX))
}

/// The bytes of a cell, shared with the array.
fn slice_of<O: OffsetSizeTrait>(array: &GenericBinaryArray<O>, index: usize) -> Buffer {
    let offsets = array.value_offsets();
    let at = |index: usize| offsets.get(index).map_or(0, |offset| offset.as_usize());
    let (start, end) = (at(index), at(index + 1));
    array.values().slice_with_length(start, end.saturating_sub(start))
}

#[pyfunction]
#[pyo3(signature = (cells, *, start=0, first_row=0, on_error="fail", keep_truncated=false, **options))]
fn decode_cells(
    py: Python<'_>,
    cells: &Bound<'_, PyAny>,
    start: usize,
    first_row: u64,
    on_error: &str,
    keep_truncated: bool,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<(ArrowArray, usize, usize)> {
    let mut options = super::column_options(options)?;
    options.batch_rows = i32::MAX as usize;
    let array = import_array(cells)?;
    if !matches!(array.data_type(), DataType::Binary | DataType::LargeBinary | DataType::BinaryView) {
        return Err(PyTypeError::new_err(format!("the cells are {}, not binary", array.data_type())));
    }
    let on_error = match on_error {
        "fail" => OnError::Fail,
        "null" => OnError::Null,
        other => return Err(PyValueError::new_err(format!("on_error is fail or null, not {other:?}"))),
    };
    let cells = Cells { array, first_row, on_error, keep_truncated };
    let decoded = py.detach(move || cells.decode(start, &Arc::new(options))).map_err(PyLogError)?;
    Ok((ArrowArray { array: Arc::new(decoded.lists) }, decoded.next, decoded.bad))
}

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(decode_cells, m)?)
}
