//! Columns of keys and values: copied with offsets, or views into the bytes they came from.
//!
//! The `_unchecked` functions are the inner loop's; they read and write a little more than they need
//! instead of branching on the size, and say how much room that takes.
#![allow(unsafe_code)]

use super::memory::Column;
use super::options::BinaryType;
use arrow_array::{ArrayRef, BinaryArray, BinaryViewArray, LargeBinaryArray};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use std::sync::Arc;

/// Bytes that must be readable behind a value for the `_unchecked` functions.
pub(super) const SLACK: usize = 32;
/// From here on the C library's copy is faster than a loop of wide moves.
const LIBRARY_COPY_MIN: usize = 384;
/// Longest bytes that a view holds itself.
const INLINE_MAX: usize = 12;

/// What the decode loop needs of a column of bytes.
pub(super) trait ByteColumn: Default {
    /// The loop's own copy of where the next row goes, which stays in registers.
    type Writer: Copy;

    /// Makes room for the fixed-size part of `rows` more rows.
    fn reserve(&mut self, rows: usize);
    /// A writer behind the last row.
    fn writer(&mut self) -> Self::Writer;
    /// Takes over the first `rows` rows that were written.
    ///
    /// # Safety
    /// They were written, in order, through this writer, which came from this column and was its only user.
    unsafe fn accept(&mut self, writer: Self::Writer, rows: usize);
    /// Writes row number `row` behind where the writer began: `len` bytes from `source`, which lies
    /// `offset` bytes into the current view source.
    ///
    /// # Safety
    /// As for [`accept`](Self::accept); `len + SLACK` bytes are readable at `source`, the first `len` lie
    /// in the current view source, and room for the row was reserved.
    unsafe fn write(
        &mut self,
        writer: &mut Self::Writer,
        row: usize,
        source: *const u8,
        offset: usize,
        len: usize,
    );
    /// Writes a null.
    ///
    /// # Safety
    /// As for [`accept`](Self::accept), and room for the row was reserved.
    unsafe fn write_null(&mut self, writer: &mut Self::Writer, row: usize);
    /// Appends a null.
    fn push_null(&mut self);
    /// Appends bytes that lie `offset` bytes into the current view source; false if they do not fit.
    fn push_at(&mut self, bytes: &[u8], offset: usize) -> bool;
    /// Says about how many rows and bytes will come.
    fn expect(&mut self, rows: usize, bytes: usize);
    /// Names the buffer that coming rows lie in.
    fn set_source(&mut self, source: &Buffer);
    /// Drops all rows after the first `rows`.
    fn truncate(&mut self, rows: usize);
    /// The rows so far as an array; the column is empty afterwards.
    fn take(&mut self, binary_type: BinaryType) -> ArrayRef;
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
    pub(super) fn push(&mut self, bytes: Option<&[u8]>) -> bool {
        match bytes {
            Some(bytes) if self.data.len() + bytes.len() > i32::MAX as usize => return false,
            Some(bytes) => {
                self.data.extend_from_slice(bytes);
                self.push_end();
            }
            None => self.push_null(),
        }
        true
    }

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
        // SAFETY: the first offset is 0 and each one is the length of `data` at a later time.
        let offsets = unsafe { OffsetBuffer::new_unchecked(offsets) };
        (offsets, self.data.take(), nulls)
    }
}

/// Where the bytes and offsets of a [`CopyColumn`] go.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopyWriter {
    data: *mut u8,
    /// Bytes that there is room for at `data`.
    capacity: usize,
    /// Bytes that are there.
    size: usize,
    /// Of row 0.
    offsets: *mut i32,
}

impl CopyColumn {
    /// Makes room for `more` bytes.
    ///
    /// # Safety
    /// As for [`ByteColumn::accept`].
    #[cold]
    #[inline(never)]
    unsafe fn grow(&mut self, writer: &mut CopyWriter, more: usize) {
        // SAFETY: these bytes were written (the caller).
        unsafe { self.data.advance(writer.size - self.data.len()) };
        self.data.reserve(more);
        writer.data = self.data.start();
        writer.capacity = self.data.capacity();
    }
}

