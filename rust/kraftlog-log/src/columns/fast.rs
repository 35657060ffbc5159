//! The fast loop over records, where nothing is allocated and little is called for each of them.
//!
//! It works in blocks. First the integers of some records are read, which gives the places of keys and values; then
//! each column takes its part of the block at once. Each of these loops has few values to keep and stays in registers.
use super::bytes::ByteColumn;
use super::decode::BatchCursor;
use super::headers::for_each_stored;
use super::rows::{BatchFacts, Body, Rows, Stop};
use crate::raw::memory;
use crate::raw::{self, Readable, Shape, Span, AHEAD};

/// Records of a block: one for each bit of the masks of nulls.
const BLOCK: usize = 64;

/// What the first loop finds.
struct Block<'a> {
    keys: [Span<'a>; BLOCK],
    values: [Span<'a>; BLOCK],
    null_keys: u64,
    null_values: u64,
    /// The first two bytes of each delta, as stored.
    offset_deltas: [u16; BLOCK],
    timestamp_deltas: [u16; BLOCK],
    /// Whole deltas, as zigzag leaves them, of the rows that this mask has.
    long_rows: u64,
    long_offset_deltas: [i64; BLOCK],
    long_timestamp_deltas: [i64; BLOCK],
}

/// A record of any shape.
struct AnyRecord<'a> {
    timestamp_delta: i64,
    offset_delta: i64,
    key: Span<'a>,
    is_key_null: bool,
    value: Span<'a>,
    is_value_null: bool,
    /// As stored, where there are any. They may still be odd.
    headers: Option<Span<'a>>,
    end: usize,
}

/// The record at `position`; None unless its fields fill it exactly.
#[inline]
fn any_record<'a>(readable: Readable<'a>, position: usize) -> Option<AnyRecord<'a>> {
    let (stored, place) = readable.at(position)?.uvarint::<{ AHEAD - 5 }>()?;
    let start = readable.position(place);
    let (timestamp_delta, place) = place.skip::<1, { AHEAD - 6 }>().uvarlong::<{ AHEAD - 16 }>()?;
    let (offset_delta, place) = place.uvarint::<{ AHEAD - 21 }>()?;
    let (key_size, place) = place.uvarint::<{ AHEAD - 26 }>()?;
    // The lowest bit says that a size is negative: null for a key or value, nonsense for a record.
    let is_key_null = key_size & 1 != 0;
    let (key, place) = readable.take(place, if is_key_null { 0 } else { key_size >> 1 })?;
    let (value_size, place) = place.uvarint::<{ AHEAD - 5 }>()?;
    let is_value_null = value_size & 1 != 0;
    let (value, place) = readable.take(place, if is_value_null { 0 } else { value_size >> 1 })?;
    // What is left of the record is the zero that says that there are no headers, or headers.
    let left = ((stored >> 1) as usize).checked_sub(readable.position(place) - start)?;
    if stored & 1 != 0 || left == 0 {
        return None;
    }
    let (headers, end) = readable.take(place, u32::try_from(left).ok()?)?;
    Some(AnyRecord {
        timestamp_delta: unzigzag(timestamp_delta),
        offset_delta: unzigzag(offset_delta.into()),
        key,
        is_key_null,
        value,
        is_value_null,
        headers: (headers.bytes() != [0]).then_some(headers),
        end: readable.position(end),
    })
}

/// What became of a record that is not of the shape of the one before.
enum Uncommon {
    /// It has a common shape, which is now the one to compare with.
    NewShape,
    /// It is a row of the block, and this is its end.
    Row(usize),
    /// It is no row, and this is its end.
    NoRow(usize),
    /// It is not for this loop, or the Arrow batch is full.
    Stop(Stop),
}

/// Where the loop over a block is.
#[derive(Clone, Copy)]
struct At {
    position: usize,
    rows: usize,
    /// A record that ends behind this place does not fit, unless it would be the first row.
    full_at: usize,
}

impl<B: ByteColumn> Rows<B> {
    /// The fast loop, in the instructions that this processor has.
    pub(super) fn run(&mut self, facts: &BatchFacts, body: &Body<'_>, cursor: &mut BatchCursor) -> Stop {
        let Some(readable) = Readable::new(body.readable, body.size) else { return Stop::Other };
        raw::with_wide_registers(
            #[inline(always)]
            || {
                if cursor.filter {
                    self.run_blocks::<true>(facts, readable, cursor)
                } else {
                    self.run_blocks::<false>(facts, readable, cursor)
                }
            },
        )
    }

