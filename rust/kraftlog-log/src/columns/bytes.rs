//! Columns of keys and values: copied with offsets, or views into the bytes they came from.

use super::options::BinaryType;
use crate::raw::memory::Column;
use crate::raw::{self, Span, Views};
use arrow_array::{ArrayRef, BinaryArray, LargeBinaryArray};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use std::sync::Arc;

/// What the decode loop needs of a column of bytes.
pub(super) trait ByteColumn: Default {
    /// Appends a row for each span; bit n of `nulls` says that row n is null, its span is empty then. How many
    /// bytes they are; None when they do not fit, and then the rows have to be dropped again.
    fn extend(&mut self, spans: &[Span<'_>], nulls: u64) -> Option<usize>;
    /// Appends a null.
    fn push_null(&mut self);
    /// Appends bytes that lie in the current view source; false if they do not fit.
    #[must_use]
    fn push(&mut self, bytes: &[u8]) -> bool;
    /// Says about how many rows and bytes will come.
    fn expect(&mut self, rows: usize, bytes: usize);
    /// Names the buffer that coming rows lie in.
    fn set_source(&mut self, source: &Buffer);
    /// Bytes that were copied.
    fn byte_count(&self) -> usize;
    /// Drops all rows after the first `rows`.
    fn truncate(&mut self, rows: usize);
    /// The rows so far as an array; the column is empty afterwards.
    fn take(&mut self, binary_type: BinaryType) -> ArrayRef;
}

/// Notes the rows from `first` on whose bit is set.
#[inline]
pub(super) fn note_nulls(null_rows: &mut Vec<u32>, first: usize, mut nulls: u64) {
    while nulls != 0 {
        null_rows.push(first as u32 + nulls.trailing_zeros());
        nulls &= nulls - 1;
    }
}

pub(super) fn null_buffer(rows: usize, null_rows: &mut Vec<u32>) -> Option<NullBuffer> {
    if null_rows.is_empty() {
        return None;
    }
    if null_rows.len() == rows {
        null_rows.clear();
        return Some(NullBuffer::new_null(rows));
    }
    let mut builder = NullBufferBuilder::new(rows);
    let mut next = 0;
    for row in null_rows.drain(..) {
        builder.append_n_non_nulls(row as usize - next);
        builder.append_null();
        next = row as usize + 1;
    }
    builder.append_n_non_nulls(rows - next);
    builder.finish()
}

/// Bytes one after the other with the end of each.
#[derive(Debug, Default)]
pub(super) struct CopyColumn {
    /// Nothing, or 0 and the end of each row.
    offsets: Column<i32>,
    data: Column<u8>,
    null_rows: Vec<u32>,
}

impl CopyColumn {
    pub(super) fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Appends bytes or a null; false when 32-bit offsets do not reach.
    #[must_use]
    #[inline]
    pub(super) fn push_nullable(&mut self, bytes: Option<&[u8]>) -> bool {
        match bytes {
            Some(bytes) => self.push(bytes),
            None => {
                self.push_null();
                true
            }
        }
    }

    #[inline]
    fn push_end(&mut self) {
        if self.offsets.len() == 0 {
            self.offsets.push(0);
        }
        self.offsets.push(self.data.len() as i32);
    }

    /// Offsets, bytes and nulls; the column is empty afterwards.
    pub(super) fn take_parts(&mut self) -> (OffsetBuffer<i32>, Buffer, Option<NullBuffer>) {
        let rows = self.len();
        let nulls = null_buffer(rows, &mut self.null_rows);
        if self.offsets.len() == 0 {
            self.offsets.push(0);
        }
        let offsets = ScalarBuffer::new(self.offsets.take(), 0, rows + 1);
        // Each offset is the length of `data` at a later time, so they are sorted.
        let offsets = raw::sorted_offsets(offsets).unwrap_or_else(|| OffsetBuffer::new_zeroed(rows));
        (offsets, self.data.take(), nulls)
    }
}

impl ByteColumn for CopyColumn {
    #[inline(always)]
    fn extend(&mut self, spans: &[Span<'_>], nulls: u64) -> Option<usize> {
        let rows = self.len();
        note_nulls(&mut self.null_rows, rows, nulls);
        if self.offsets.len() == 0 {
            self.offsets.push(0);
        }
        raw::copy_spans(spans, &mut self.data, &mut self.offsets)
    }

    #[inline]
    fn push_null(&mut self) {
        self.null_rows.push(self.len() as u32);
        self.push_end();
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) -> bool {
        if self.data.len() + bytes.len() > i32::MAX as usize {
            return false;
        }
        self.data.extend_from_slice(bytes);
        self.push_end();
        true
    }

    fn expect(&mut self, rows: usize, bytes: usize) {
        self.offsets.expect(rows + 1);
        self.data.expect(bytes + raw::SLACK);
    }

    fn set_source(&mut self, _source: &Buffer) {}

    fn byte_count(&self) -> usize {
        self.data.len()
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.data.truncate(self.offsets.last().map_or(0, |end| end as usize));
        self.null_rows.retain(|&row| (row as usize) < rows);
    }

    fn take(&mut self, binary_type: BinaryType) -> ArrayRef {
        let (offsets, data, nulls) = self.take_parts();
        if binary_type == BinaryType::LargeBinary {
            let wide: Vec<i64> = offsets.iter().map(|&offset| i64::from(offset)).collect();
            return Arc::new(LargeBinaryArray::new(OffsetBuffer::new(wide.into()), data, nulls));
        }
        Arc::new(BinaryArray::new(offsets, data, nulls))
    }
}

/// Views of 16 bytes: short bytes inside, others as position in one of the buffers.
#[derive(Debug, Default)]
pub(super) struct ViewColumn {
    views: Views,
    null_rows: Vec<u32>,
}

impl ByteColumn for ViewColumn {
    #[inline(always)]
    fn extend(&mut self, spans: &[Span<'_>], nulls: u64) -> Option<usize> {
        note_nulls(&mut self.null_rows, self.views.len(), nulls);
        self.views.extend(spans)
    }

    #[inline]
    fn push_null(&mut self) {
        self.null_rows.push(self.views.len() as u32);
        self.views.push_empty();
    }

    fn push(&mut self, bytes: &[u8]) -> bool {
        self.views.push(bytes)
    }

    fn expect(&mut self, rows: usize, _bytes: usize) {
        self.views.expect(rows);
    }

    fn set_source(&mut self, source: &Buffer) {
        self.views.set_source(source);
    }

    fn byte_count(&self) -> usize {
        0
    }

    fn truncate(&mut self, rows: usize) {
        self.views.truncate(rows);
        self.null_rows.retain(|&row| (row as usize) < rows);
    }

    fn take(&mut self, _binary_type: BinaryType) -> ArrayRef {
        let nulls = null_buffer(self.views.len(), &mut self.null_rows);
        self.views.take(nulls)
    }
}
