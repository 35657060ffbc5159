//! Lengths of keys or values, for those who want to know sizes without moving bytes.
use super::bytes::{note_nulls, null_buffer};
use crate::raw::memory::Column;
use crate::raw::Span;
use arrow_array::{ArrayRef, Int32Array};
use arrow_buffer::ScalarBuffer;
use std::sync::Arc;

/// A length for each row, or null.
#[derive(Debug, Default)]
pub(super) struct LengthColumn {
    lengths: Column<i32>,
    null_rows: Vec<u32>,
}

impl LengthColumn {
    /// Appends the length of each span; bit n of `nulls` says that row n is null.
    pub(super) fn extend(&mut self, spans: &[Span<'_>], nulls: u64) {
        note_nulls(&mut self.null_rows, self.lengths.len(), nulls);
        for (place, span) in self.lengths.spare_mut(spans.len()).iter_mut().zip(spans) {
            *place = span.bytes().len() as i32;
        }
        self.lengths.advance(spans.len());
    }

    /// Appends a length; lengths of fields of a record fit into 31 bits.
    #[inline]
    pub(super) fn push(&mut self, length: Option<usize>) {
        if length.is_none() {
            self.null_rows.push(self.lengths.len() as u32);
        }
        self.lengths.push(length.unwrap_or(0) as i32);
    }

    /// Drops all rows after the first `rows`.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.lengths.truncate(rows);
        self.null_rows.retain(|&row| (row as usize) < rows);
    }

    /// The rows so far; the column is empty afterwards.
    pub(super) fn take(&mut self) -> ArrayRef {
        let rows = self.lengths.len();
        let nulls = null_buffer(rows, &mut self.null_rows);
        Arc::new(Int32Array::new(ScalarBuffer::new(self.lengths.take(), 0, rows), nulls))
    }

    /// A column without rows.
    pub(super) fn none() -> ArrayRef {
        Self::default().take()
    }
}
