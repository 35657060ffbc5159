//! The fast loop over records, where nothing is called and nothing is allocated for each of them.
#![allow(unsafe_code)]

use super::bytes::{ByteColumn, SLACK};
use super::decode::BatchCursor;
use super::memory;
use super::options::TimestampUnit;
use super::rows::{BatchFacts, Body, Rows, Stop};

/// Bytes of the smallest record: six one-byte integers and the attributes.
const RECORD_SIZE_MIN: usize = 7;
/// Bytes that must be readable behind a record for the fast loop: an odd record lets it read up to 26
/// bytes of integers past its end before that shows, and copying reads `SLACK` more.
const READABLE_BEHIND: usize = 32 + SLACK;

impl<B: ByteColumn> Rows<B> {
    /// The fast loop, in the instructions that this processor has.
    pub(super) fn run(&mut self, facts: &BatchFacts, body: &Body<'_>, cursor: &mut BatchCursor) -> Stop {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has them.
            return unsafe { self.run_avx2(facts, body, cursor) };
        }
        self.run_any(facts, body, cursor)
    }

    /// # Safety
    /// The processor has these instructions.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    unsafe fn run_avx2(&mut self, facts: &BatchFacts, body: &Body<'_>, cursor: &mut BatchCursor) -> Stop {
        self.run_any(facts, body, cursor)
    }

    #[inline(always)]
    fn run_any(&mut self, facts: &BatchFacts, body: &Body<'_>, cursor: &mut BatchCursor) -> Stop {
        let main = self.keys.is_some()
            && self.values.is_some()
            && self.offsets.is_some()
            && self.timestamps.is_some()
            && self.key_lengths.is_none()
            && self.value_lengths.is_none()
            && self.options.timestamp_unit == TimestampUnit::Millisecond;
        match (main, cursor.filter) {
            (true, false) => self.run_loop::<true, false>(facts, body, cursor),
            (true, true) => self.run_loop::<true, true>(facts, body, cursor),
            (false, false) => self.run_loop::<false, false>(facts, body, cursor),
            (false, true) => self.run_loop::<false, true>(facts, body, cursor),
        }
    }

    /// Records without headers, with enough readable bytes behind them. `MAIN`: key, value, offset and
    /// timestamp in milliseconds are all wanted. `FILTER`: not every record has to be a row.
    ///
    /// Nothing is written for a record before all of its fields are known to lie inside it, so whatever
    /// is odd can be left to [`add_one`](Self::add_one), which says what is wrong.
    #[inline(always)]
    fn run_loop<const MAIN: bool, const FILTER: bool>(
        &mut self,
        facts: &BatchFacts,
        body: &Body<'_>,
        cursor: &mut BatchCursor,
    ) -> Stop {
        let Some(limit) = body.readable.len().checked_sub(READABLE_BEHIND).map(|limit| limit.min(body.size))
        else {
            return Stop::Other;
        };
        let rows_left = self.rows_max().saturating_sub(self.rows);
        let most =
            (facts.count - cursor.read).min(body.size.saturating_sub(cursor.position) / RECORD_SIZE_MIN);
        self.reserve(most.min(rows_left));
        let micros = self.options.timestamp_unit == TimestampUnit::Microsecond;
        let (base_timestamp, timestamp_mask) = match facts.log_append_time {
            None => (facts.base_timestamp, -1),
            Some(time) => (time, 0),
        };
        let mut used_bytes = self.used_bytes;
        let bytes_max = used_bytes + self.bytes_left();
        let base = body.readable.as_ptr();
        let body_start = body.start();
        let (has_keys, has_values) = (MAIN || self.keys.is_some(), MAIN || self.values.is_some());
        let (has_offsets, has_timestamps) =
            (MAIN || self.offsets.is_some(), MAIN || self.timestamps.is_some());
        // Columns and where they continue become locals: what is behind `self` has to be read again after
        // every write through a pointer.
        let (mut keys, mut values) =
            (self.keys.take().unwrap_or_default(), self.values.take().unwrap_or_default());
        let (mut key_writer, mut value_writer) = (keys.writer(), values.writer());
        let offsets = self.offsets.as_mut().map_or(std::ptr::null_mut(), memory::Column::spare);
        let timestamps = self.timestamps.as_mut().map_or(std::ptr::null_mut(), memory::Column::spare);
        // Without a filter each record read is a row, and one count does for both.
        let read_end = if FILTER { most } else { most.min(rows_left) };
        let (mut key_lengths, mut value_lengths) = (self.key_lengths.take(), self.value_lengths.take());
        let mut added = 0;
        let mut read = 0;
        let mut position = cursor.position;
        let mut stop = Stop::Other;
        while read < read_end && position < limit {
            if FILTER && added == rows_left {
                stop = Stop::Full;
                break;
            }
            // SAFETY: `position < limit`, so READABLE_BEHIND bytes are readable from it on. From there to
            // `end <= limit` and READABLE_BEHIND beyond `end` too: integers are read at most 26 bytes past
            // `end`, and only fields that end at or before `end` are handed to a column, whose SLACK is
            // counted in. Room for `most` rows, but no more than `rows_left`, was reserved.
            unsafe {
                let Some((stored, at)) = read_uvarint(base, position) else { break };
                let end = at + (stored >> 1) as usize;
                // The lowest bit says that the size is negative.
                if end > limit || stored & 1 != 0 {
                    break;
                }
                let Some((timestamp_delta, at)) = read_varlong(base, at + 1) else { break };
                let Some((offset_delta, at)) = read_uvarint(base, at) else { break };
                let Some((key_size, key_start)) = read_uvarint(base, at) else { break };
                let is_key_null = key_size & 1 != 0;
                let key_size = if is_key_null { 0 } else { (key_size >> 1) as usize };
                let key_end = key_start + key_size;
                if key_end > end {
                    break;
                }
                let Some((value_size, value_start)) = read_uvarint(base, key_end) else { break };
                let is_value_null = value_size & 1 != 0;
                let value_size = if is_value_null { 0 } else { (value_size >> 1) as usize };
                let value_end = value_start + value_size;
                // What is left has to be the zero that says: no headers.
                if value_end + 1 != end || *base.add(value_end) != 0 {
                    break;
                }
                let offset_delta = (offset_delta >> 1) as i32 ^ -((offset_delta & 1) as i32);
                let offset = facts.base_offset.wrapping_add(i64::from(offset_delta));
                let timestamp = base_timestamp.wrapping_add(timestamp_delta & timestamp_mask);
                if !FILTER || self.is_row(offset, timestamp) {
                    let row = if FILTER { added } else { read };
                    // Some more than the columns get, but no key or value can be larger. One row always fits.
                    if used_bytes + (end - position) > bytes_max && self.rows + row > 0 {
                        stop = Stop::Full;
                        break;
                    }
                    if has_keys {
                        if is_key_null {
                            keys.write_null(&mut key_writer, row);
                        } else {
                            let place = body_start + key_start;
                            keys.write(&mut key_writer, row, base.add(key_start), place, key_size);
                        }
                        used_bytes += key_size;
                    }
                    if has_values {
                        if is_value_null {
                            values.write_null(&mut value_writer, row);
                        } else {
                            let place = body_start + value_start;
                            values.write(&mut value_writer, row, base.add(value_start), place, value_size);
                        }
                        used_bytes += value_size;
                    }
                    if !MAIN {
                        if let Some(lengths) = &mut key_lengths {
                            lengths.push((!is_key_null).then_some(key_size));
                        }
                        if let Some(lengths) = &mut value_lengths {
                            lengths.push((!is_value_null).then_some(value_size));
                        }
                    }
                    if has_offsets {
                        offsets.add(row).write(offset);
                    }
                    if has_timestamps {
                        let micros = !MAIN && micros;
                        timestamps.add(row).write(if micros {
                            timestamp.saturating_mul(1000)
                        } else {
                            timestamp
                        });
                    }
                    if FILTER {
                        added += 1;
                    }
                }
                position = end;
                read += 1;
            }
        }
        if !FILTER {
            added = read;
            if read == rows_left && read < most {
                stop = Stop::Full;
            }
        }
        // SAFETY: the writers are those of these columns; `added` offsets and timestamps were written.
        unsafe {
            keys.accept(key_writer, if has_keys { added } else { 0 });
            values.accept(value_writer, if has_values { added } else { 0 });
            for column in [&mut self.offsets, &mut self.timestamps].into_iter().flatten() {
                column.advance(added);
            }
        }
        self.keys = has_keys.then_some(keys);
        self.values = has_values.then_some(values);
        (self.key_lengths, self.value_lengths) = (key_lengths, value_lengths);
        self.rows += added;
        self.used_bytes = used_bytes;
        if let Some(headers) = &mut self.headers {
            headers.fill_to(self.rows);
        }
        cursor.position = position;
        cursor.read += read;
        stop
    }
}