    /// Records with enough readable bytes behind them. `FILTER`: not every record has to be a row.
    ///
    /// No column is touched for a record before all of its fields are known to lie inside it, so whatever is odd can
    /// be left to [`add_one`](Self::add_one), which says what is wrong.
    #[inline(always)]
    fn run_blocks<const FILTER: bool>(
        &mut self,
        facts: &BatchFacts,
        readable: Readable<'_>,
        cursor: &mut BatchCursor,
    ) -> Stop {
        let mut block = Block {
            keys: [Span::EMPTY; BLOCK],
            values: [Span::EMPTY; BLOCK],
            null_keys: 0,
            null_values: 0,
            offset_deltas: [0; BLOCK],
            timestamp_deltas: [0; BLOCK],
            long_rows: 0,
            long_offset_deltas: [0; BLOCK],
            long_timestamp_deltas: [0; BLOCK],
        };
        let mut shape = Shape::NONE;
        loop {
            let before = cursor.position;
            let (read, rows, stop) =
                self.read_block::<FILTER>(facts, readable, cursor, &mut block, &mut shape);
            let used_bytes = self.used_bytes;
            if rows > 0 && !self.take_block(facts, &block, rows) {
                cursor.position = before;
                self.used_bytes = used_bytes;
                self.truncate(self.rows);
                return Stop::Other;
            }
            cursor.read += read;
            if let Some(stop) = stop {
                return stop;
            }
        }
    }