impl ByteColumn for CopyColumn {
    type Writer = CopyWriter;

    fn reserve(&mut self, rows: usize) {
        if self.offsets.len() == 0 {
            self.offsets.push(0);
        }
        self.offsets.reserve(rows);
    }

    fn writer(&mut self) -> CopyWriter {
        CopyWriter {
            data: self.data.start(),
            capacity: self.data.capacity(),
            size: self.data.len(),
            offsets: self.offsets.spare(),
        }
    }

    unsafe fn accept(&mut self, writer: CopyWriter, rows: usize) {
        // SAFETY: the writer wrote them (the caller).
        unsafe {
            self.data.advance(writer.size - self.data.len());
            self.offsets.advance(rows);
        }
    }

    #[inline(always)]
    unsafe fn write(
        &mut self,
        writer: &mut CopyWriter,
        row: usize,
        source: *const u8,
        _offset: usize,
        len: usize,
    ) {
        if writer.capacity - writer.size < len + SLACK {
            // SAFETY: the caller.
            unsafe { self.grow(writer, len + SLACK) };
        }
        // SAFETY: `len + SLACK` bytes are readable at `source` (the caller) and writable at `target` (just
        // seen to); the loop touches less than that. Room for an offset is reserved (the caller).
        unsafe {
            let target = writer.data.add(writer.size);
            if len < LIBRARY_COPY_MIN {
                let mut copied = 0;
                loop {
                    let bytes = source.add(copied).cast::<[u8; SLACK]>().read_unaligned();
                    target.add(copied).cast::<[u8; SLACK]>().write_unaligned(bytes);
                    copied += SLACK;
                    if copied >= len {
                        break;
                    }
                }
            } else {
                source.copy_to_nonoverlapping(target, len);
            }
            writer.size += len;
            writer.offsets.add(row).write(writer.size as i32);
        }
    }

    #[inline(always)]
    unsafe fn write_null(&mut self, writer: &mut CopyWriter, row: usize) {
        self.null_rows.push((self.len() + row) as u32);
        // SAFETY: room is reserved (the caller).
        unsafe { writer.offsets.add(row).write(writer.size as i32) };
    }

    #[inline]
    fn push_null(&mut self) {
        self.null_rows.push(self.len() as u32);
        self.push_end();
    }

    fn push_at(&mut self, bytes: &[u8], _offset: usize) -> bool {
        self.push(Some(bytes))
    }

    fn expect(&mut self, rows: usize, bytes: usize) {
        self.offsets.expect(rows + 1);
        self.data.expect(bytes);
    }

    fn set_source(&mut self, _source: &Buffer) {}

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.data.truncate(self.offsets.last().map_or(0, |end| end as usize));
        self.null_rows.retain(|&row| (row as usize) < rows);
    }

    fn take(&mut self, binary_type: BinaryType) -> ArrayRef {
        let (offsets, data, nulls) = self.take_parts();
        if binary_type == BinaryType::LargeBinary {
            let wide: Vec<i64> = offsets.iter().map(|&offset| i64::from(offset)).collect();
            // SAFETY: as the narrow offsets, which are sorted and start with 0.
            let wide = unsafe { OffsetBuffer::new_unchecked(ScalarBuffer::from(wide)) };
            return Arc::new(LargeBinaryArray::new(wide, data, nulls));
        }
        Arc::new(BinaryArray::new(offsets, data, nulls))
    }
}

/// Views of 16 bytes: short bytes inside, others as position in one of the buffers.
#[derive(Debug, Default)]
pub(super) struct ViewColumn {
    views: Column<u128>,
    buffers: Vec<Buffer>,
    null_rows: Vec<u32>,
}

impl ViewColumn {
    fn buffer_index(&self) -> usize {
        self.buffers.len().saturating_sub(1)
    }
}

/// Where views go.
#[derive(Debug, Clone, Copy)]
pub(super) struct ViewWriter {
    /// Of row 0.
    views: *mut u128,
    buffer_index: u64,
}