/// Reads an unsigned varint of up to five bytes and says where it ends; None when it is longer.
///
/// # Safety
/// Five bytes are readable at `base + at`.
#[inline(always)]
unsafe fn read_uvarint(base: *const u8, at: usize) -> Option<(u32, usize)> {
    // SAFETY: the caller.
    unsafe {
        let first = u32::from(*base.add(at));
        if first < 0x80 {
            return Some((first, at + 1));
        }
        let second = u32::from(*base.add(at + 1));
        if second < 0x80 {
            return Some(((first & 0x7f) | second << 7, at + 2));
        }
        let (raw, end) = read_rest(base, at, 5)?;
        Some((raw as u32, end))
    }
}

/// Reads a zigzag varlong of up to ten bytes and says where it ends; None when it is longer.
///
/// # Safety
/// Ten bytes are readable at `base + at`.
#[inline(always)]
unsafe fn read_varlong(base: *const u8, at: usize) -> Option<(i64, usize)> {
    // SAFETY: the caller.
    unsafe {
        let first = u64::from(*base.add(at));
        let (raw, end) = if first < 0x80 {
            (first, at + 1)
        } else {
            let second = u64::from(*base.add(at + 1));
            if second < 0x80 {
                ((first & 0x7f) | second << 7, at + 2)
            } else {
                read_rest(base, at, 10)?
            }
        };
        Some(((raw >> 1) as i64 ^ -((raw & 1) as i64), end))
    }
}

/// An integer of three bytes or more, up to `size_max`. By value in and out: a position behind a pointer
/// would have to live in memory through the whole loop.
///
/// # Safety
/// `size_max` bytes are readable at `base + at`.
#[inline(never)]
unsafe fn read_rest(base: *const u8, at: usize, size_max: usize) -> Option<(u64, usize)> {
    let mut raw = 0;
    for index in 0..size_max {
        // SAFETY: the caller.
        let byte = u64::from(unsafe { *base.add(at + index) });
        raw |= (byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((raw, at + index + 1));
        }
    }
    None
}
