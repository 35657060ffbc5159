//! The fast loop over records, where nothing is allocated and little is called for each of them.
//!
//! It works in blocks. First the integers of some records are read, which gives the places of keys and values; then
//! each column takes its part of the block at once. Each of these loops has few values to keep and stays in registers.
use super::bytes::ByteColumn;
use super::decode::BatchCursor;
use super::headers::{for_each_stored, HeadersColumn};
use super::memory;
use super::rows::{BatchFacts, Body, Rows, Stop};
use crate::raw::{self, CommonRecord, Readable, Shape, Span, AHEAD};

/// Records of a block: one for each bit of the masks of nulls.
const BLOCK: usize = 64;

/// What the first loop finds. Deltas are in zigzag form, which many at a time are freed of faster.
struct Block<'a> {
    keys: [Span<'a>; BLOCK],
    values: [Span<'a>; BLOCK],
    null_keys: u64,
    null_values: u64,
    offset_deltas: [u32; BLOCK],
    timestamp_deltas: [u64; BLOCK],
}

/// The record at `position` that is not of the last one's shape, and its headers as stored where it has any; None unless
/// its fields fill it exactly. Headers may still be odd.
#[cold]
#[inline(never)]
fn read_uncommon<'a>(
    readable: &Readable<'a>,
    position: usize,
    shape: &mut Shape,
) -> Option<(CommonRecord<'a>, Option<Span<'a>>)> {
    if let Some(found) = readable.shape(position) {
        *shape = found;
        if let Some(record) = readable.common_record(position, shape) {
            return Some((record, None));
        }
    }
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
    let headers = (headers.bytes() != [0]).then_some(headers);
    let end = readable.position(end);
    let record = CommonRecord { timestamp_delta, offset_delta, key, is_key_null, value, is_value_null, end };
    Some((record, headers))
}

/// Takes a record's headers; false when they are not sound.
#[cold]
#[inline(never)]
fn take_headers(column: Option<&mut HeadersColumn>, row: usize, stored: &[u8]) -> bool {
    match column {
        Some(column) => column.push_stored(row, stored),
        None => for_each_stored(stored, |_, _| true),
    }
}

impl<B: ByteColumn> Rows<B> {
    /// The fast loop, in the instructions that this processor has.
    pub(super) fn run(&mut self, facts: &BatchFacts, body: &Body<'_>, cursor: &mut BatchCursor) -> Stop {
        let Some(readable) = Readable::new(body.readable, body.size) else { return Stop::Other };
        raw::with_wide_registers(
            #[inline(always)]
            || {
                if cursor.filter {
                    self.run_blocks::<true>(facts, &readable, cursor)
                } else {
                    self.run_blocks::<false>(facts, &readable, cursor)
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
        readable: &Readable<'_>,
        cursor: &mut BatchCursor,
    ) -> Stop {
        let mut block = Block {
            keys: [Span::EMPTY; BLOCK],
            values: [Span::EMPTY; BLOCK],
            null_keys: 0,
            null_values: 0,
            offset_deltas: [0; BLOCK],
            timestamp_deltas: [0; BLOCK],
        };
        let mut shape = Shape::NONE;
        loop {
            let before = cursor.position;
            let (read, rows, stop) =
                self.read_block::<FILTER>(facts, readable, cursor, &mut block, &mut shape);
            if rows > 0 && !self.take_block(facts, &block, rows) {
                cursor.position = before;
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
        readable: &Readable<'a>,
        cursor: &mut BatchCursor,
        block: &mut Block<'a>,
        shape: &mut Shape,
    ) -> (usize, usize, Option<Stop>) {
        let rows_left = self.rows_max().saturating_sub(self.rows);
        let records_left = facts.count.saturating_sub(cursor.read);
        let room = rows_left.min(BLOCK);
        let (base_timestamp, timestamp_mask) = facts.timestamps();
        let mut position = cursor.position;
        // More than the columns get, as it counts whole records, but no key or value can be larger.
        let mut full_at = cursor.position.saturating_add(self.bytes_left());
        let (mut null_keys, mut null_values) = (0u64, 0u64);
        let (mut read, mut rows) = (0, 0);
        let stop = loop {
            if rows >= room {
                break (rows_left <= BLOCK).then_some(Stop::Full);
            }
            if read >= records_left {
                break Some(Stop::Other);
            }
            let (record, headers) = match readable.common_record(position, shape) {
                Some(record) => (record, None),
                None => match read_uncommon(readable, position, shape) {
                    Some(found) => found,
                    None => break Some(Stop::Other),
                },
            };
            if FILTER {
                let offset = facts.base_offset.wrapping_add(unzigzag(record.offset_delta.into()));
                let timestamp =
                    base_timestamp.wrapping_add(unzigzag(record.timestamp_delta) & timestamp_mask);
                if !self.is_row(offset, timestamp) {
                    let sound = headers.is_none_or(|headers| take_headers(None, 0, headers.bytes()));
                    if !sound {
                        break Some(Stop::Other);
                    }
                    full_at = full_at.saturating_add(record.end - position);
                    position = record.end;
                    read += 1;
                    continue;
                }
            }
            // One row always fits.
            if record.end > full_at && self.rows + rows > 0 {
                break Some(Stop::Full);
            }
            if let Some(headers) = headers {
                if !take_headers(self.headers.as_mut(), self.rows + rows, headers.bytes()) {
                    if let Some(column) = &mut self.headers {
                        column.truncate(self.rows + rows);
                    }
                    break Some(Stop::Other);
                }
                if self.headers.is_some() {
                    self.used_bytes += headers.bytes().len();
                }
            }
            if let (Some(key), Some(value), Some(offset_delta), Some(timestamp_delta)) = (
                block.keys.get_mut(rows),
                block.values.get_mut(rows),
                block.offset_deltas.get_mut(rows),
                block.timestamp_deltas.get_mut(rows),
            ) {
                *key = record.key;
                *value = record.value;
                *offset_delta = record.offset_delta;
                *timestamp_delta = record.timestamp_delta;
            }
            null_keys |= u64::from(record.is_key_null) << rows;
            null_values |= u64::from(record.is_value_null) << rows;
            rows += 1;
            read += 1;
            position = record.end;
        };
        cursor.position = position;
        (block.null_keys, block.null_values) = (null_keys, null_values);
        (read, rows, stop)
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
                if !column.extend(spans, nulls) {
                    return false;
                }
                self.used_bytes += raw::total_size(spans);
            }
            if let Some(lengths) = lengths {
                lengths.extend(spans, nulls);
            }
        }
        if let Some(column) = &mut self.offsets {
            let deltas = block.offset_deltas.get(..rows).unwrap_or_default();
            extend(column, deltas, |delta: u32| facts.base_offset.wrapping_add(unzigzag(delta.into())));
        }
        let factor = self.timestamp_factor();
        if let Some(column) = &mut self.timestamps {
            let deltas = block.timestamp_deltas.get(..rows).unwrap_or_default();
            let (base, mask) = facts.timestamps();
            if factor == 1 {
                extend(column, deltas, |delta| base.wrapping_add(unzigzag(delta) & mask));
            } else {
                extend(column, deltas, |delta| {
                    base.wrapping_add(unzigzag(delta) & mask).saturating_mul(factor)
                });
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

#[inline(always)]
fn extend<T: Copy>(column: &mut memory::Column<i64>, deltas: &[T], value: impl Fn(T) -> i64) {
    for (place, delta) in column.spare_mut(deltas.len()).iter_mut().zip(deltas) {
        *place = value(*delta);
    }
    column.advance(deltas.len());
}