    /// Reads records into the block: how many, how many of them are rows, and why to stop if there is a reason.
    #[inline(always)]
    fn read_block<'a, const FILTER: bool>(
        &mut self,
        facts: &BatchFacts,
        readable: Readable<'a>,
        cursor: &mut BatchCursor,
        block: &mut Block<'a>,
        shape: &mut Shape,
    ) -> (usize, usize, Option<Stop>) {
        let rows_left = self.rows_max().saturating_sub(self.rows);
        let records_left = facts.count.saturating_sub(cursor.read);
        let room = if FILTER { rows_left.min(BLOCK) } else { rows_left.min(BLOCK).min(records_left) };
        let (base_timestamp, timestamp_mask) = facts.timestamps();
        // More than the columns get, as it counts whole records, but no key or value can be larger.
        let mut full_at = cursor.position.saturating_add(self.bytes_left());
        let mut position = cursor.position;
        (block.null_keys, block.null_values, block.long_rows) = (0, 0, 0);
        let mut null_keys = 0u64;
        let (mut read, mut rows) = (0, 0);
        let stop = loop {
            if rows >= room {
                break if rows_left <= rows {
                    Some(Stop::Full)
                } else {
                    (records_left <= rows).then_some(Stop::Other)
                };
            }
            if FILTER && read >= records_left {
                break Some(Stop::Other);
            }
            let Some(record) = readable.common_record(position, shape).filter(|record| record.end <= full_at)
            else {
                let at = At { position, rows, full_at };
                match self.take_uncommon::<FILTER>(facts, readable, at, block, shape) {
                    Uncommon::NewShape => {}
                    Uncommon::Row(end) => {
                        position = end;
                        rows += 1;
                        read += 1;
                    }
                    Uncommon::NoRow(end) => {
                        full_at = full_at.saturating_add(end - position);
                        position = end;
                        read += 1;
                    }
                    Uncommon::Stop(stop) => break Some(stop),
                }
                continue;
            };
            if FILTER {
                let offset = facts.base_offset.wrapping_add(short_delta(record.offset_delta));
                let delta = short_delta(record.timestamp_delta);
                if !self.is_row(offset, base_timestamp.wrapping_add(delta & timestamp_mask)) {
                    full_at = full_at.saturating_add(record.end - position);
                    position = record.end;
                    read += 1;
                    continue;
                }
            }
            let (Some(key), Some(value)) = (block.keys.get_mut(rows), block.values.get_mut(rows)) else {
                break None;
            };
            (*key, *value) = (record.key, record.value);
            if let (Some(offset), Some(timestamp)) =
                (block.offset_deltas.get_mut(rows), block.timestamp_deltas.get_mut(rows))
            {
                (*offset, *timestamp) = (record.offset_delta, record.timestamp_delta);
            }
            null_keys |= shape.null_key() << rows;
            rows += 1;
            read += 1;
            position = record.end;
        };
        cursor.position = position;
        block.null_keys |= null_keys;
        (read, rows, stop)
    }

    /// The record that the loop over common ones stopped at.
    #[cold]
    #[inline(never)]
    fn take_uncommon<'a, const FILTER: bool>(
        &mut self,
        facts: &BatchFacts,
        readable: Readable<'a>,
        at: At,
        block: &mut Block<'a>,
        shape: &mut Shape,
    ) -> Uncommon {
        if let Some(found) = readable.shape(at.position) {
            let fits = |record: raw::CommonRecord<'_>| record.end <= at.full_at;
            if readable.common_record(at.position, &found).is_some_and(fits) {
                *shape = found;
                return Uncommon::NewShape;
            }
        }
        let Some(record) = any_record(readable, at.position) else { return Uncommon::Stop(Stop::Other) };
        let row = self.rows + at.rows;
        if FILTER {
            let (base_timestamp, mask) = facts.timestamps();
            let offset = facts.base_offset.wrapping_add(record.offset_delta);
            if !self.is_row(offset, base_timestamp.wrapping_add(record.timestamp_delta & mask)) {
                let is_sound =
                    record.headers.is_none_or(|headers| for_each_stored(headers.bytes(), |_, _| true));
                return if is_sound { Uncommon::NoRow(record.end) } else { Uncommon::Stop(Stop::Other) };
            }
        }
        // One row always fits.
        if record.end > at.full_at && row > 0 {
            return Uncommon::Stop(Stop::Full);
        }
        if let Some(stored) = record.headers.map(|headers| headers.bytes()) {
            let is_sound = match &mut self.headers {
                Some(column) => column.push_stored(row, stored),
                None => for_each_stored(stored, |_, _| true),
            };
            if let Some(column) = &mut self.headers {
                if is_sound {
                    self.used_bytes += stored.len();
                } else {
                    column.truncate(row);
                }
            }
            if !is_sound {
                return Uncommon::Stop(Stop::Other);
            }
        }
        if let (Some(key), Some(value), Some(offset_delta), Some(timestamp_delta)) = (
            block.keys.get_mut(at.rows),
            block.values.get_mut(at.rows),
            block.long_offset_deltas.get_mut(at.rows),
            block.long_timestamp_deltas.get_mut(at.rows),
        ) {
            (*key, *value) = (record.key, record.value);
            (*offset_delta, *timestamp_delta) = (record.offset_delta, record.timestamp_delta);
        }
        block.null_keys |= u64::from(record.is_key_null) << at.rows;
        block.null_values |= u64::from(record.is_value_null) << at.rows;
        block.long_rows |= 1 << at.rows;
        Uncommon::Row(record.end)
    }

    /// Gives the first `rows` records of the block to the columns; false when one cannot take them.
    #[inline(always)]
    fn take_block(&mut self, facts: &BatchFacts, block: &Block<'_>, rows: usize) -> bool {
        let parts = [
            (&mut self.keys, &mut self.key_lengths, &block.keys, block.null_keys),
            (&mut self.values, &mut self.value_lengths, &block.values, block.null_values),
        ];
        for (column, lengths, spans, nulls) in parts {
            let spans = spans.get(..rows).unwrap_or_default();
            if let Some(column) = column {
                let Some(size) = column.extend(spans, nulls) else { return false };
                self.used_bytes += size;
            }
            if let Some(lengths) = lengths {
                lengths.extend(spans, nulls);
            }
        }
        if let Some(column) = &mut self.offsets {
            let deltas = block.offset_deltas.get(..rows).unwrap_or_default();
            let long = (block.long_rows, &block.long_offset_deltas);
            extend(column, deltas, long, |delta| facts.base_offset.wrapping_add(delta));
        }
        let factor = self.timestamp_factor();
        if let Some(column) = &mut self.timestamps {
            let deltas = block.timestamp_deltas.get(..rows).unwrap_or_default();
            let long = (block.long_rows, &block.long_timestamp_deltas);
            let (base, mask) = facts.timestamps();
            if factor == 1 {
                extend(column, deltas, long, |delta| base.wrapping_add(delta & mask));
            } else {
                extend(column, deltas, long, |delta| base.wrapping_add(delta & mask).saturating_mul(factor));
            }
        }
        self.rows += rows;
        true
    }
}

#[inline(always)]
fn unzigzag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

/// The delta whose one or two bytes are the first of these two; without a branch, so that many are done at once.
#[inline(always)]
fn short_delta(stored: u16) -> i64 {
    let stored = u32::from(stored);
    let second = (stored >> 1 & 0x3f80) & 0u32.wrapping_sub(stored >> 7 & 1);
    let raw = stored & 0x7f | second;
    i64::from((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// Appends a value for each delta; those of the mask's rows are `long`.
#[inline(always)]
fn extend(
    column: &mut memory::Column<i64>,
    deltas: &[u16],
    (mut rows, long): (u64, &[i64; BLOCK]),
    value: impl Fn(i64) -> i64,
) {
    let places = column.spare_mut(deltas.len());
    for (place, delta) in places.iter_mut().zip(deltas) {
        *place = value(short_delta(*delta));
    }
    while rows != 0 {
        let row = rows.trailing_zeros() as usize;
        if let (Some(place), Some(delta)) = (places.get_mut(row), long.get(row)) {
            *place = value(*delta);
        }
        rows &= rows - 1;
    }
    column.advance(deltas.len());
}
