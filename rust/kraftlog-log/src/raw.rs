//! All `unsafe` of this crate is here, in [`lz4`] and in [`mapped`], to be reviewed as a whole, behind functions that
//! are safe to call: whatever their arguments, nothing is read or written outside the memory that they were given.
//!
//! Three means carry the proofs. What is large is checked once for many rows ([`copy_spans`], [`Views`]). What is
//! read byte by byte has the number of readable bytes in its type ([`records`]: `Ahead`), so that reading past them
//! does not compile. And memory for columns is zeroed when it is new, so that no value is ever uninitialised.
#![allow(unsafe_code)]

use arrow_array::{ArrayRef, BinaryViewArray, DictionaryArray, Int32Array, StringArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use memory::{Block, Column};
use std::ptr::NonNull;
use std::sync::Arc;

mod lz4;
pub(crate) mod mapped;
pub(crate) mod memory;

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

/// Bytes as an Arrow buffer, which keeps them.
pub(crate) fn shared_bytes(bytes: Arc<crate::byte_pool::PooledBytes>) -> Buffer {
    let (start, size) = (NonNull::from(bytes.as_slice()).cast(), bytes.as_slice().len());
    // SAFETY: the bytes lie on the heap and are neither moved, changed nor freed while the buffer shares their owner.
    unsafe { Buffer::from_custom_allocation(start, size, bytes) }
}

/// The first `size` bytes of a block as an Arrow buffer, at most all; the block goes with the last reference.
pub(crate) fn shared(block: Block, size: usize) -> Buffer {
    let block = Arc::new(block);
    let bytes = numbers::<u8>(block.units());
    let (start, size) = (NonNull::from(bytes).cast(), size.min(bytes.len()));
    // SAFETY: as above, and the units are initialised; the buffer holds the only reference to the block.
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

mod records {
    //! Reading the fields of records, and copying them.
    use super::memory::Column;
    use std::marker::PhantomData;

    /// Bytes that are readable behind every span, so that copying may go on to the end of a wide register.
    pub(crate) const SLACK: usize = 64;
    /// Bytes that are readable at and behind every place that [`Readable`] gives.
    pub(crate) const AHEAD: usize = SLACK + 32;

    /// Bytes with [`AHEAD`] more readable behind them.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Readable<'a> {
        start: *const u8,
        size: usize,
        bytes: PhantomData<&'a [u8]>,
    }

    impl<'a> Readable<'a> {
        /// The first `size` bytes, or as many as have [`AHEAD`] more behind them; None if there are not so many bytes.
        pub(crate) fn new(bytes: &'a [u8], size: usize) -> Option<Self> {
            let size = bytes.len().checked_sub(AHEAD)?.min(size);
            Some(Self { start: bytes.as_ptr(), size, bytes: PhantomData })
        }

        /// The place `position` bytes from the start; None beyond the end.
        #[inline(always)]
        pub(crate) fn at(&self, position: usize) -> Option<Ahead<'a, AHEAD>> {
            // SAFETY: with `position <= size`, AHEAD bytes are readable from there.
            (position <= self.size).then(|| Ahead(unsafe { self.start.add(position) }, PhantomData))
        }

        /// The position of a place, as [`at`](Self::at) takes it.
        #[inline(always)]
        pub(crate) fn position<const LEFT: usize>(&self, place: Ahead<'a, LEFT>) -> usize {
            (place.0 as usize).wrapping_sub(self.start as usize)
        }

        /// The `len` bytes from `place` on and the place behind them; None if that is beyond the end.
        #[inline(always)]
        pub(crate) fn take<const LEFT: usize>(
            &self,
            place: Ahead<'a, LEFT>,
            len: u32,
        ) -> Option<(Span<'a>, Ahead<'a, AHEAD>)> {
            // `place` may be of other bytes, or a little behind the end: the difference is then not in 0..=size.
            let position = self.position(place);
            if position > self.size || self.size - position < len as usize {
                return None;
            }
            // SAFETY: `position + len <= size`, so these bytes and AHEAD more are readable.
            let (start, behind) =
                unsafe { (self.start.add(position), self.start.add(position + len as usize)) };
            Some((Span { start, len, bytes: PhantomData }, Ahead(behind, PhantomData)))
        }
    }

    /// How the integers in front of a key lie in the first eight bytes of a record. Records of a batch are mostly alike, so
    /// this is found out once and then only compared.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Shape {
        /// The bits that tell it: the highest of each byte before the key, and the lowest of the sizes of record and key.
        ends: u64,
        pattern: u64,
        /// Bytes of the size, and of all before the key.
        size_bytes: usize,
        front_bytes: usize,
        /// Which bits of the second byte of the size belong to it, once the size is shifted to its place.
        size_second: u64,
        /// How far the size of the key is from the lowest bit, and its bits there: none for a null key.
        key_shift: u32,
        key_bits: u64,
        /// Where the deltas are.
        timestamp_at: usize,
        offset_at: usize,
    }

    impl Shape {
        /// Of no record.
        pub(crate) const NONE: Self = Self {
            ends: 0,
            pattern: 1,
            size_bytes: 0,
            front_bytes: 0,
            size_second: 0,
            key_shift: 0,
            key_bits: 0,
            timestamp_at: 0,
            offset_at: 0,
        };

        /// Of a record with this front, unless it is longer than eight bytes, has attributes of 128 or more, an integer of
        /// three bytes or more than one for the size of the key, or a negative size.
        fn of(word: u64) -> Option<Self> {
            let bytes = word.to_le_bytes();
            let mut at = 0;
            let mut next = || {
                let start = at;
                at += 1 + usize::from(*bytes.get(start)? >= 0x80);
                Some((start, at))
            };
            let (_, size_bytes) = next()?;
            let ((_, attributes_end), (timestamp_at, _), (offset_at, _)) = (next()?, next()?, next()?);
            let (key_at, front_bytes) = next()?;
            if attributes_end != size_bytes + 1 || key_at + 1 != front_bytes || front_bytes > 8 {
                return None;
            }
            let highest = 0x8080_8080_8080_8080 & (u64::MAX >> (64 - 8 * front_bytes));
            let ends = highest | 1 | 1 << (8 * key_at);
            let pattern = word & ends;
            // A third byte of an integer would show as two highest bits in a row.
            if pattern & pattern >> 8 & highest != 0 || word & 1 != 0 {
                return None;
            }
            let is_key_null = word >> (8 * key_at) & 1 != 0;
            Some(Self {
                ends,
                pattern,
                size_bytes,
                front_bytes,
                size_second: if size_bytes == 2 { 0x1fc0 } else { 0 },
                key_shift: 8 * key_at as u32 + 1,
                key_bits: if is_key_null { 0 } else { 0x3f },
                timestamp_at,
                offset_at,
            })
        }

        /// 1 for a shape whose keys are null, else 0.
        #[inline(always)]
        pub(crate) fn null_key(&self) -> u64 {
            u64::from(self.key_bits == 0)
        }
    }

    /// What a record of a common shape holds.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct CommonRecord<'a> {
        /// The first two bytes of the integer.
        pub(crate) timestamp_delta: u16,
        /// The first two bytes of the integer.
        pub(crate) offset_delta: u16,
        /// Empty when null, which the shape says.
        pub(crate) key: Span<'a>,
        /// Not null.
        pub(crate) value: Span<'a>,
        /// Position of what follows the record.
        pub(crate) end: usize,
    }

    impl<'a> Readable<'a> {
        /// The record at `position`, if it has this shape, a value of less than 8 KiB and no headers, and its fields fill it
        /// exactly.
        #[inline(always)]
        pub(crate) fn common_record(self, position: usize, shape: &Shape) -> Option<CommonRecord<'a>> {
            if position > self.size {
                return None;
            }
            // SAFETY: from any position up to `size` AHEAD bytes are readable. `position` is just compared, `key_end` and
            // `end` before anything is read there, and `value_end` is one less than `end`. The places in a shape are 8 at
            // most. Spans end at positions of at most `size` and so have SLACK bytes behind them. Nothing overflows, as
            // lengths have 14 bits at most.
            unsafe {
                let start = self.start.add(position);
                let word = u64::from_le(start.cast::<u64>().read_unaligned());
                if word & shape.ends != shape.pattern {
                    return None;
                }
                let size = word >> 1 & 0x3f | word >> 2 & shape.size_second;
                let end = position + shape.size_bytes + size as usize;
                let key_size = word >> shape.key_shift & shape.key_bits;
                let key_start = position + shape.front_bytes;
                let key_end = key_start + key_size as usize;
                if end > self.size || key_end >= end {
                    return None;
                }
                let behind = u32::from_le(self.start.add(key_end).cast::<u32>().read_unaligned());
                let (raw, value_start) = if behind & 0x80 == 0 {
                    (behind & 0x7f, key_end + 1)
                } else if behind & 0x8000 == 0 {
                    (behind & 0x7f | behind >> 1 & 0x3f80, key_end + 2)
                } else {
                    return None;
                };
                let value_size = raw >> 1;
                let value_end = value_start + value_size as usize;
                // What is left has to be the zero that says: no headers. The lowest bit would say that the value is null.
                if value_end + 1 != end || *self.start.add(value_end) != 0 || raw & 1 != 0 {
                    return None;
                }
                let short = |at: usize| u16::from_le(start.add(at).cast::<u16>().read_unaligned());
                Some(CommonRecord {
                    timestamp_delta: short(shape.timestamp_at),
                    offset_delta: short(shape.offset_at),
                    key: Span { start: self.start.add(key_start), len: key_size as u32, bytes: PhantomData },
                    value: Span { start: self.start.add(value_start), len: value_size, bytes: PhantomData },
                    end,
                })
            }
        }

        /// The shape of the record at `position`, if it is a common one.
        pub(crate) fn shape(&self, position: usize) -> Option<Shape> {
            let place = self.at(position)?;
            // SAFETY: AHEAD bytes are readable there, which is more than 8.
            Shape::of(u64::from_le(unsafe { place.0.cast::<u64>().read_unaligned() }))
        }
    }

    /// A place from which `LEFT` bytes are readable.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Ahead<'a, const LEFT: usize>(*const u8, PhantomData<&'a [u8]>);

    impl<'a, const LEFT: usize> Ahead<'a, LEFT> {
        /// The place `COUNT` bytes on.
        #[inline(always)]
        pub(crate) fn skip<const COUNT: usize, const NEXT: usize>(self) -> Ahead<'a, NEXT> {
            const { assert!(COUNT + NEXT <= LEFT) };
            // SAFETY: of LEFT readable bytes, NEXT are left behind COUNT.
            Ahead(unsafe { self.0.add(COUNT) }, PhantomData)
        }

        /// An unsigned varint and the place behind it; None when it has more than five bytes.
        #[inline(always)]
        pub(crate) fn uvarint<const NEXT: usize>(self) -> Option<(u32, Ahead<'a, NEXT>)> {
            const { assert!(NEXT + 5 <= LEFT) };
            let (raw, size) = self.long::<5>()?;
            // SAFETY: `size` is at most 5.
            Some((raw as u32, Ahead(unsafe { self.0.add(size) }, PhantomData)))
        }

        /// An unsigned varlong and the place behind it; None when it has more than ten bytes.
        #[inline(always)]
        pub(crate) fn uvarlong<const NEXT: usize>(self) -> Option<(u64, Ahead<'a, NEXT>)> {
            const { assert!(NEXT + 10 <= LEFT) };
            let (raw, size) = self.long::<10>()?;
            // SAFETY: `size` is at most 10.
            Some((raw, Ahead(unsafe { self.0.add(size) }, PhantomData)))
        }

        /// An integer of up to `MOST` bytes and how many it has.
        #[inline]
        fn long<const MOST: usize>(self) -> Option<(u64, usize)> {
            const { assert!(MOST <= LEFT) };
            let mut raw = 0;
            for index in 0..MOST {
                // SAFETY: `index` is below MOST, which is at most LEFT.
                let byte = u64::from(unsafe { *self.0.add(index) });
                raw |= (byte & 0x7f) << (7 * index);
                if byte < 0x80 {
                    return Some((raw, index + 1));
                }
            }
            None
        }
    }

    /// Bytes with [`SLACK`] more readable behind them.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Span<'a> {
        start: *const u8,
        len: u32,
        bytes: PhantomData<&'a [u8]>,
    }

    static NOTHING: [u8; SLACK] = [0; SLACK];

    impl<'a> Span<'a> {
        /// No bytes.
        pub(crate) const EMPTY: Span<'static> = Span { start: NOTHING.as_ptr(), len: 0, bytes: PhantomData };

        /// The first four bytes and the next eight, of what follows too where there are fewer, as little-endian numbers.
        #[inline(always)]
        pub(super) fn first_bytes(&self) -> (u32, u64) {
            // SAFETY: SLACK bytes are readable behind every span, which is more than 12.
            let (first, second) = unsafe {
                (self.start.cast::<u32>().read_unaligned(), self.start.add(4).cast::<u64>().read_unaligned())
            };
            (u32::from_le(first), u64::from_le(second))
        }

        /// The bytes.
        #[inline(always)]
        pub(crate) fn bytes(&self) -> &'a [u8] {
            // SAFETY: `len` bytes are readable at `start` for that lifetime.
            unsafe { std::slice::from_raw_parts(self.start, self.len as usize) }
        }
    }

    /// From here on the C library's copy is faster than a loop of wide moves.
    const LIBRARY_COPY_MIN: usize = 384;

    /// Appends the bytes of all spans to `data`, and to `ends` where each of them ends there: how many bytes. None, and
    /// nothing done, when that passes 31 bits.
    #[inline(always)]
    pub(crate) fn copy_spans(
        spans: &[Span<'_>],
        data: &mut Column<u8>,
        ends: &mut Column<i32>,
    ) -> Option<usize> {
        let total: usize = spans.iter().map(|span| span.len as usize).sum();
        let base = data.len();
        i32::try_from(base.checked_add(total)?).ok()?;
        let target = data.spare_mut(total + SLACK);
        let places = ends.spare_mut(spans.len());
        if target.len() < total + SLACK || places.len() < spans.len() {
            return None;
        }
        let start = target.as_mut_ptr();
        let mut size = 0;
        for (span, end) in spans.iter().zip(places) {
            let len = span.len as usize;
            // SAFETY: `size + len` is at most `total`, and SLACK bytes more are readable behind the span and writable in
            // `target`; the wide moves end less than SLACK bytes behind `len`: it is above 32 where 64 are moved at a
            // time. A shared and an exclusive borrow do not overlap.
            unsafe {
                let (from, to) = (span.start, start.add(size));
                if len < LIBRARY_COPY_MIN {
                    wide_move::<32>(from, to);
                    let mut copied = 32;
                    while copied < len {
                        wide_move::<64>(from.add(copied), to.add(copied));
                        copied += 64;
                    }
                } else {
                    from.copy_to_nonoverlapping(to, len);
                }
            }
            size += len;
            *end = (base + size) as i32;
        }
        data.advance(total);
        ends.advance(spans.len());
        Some(total)
    }

    /// # Safety
    /// `SIZE` bytes are readable at `from` and writable at `to`, which do not overlap.
    #[inline(always)]
    unsafe fn wide_move<const SIZE: usize>(from: *const u8, to: *mut u8) {
        // SAFETY: the caller.
        unsafe { to.cast::<[u8; SIZE]>().write_unaligned(from.cast::<[u8; SIZE]>().read_unaligned()) };
    }
}
