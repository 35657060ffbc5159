//! All `unsafe` of this crate, here and in `raw/`, behind functions that are safe to call: whatever their
//! arguments, nothing is read or written outside the memory that they were given.
//!
//! Three means carry the proofs. What is large is checked once for many rows ([`copy_spans`], [`Views`]). What is
//! read byte by byte has the number of readable bytes in its type ([`records`]: `Ahead`), so that reading past them does not
//! compile. And memory for columns is zeroed when it is new, so that no value is ever uninitialised.
#![allow(unsafe_code)]

use crate::columns::memory::{Block, Column};
use arrow_array::{ArrayRef, BinaryViewArray, DictionaryArray, Int32Array, StringArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use std::ptr::NonNull;
use std::sync::Arc;

mod lz4;
pub(crate) mod mapped;
mod records;

pub(crate) use lz4::{Lz4Decoder, Lz4Encoder};
pub(crate) use records::{copy_spans, CommonRecord, Readable, Shape, Span, AHEAD, SLACK};

// --- numbers in blocks of memory ---

/// Blocks of memory are made of these, so that they are aligned for every column type.
pub(crate) type Unit = u128;

/// Plain numbers.
///
/// # Safety
/// Every bit pattern is a value, there is no padding, and size and alignment divide those of [`Unit`].
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: an integer of 1 byte.
unsafe impl Plain for u8 {}
// SAFETY: an integer of 4 bytes.
unsafe impl Plain for i32 {}
// SAFETY: an integer of 8 bytes.
unsafe impl Plain for i64 {}
// SAFETY: an integer of 16 bytes, the unit itself.
unsafe impl Plain for u128 {}

/// The same memory as other numbers.
#[inline(always)]
pub(crate) fn numbers<T: Plain>(units: &[Unit]) -> &[T] {
    // SAFETY: `Plain` allows any bits and no stricter alignment, and sizes divide, so the count is exact.
    unsafe { std::slice::from_raw_parts(units.as_ptr().cast(), size_of_val(units) / size_of::<T>()) }
}

/// The same memory as other numbers, to write them.
#[inline(always)]
pub(crate) fn numbers_mut<T: Plain>(units: &mut [Unit]) -> &mut [T] {
    let count = size_of_val(units) / size_of::<T>();
    // SAFETY: as for `numbers`; the borrow is exclusive, and any `T` leaves valid units behind.
    unsafe { std::slice::from_raw_parts_mut(units.as_mut_ptr().cast(), count) }
}

/// The first `size` bytes of a block as an Arrow buffer, at most all; the block goes with the last reference.
pub(crate) fn shared(block: Block, size: usize) -> Buffer {
    let block = Arc::new(block);
    let bytes = numbers::<u8>(block.units());
    let (start, size) = (NonNull::from(bytes).cast(), size.min(bytes.len()));
    // SAFETY: the units are initialised, lie on the heap where moving the block does not move them, and are neither
    // changed nor freed while the buffer holds the only reference to the block.
    unsafe { Buffer::from_custom_allocation(start, size, block) }
}

/// Offsets of an Arrow array, if the first is not negative and none is below the one before.
pub(crate) fn sorted_offsets(offsets: ScalarBuffer<i32>) -> Option<OffsetBuffer<i32>> {
    let first = *offsets.first()?;
    let behind = offsets.get(1..).unwrap_or_default();
    // No early end, so that eight are compared at a time.
    let is_sorted = offsets.iter().zip(behind).fold(true, |sorted, (left, right)| sorted & (left <= right));
    // SAFETY: just compared; the buffer cannot change.
    (is_sorted && first >= 0).then(|| unsafe { OffsetBuffer::new_unchecked(offsets) })
}

/// A dictionary column of `count` rows with the one name, or of nulls without.
pub(crate) fn one_name(name: Option<&str>, count: usize) -> ArrayRef {
    let keys = match name {
        Some(_) => Int32Array::from_value(0, count),
        None => Int32Array::new_null(count),
    };
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(name));
    // SAFETY: a key is 0 where there is a name, and null where there is none.
    Arc::new(unsafe { DictionaryArray::new_unchecked(keys, names) })
}