/// Which bits of the first four and of the next eight bytes belong to bytes of this length.
const INLINE_MASKS: [(u32, u64); INLINE_MAX + 1] = {
    let mut masks = [(u32::MAX, u64::MAX); INLINE_MAX + 1];
    let mut len = 0;
    while len < INLINE_MAX {
        let all = (1u128 << (8 * len)) - 1;
        masks[len] = (all as u32, (all >> 32) as u64);
        len += 1;
    }
    masks
};

/// The view of `len` bytes that begin with these four and eight, and lie at `offset` of a buffer.
#[inline(always)]
fn view(first: u32, second: u64, buffer_index: u64, offset: usize, len: usize) -> u128 {
    let (low, high) = match INLINE_MASKS.get(len) {
        Some(&(first_mask, second_mask)) => (first & first_mask, second & second_mask),
        None => (first, (offset as u64) << 32 | buffer_index),
    };
    u128::from(high) << 64 | u128::from(u64::from(low) << 32 | len as u64)
}

impl ByteColumn for ViewColumn {
    type Writer = ViewWriter;

    fn reserve(&mut self, rows: usize) {
        self.views.reserve(rows);
    }

    fn writer(&mut self) -> ViewWriter {
        ViewWriter { views: self.views.spare(), buffer_index: self.buffer_index() as u64 }
    }

    unsafe fn accept(&mut self, _writer: ViewWriter, rows: usize) {
        // SAFETY: the writer wrote them (the caller).
        unsafe { self.views.advance(rows) };
    }

    #[inline(always)]
    unsafe fn write(
        &mut self,
        writer: &mut ViewWriter,
        row: usize,
        source: *const u8,
        offset: usize,
        len: usize,
    ) {
        // SAFETY: 12 bytes are readable at `source`, as SLACK is more; room for the row is reserved.
        unsafe {
            let first = u32::from_le(source.cast::<u32>().read_unaligned());
            let second = u64::from_le(source.add(4).cast::<u64>().read_unaligned());
            writer.views.add(row).write(view(first, second, writer.buffer_index, offset, len));
        }
    }

    #[inline(always)]
    unsafe fn write_null(&mut self, writer: &mut ViewWriter, row: usize) {
        self.null_rows.push((self.views.len() + row) as u32);
        // SAFETY: room is reserved (the caller).
        unsafe { writer.views.add(row).write(0) };
    }

    #[inline]
    fn push_null(&mut self) {
        self.null_rows.push(self.views.len() as u32);
        self.views.push(0);
    }

    fn push_at(&mut self, bytes: &[u8], offset: usize) -> bool {
        let mut head = [0u8; 16];
        for (target, byte) in head.iter_mut().zip(bytes.iter().take(INLINE_MAX)) {
            *target = *byte;
        }
        let head = u128::from_le_bytes(head);
        let buffer_index = self.buffer_index() as u64;
        self.views.push(view(head as u32, (head >> 32) as u64, buffer_index, offset, bytes.len()));
        true
    }

    fn expect(&mut self, rows: usize, _bytes: usize) {
        self.views.expect(rows);
    }

    fn set_source(&mut self, source: &Buffer) {
        let same = self
            .buffers
            .last()
            .is_some_and(|last| last.as_ptr() == source.as_ptr() && last.len() == source.len());
        if !same {
            self.buffers.push(source.clone());
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.views.truncate(rows);
        self.null_rows.retain(|&row| (row as usize) < rows);
    }

    fn take(&mut self, _binary_type: BinaryType) -> ArrayRef {
        let rows = self.views.len();
        let nulls = null_buffer(rows, &mut self.null_rows);
        let views = ScalarBuffer::new(self.views.take(), 0, rows);
        let buffers = std::mem::take(&mut self.buffers);
        // SAFETY: each view was made from bytes inside the buffer it names, and buffers are pushed only.
        Arc::new(unsafe { BinaryViewArray::new_unchecked(views, buffers.into(), nulls) })
    }
}
