//! Reading the fields of records, and copying them.
use crate::columns::memory::Column;
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
        let (start, behind) = unsafe { (self.start.add(position), self.start.add(position + len as usize)) };
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

    /// Of a record with this front, unless it is longer than eight bytes, has an integer of three bytes or more than
    /// one for the size of the key, or a negative size.
    fn of(word: u64) -> Option<Self> {
        let bytes = word.to_le_bytes();
        let mut at = 0;
        let mut next = || {
            let start = at;
            at += 1 + usize::from(*bytes.get(start)? >= 0x80);
            Some((start, at))
        };
        let (_, size_bytes) = next()?;
        let ((_, _), (timestamp_at, _), (offset_at, _)) = (next()?, next()?, next()?);
        let (key_at, front_bytes) = next()?;
        if key_at + 1 != front_bytes || front_bytes > 8 {
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
pub(crate) fn copy_spans(spans: &[Span<'_>], data: &mut Column<u8>, ends: &mut Column<i32>) -> Option<usize> {
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