/// Calls `work` compiled for AVX2 and BMI where the processor has them.
#[inline(always)]
pub(crate) fn with_wide_registers<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn wide<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has AVX2 and BMI2; every one with them has BMI1, LZCNT and POPCNT.
            return unsafe { wide(work) };
        }
    }
    work()
}

// --- views ---

/// Longest bytes that a view holds itself.
const INLINE_MAX: usize = 12;

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

/// Rows of a BinaryView column: each was made from bytes inside a buffer that is kept beside it.
#[derive(Debug, Default)]
pub(crate) struct Views {
    rows: Column<u128>,
    buffers: Vec<Buffer>,
}

impl Views {
    /// Rows so far.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Says about how many rows will come.
    pub(crate) fn expect(&mut self, rows: usize) {
        self.rows.expect(rows);
    }

    /// Names the buffer that coming rows lie in.
    pub(crate) fn set_source(&mut self, source: &Buffer) {
        let same = self
            .buffers
            .last()
            .is_some_and(|last| last.as_ptr() == source.as_ptr() && last.len() == source.len());
        if !same {
            self.buffers.push(source.clone());
        }
    }

    /// Appends a row of no bytes.
    pub(crate) fn push_empty(&mut self) {
        self.rows.push(0);
    }

    /// Appends a row of bytes of the current source. False, and nothing done, if they do not lie in it.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let mut head = [0u8; 16];
        for (target, byte) in head.iter_mut().zip(bytes.iter().take(INLINE_MAX)) {
            *target = *byte;
        }
        let head = u128::from_le_bytes(head);
        let view = if bytes.len() <= INLINE_MAX {
            head << 32 | bytes.len() as u128
        } else {
            let Some(source) = self.buffers.last() else { return false };
            let offset = (bytes.as_ptr() as usize).wrapping_sub(source.as_ptr() as usize);
            if offset > source.len()
                || source.len() - offset < bytes.len()
                || source.len() > i32::MAX as usize
            {
                return false;
            }
            let place = (offset as u128) << 32 | (self.buffers.len() - 1) as u128;
            place << 64 | (head as u32 as u128) << 32 | bytes.len() as u128
        };
        self.rows.push(view);
        true
    }

    /// Appends a row for each span: how many bytes they are. None, and nothing done, unless all lie in the current
    /// source.
    #[inline(always)]
    pub(crate) fn extend(&mut self, spans: &[Span<'_>]) -> Option<usize> {
        let source = self.buffers.last()?;
        let mut total = 0;
        let (start, size) = (source.as_ptr() as usize, source.len());
        let buffer_index = (self.buffers.len() - 1) as u64;
        // Negative as soon as one of the differences is: what lies elsewhere is before the start or behind the end.
        let mut outside = i32::MAX as isize - size as isize;
        let views = self.rows.spare_mut(spans.len());
        for (span, target) in spans.iter().zip(views) {
            let len = span.bytes().len();
            total += len;
            let (first, second) = span.first_bytes();
            let (low, high) = match INLINE_MASKS.get(len) {
                Some(&(first_mask, second_mask)) => (first & first_mask, second & second_mask),
                None => {
                    let offset = (span.bytes().as_ptr() as usize).wrapping_sub(start);
                    outside |= offset as isize | (size.wrapping_sub(offset).wrapping_sub(len)) as isize;
                    (first, (offset as u64) << 32 | buffer_index)
                }
            };
            *target = u128::from(high) << 64 | u128::from(u64::from(low) << 32 | len as u64);
        }
        if outside < 0 {
            return None;
        }
        self.rows.advance(spans.len());
        Some(total)
    }

    /// Drops all rows after the first `rows`.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.rows.truncate(rows);
    }

    /// The rows as an array; there are none afterwards.
    pub(crate) fn take(&mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        let rows = self.rows.len();
        let nulls = nulls.filter(|nulls| nulls.len() == rows);
        let views = ScalarBuffer::new(self.rows.take(), 0, rows);
        let buffers = std::mem::take(&mut self.buffers);
        // SAFETY: every row holds its bytes with zeros behind them, or names bytes inside one of the buffers together
        // with their first four; rows and buffers are only taken away together.
        Arc::new(unsafe { BinaryViewArray::new_unchecked(views, buffers.into(), nulls) })
    }
}
