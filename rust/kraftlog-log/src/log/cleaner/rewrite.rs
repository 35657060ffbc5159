//! A batch of which some records are kept: the same bytes that Kafka's `MemoryRecordsBuilder` would write, without
//! taking the records apart.
use std::ops::Range;

use super::keys::{record_timestamp, KeyedRecord};
use crate::batch::{
    attributes, update_crc, BatchView, TimestampType, HEADER_SIZE, LOG_OVERHEAD, MAGIC, NO_TIMESTAMP,
};
use crate::compression::{self, Codec};
use crate::varint::{read_varint, read_varlong, varint_size, varlong_size, write_varint, write_varlong};
use crate::{Error, Result};

/// The records of a batch that are kept, as runs of its uncompressed body.
#[derive(Debug, Default)]
pub(super) struct Kept {
    runs: Vec<Range<usize>>,
    pub(super) count: u32,
    pub(super) has_tombstones: bool,
    first_timestamp: i64,
    max_timestamp: i64,
}

impl Kept {
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.count = 0;
        self.has_tombstones = false;
        self.max_timestamp = NO_TIMESTAMP;
    }

    #[inline]
    pub(super) fn push(&mut self, range: Range<usize>, record: &KeyedRecord) {
        match self.runs.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.runs.push(range),
        }
        if self.count == 0 {
            self.first_timestamp = record.timestamp;
        }
        self.count += 1;
        self.has_tombstones |= !record.has_value;
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
    }

    pub(super) fn is_all(&self, batch: &BatchView<'_>) -> bool {
        i64::from(self.count) == i64::from(batch.record_count())
    }
}

/// Append to `out` the batch with the kept records, compressed as it was, with offset deltas, last offset, producer and
/// epoch as they were. `plain` is scratch memory.
///
/// # Errors
/// [`Error::Corrupt`] when it passes 2 GiB, or the codec's library fails.
pub(super) fn rebuild(
    batch: &BatchView<'_>,
    body: &[u8],
    kept: &Kept,
    delete_horizon_ms: Option<i64>,
    plain: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let codec = batch.codec().unwrap_or(Codec::None);
    let base_timestamp = delete_horizon_ms.unwrap_or(kept.first_timestamp);
    let start = out.len();
    out.extend_from_slice(batch.header().as_bytes());
    if codec == Codec::None {
        copy_records(batch, body, kept, base_timestamp, out)?;
    } else {
        plain.clear();
        copy_records(batch, body, kept, base_timestamp, plain)?;
        compression::compress(codec, None, plain, out).map_err(|error| batch.corrupt(error.to_string()))?;
    }
    let max_timestamp = match batch.timestamp_type() {
        TimestampType::CreateTime | TimestampType::NoTimestamp => kept.max_timestamp,
        TimestampType::LogAppendTime => batch.max_timestamp(),
    };
    let flags = attributes::COMPRESSION_MASK
        | attributes::TIMESTAMP_TYPE
        | attributes::TRANSACTIONAL
        | attributes::CONTROL;
    let horizon_flag = if delete_horizon_ms.is_some() { attributes::DELETE_HORIZON } else { 0 };
    finish(
        batch,
        out.get_mut(start..).unwrap_or_default(),
        Fields {
            attributes: batch.attributes() & flags | horizon_flag,
            base_timestamp,
            max_timestamp,
            record_count: kept.count,
        },
    )
}

/// The header alone, for the offset and the sequence that the batch has.
pub(super) fn empty_header(batch: &BatchView<'_>) -> [u8; HEADER_SIZE] {
    let mut header = *batch.header().as_bytes();
    let flags = attributes::TIMESTAMP_TYPE | attributes::TRANSACTIONAL | attributes::CONTROL;
    let fields = Fields {
        attributes: batch.attributes() & flags,
        base_timestamp: NO_TIMESTAMP,
        max_timestamp: batch.max_timestamp(),
        record_count: 0,
    };
    // 61 bytes are a header, and their length fits.
    let _ = finish(batch, &mut header, fields);
    header
}

struct Fields {
    attributes: i16,
    base_timestamp: i64,
    max_timestamp: i64,
    record_count: u32,
}

/// Make the header in front of `bytes`, which is that of `batch` yet, say what the batch has become.
fn finish(batch: &BatchView<'_>, bytes: &mut [u8], fields: Fields) -> Result<()> {
    let length = i32::try_from(bytes.len() - LOG_OVERHEAD)
        .map_err(|_| batch.corrupt("2 GiB or more are left of the batch after compaction"))?;
    let (header, body) = crate::batch::split_header_mut(bytes)?;
    put(header, 8, length.to_be_bytes());
    // What is left of a message set of the formats before goes on as a batch.
    put(header, 16, MAGIC.to_be_bytes());
    put(header, 21, fields.attributes.to_be_bytes());
    put(header, 27, fields.base_timestamp.to_be_bytes());
    put(header, 35, fields.max_timestamp.to_be_bytes());
    put(header, 57, fields.record_count.to_be_bytes());
    update_crc(header, body);
    Ok(())
}

fn put<const N: usize>(header: &mut [u8; HEADER_SIZE], at: usize, bytes: [u8; N]) {
    if let Some(field) = header.get_mut(at..at + N) {
        field.copy_from_slice(&bytes);
    }
}

/// Copy the kept records; those whose timestamp counts from another base now get another delta in front.
fn copy_records(
    batch: &BatchView<'_>,
    body: &[u8],
    kept: &Kept,
    base_timestamp: i64,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.reserve(kept.runs.iter().map(Range::len).sum());
    let is_same_base =
        batch.timestamp_type() == TimestampType::CreateTime && base_timestamp == batch.base_timestamp();
    for run in &kept.runs {
        let records = body.get(run.clone()).unwrap_or_default();
        if is_same_base {
            out.extend_from_slice(records);
        } else {
            copy_run(batch, records, base_timestamp, out).ok_or_else(|| {
                Error::corrupt(batch.position(), batch.base_offset(), "a record changed while it was copied")
            })?;
        }
    }
    Ok(())
}

/// As [`copy_records`] for records back to back, all of which were read once before: `None` cannot happen.
fn copy_run(batch: &BatchView<'_>, mut rest: &[u8], base_timestamp: i64, out: &mut Vec<u8>) -> Option<()> {
    while !rest.is_empty() {
        let (size, size_length) = read_varint(rest).ok()?;
        let end = size_length.checked_add(usize::try_from(size).ok()?)?;
        let (record, after) = rest.split_at_checked(end)?;
        rest = after;
        let fields = record.get(size_length + 1..)?;
        let (delta, delta_length) = read_varlong(fields).ok()?;
        let fields = fields.get(delta_length..)?;
        let (offset_delta, offset_length) = read_varint(fields).ok()?;
        let tail = fields.get(offset_length..)?;
        let delta = record_timestamp(batch, delta).wrapping_sub(base_timestamp);
        let size = 1 + varlong_size(delta) + varint_size(offset_delta) + tail.len();
        write_varint(out, i32::try_from(size).ok()?);
        out.push(0);
        write_varlong(out, delta);
        write_varint(out, offset_delta);
        out.extend_from_slice(tail);
    }
    Some(())
}
