//! Records to batch bytes. For codec none the bytes equal those of Kafka's `MemoryRecordsBuilder`.
use crate::batch::{
    attributes, increment_sequence, update_crc, BatchHeader, TimestampType, HEADER_SIZE, LOG_OVERHEAD, MAGIC,
    NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP,
};
use crate::byte_pool;
use crate::compression::{self, check_level, Codec, CodecError};
use crate::varint::{unsigned_varint_size, varint_size, varlong_size, write_varint, zigzag32, zigzag64};
use crate::{Error, Result};

mod columns;
pub use columns::{encode_columns, Column, Slices, Timestamps};

/// Header fields of a batch to build, and how to compress it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchOptions {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Epoch of the appending leader, -1 for a batch that is yet to be appended.
    pub partition_leader_epoch: i32,
    /// Compression of the records.
    pub codec: Codec,
    /// Level of the codec; None is Kafka's default.
    pub level: Option<i32>,
    /// Whose time the records have.
    pub timestamp_type: TimestampType,
    /// Largest timestamp in the header when the type is LogAppendTime, in milliseconds.
    pub log_append_time_ms: i64,
    /// -1 without idempotence.
    pub producer_id: i64,
    /// -1 without idempotence.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 without idempotence.
    pub base_sequence: i32,
    /// Part of a transaction.
    pub is_transactional: bool,
    /// Holds control records.
    pub is_control: bool,
    /// Base timestamp and flag of a batch whose tombstones may go after that time (KIP-534).
    pub delete_horizon_ms: Option<i64>,
    /// Last offset delta of the header when it is not that of the last record.
    pub last_offset_delta: Option<i32>,
    /// Largest timestamp of the header when it is not that of the records, in milliseconds.
    pub max_timestamp_ms: Option<i64>,
}

impl Default for BatchOptions {
    /// An uncompressed batch at offset 0 of a producer without idempotence.
    fn default() -> Self {
        Self {
            base_offset: 0,
            partition_leader_epoch: -1,
            codec: Codec::None,
            level: None,
            timestamp_type: TimestampType::CreateTime,
            log_append_time_ms: NO_TIMESTAMP,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: -1,
            base_sequence: NO_SEQUENCE,
            is_transactional: false,
            is_control: false,
            delete_horizon_ms: None,
            last_offset_delta: None,
            max_timestamp_ms: None,
        }
    }
}

impl BatchOptions {
    fn attributes(&self) -> i16 {
        let flag = |is_set: bool, bit: i16| if is_set { bit } else { 0 };
        self.codec as i16
            | flag(self.timestamp_type == TimestampType::LogAppendTime, attributes::TIMESTAMP_TYPE)
            | flag(self.is_transactional, attributes::TRANSACTIONAL)
            | flag(self.is_control, attributes::CONTROL)
            | flag(self.delete_horizon_ms.is_some(), attributes::DELETE_HORIZON)
    }
}

/// A header of a record to write: its key, and its value or null.
pub type HeaderRef<'a> = (&'a [u8], Option<&'a [u8]>);

/// Collects records and turns them into batches, one behind the other in one buffer.
#[derive(Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// Finished batches, then header space and uncompressed records of the current one.
    out: Vec<u8>,
    batch_start: usize,
    base_timestamp: i64,
    max_timestamp: i64,
    last_offset_delta: i32,
    record_count: i32,
    /// Reused for compressed records.
    compressed: Vec<u8>,
}

impl BatchBuilder {
    /// A builder without records.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a level that the codec does not have.
    pub fn new(options: BatchOptions) -> Result<Self> {
        Self::with_buffer(options, Vec::new())
    }

    /// A builder that writes into `buffer`, whose content is dropped and whose capacity is used.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a level that the codec does not have.
    pub fn with_buffer(options: BatchOptions, mut buffer: Vec<u8>) -> Result<Self> {
        check_level(options.codec, options.level).map_err(invalid)?;
        buffer.clear();
        let mut builder = Self {
            options,
            out: buffer,
            batch_start: 0,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            last_offset_delta: -1,
            record_count: 0,
            compressed: Vec::new(),
        };
        builder.begin();
        Ok(builder)
    }

    /// Records of the current batch.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// Bytes of the current batch before compression, header included.
    pub fn batch_bytes(&self) -> usize {
        self.out.len() - self.batch_start
    }

    /// Makes room for `additional` bytes of records.
    pub fn reserve(&mut self, additional: usize) {
        self.out.reserve(additional);
    }

    /// Adds a record after the last one.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a length or count passes 31 bits; the builder is then as before.
    #[inline]
    pub fn append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) -> Result<()> {
        self.append_at(self.last_offset_delta.wrapping_add(1), timestamp, key, value, headers)
    }

    /// Adds a record with an offset delta of its own, as compaction leaves them.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the delta is not above the last one, or a length or count passes 31 bits; the
    /// builder is then as before.
    #[inline]
    pub fn append_at(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) -> Result<()> {
        if offset_delta <= self.last_offset_delta {
            return Err(delta_order(offset_delta, self.last_offset_delta));
        }
        if self.record_count == 0 && self.options.delete_horizon_ms.is_none() {
            self.base_timestamp = timestamp;
        }
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp);
        let mut size = 1
            + varlong_size(timestamp_delta)
            + varint_size(offset_delta)
            + field_size(key)
            + field_size(value);
        size += if headers.is_empty() { 1 } else { headers_size(headers) };
        if self.batch_bytes() + size >= BATCH_SIZE_MAX {
            return Err(too_large());
        }
        // What is written below is at most this much, so the buffer grows once.
        self.out.reserve(size + 2 * Prefix::SIZE);
        let mut prefix = Prefix::new();
        prefix.put(zigzag32(size as i32).into());
        prefix.byte(0);
        prefix.put(zigzag64(timestamp_delta));
        prefix.put(zigzag32(offset_delta).into());
        prefix.put(length_prefix(key));
        if let Some(key) = key {
            prefix.flush(&mut self.out);
            self.out.extend_from_slice(key);
        }
        prefix.put(length_prefix(value));
        prefix.flush(&mut self.out);
        if let Some(value) = value {
            self.out.extend_from_slice(value);
        }
        if headers.is_empty() {
            self.out.push(0);
        } else {
            write_headers(&mut self.out, headers);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.last_offset_delta = offset_delta;
        self.record_count += 1;
        Ok(())
    }

    /// Adds a record without headers, in a new batch if it would take the current one past `batch_bytes_max`.
    ///
    /// # Errors
    /// As [`append`](Self::append) and [`next_batch`](Self::next_batch).
    #[inline]
    pub fn append_within(
        &mut self,
        batch_bytes_max: Option<usize>,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<()> {
        if let Some(most) = batch_bytes_max {
            let size = Prefix::SIZE + 1 + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
            if self.record_count > 0 && self.batch_bytes() + size > most {
                self.next_batch()?;
            }
        }
        self.append(timestamp, key, value, &[])
    }

    /// Ends the current batch, if it has records, and begins one at the offset and sequence after it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the codec's library fails, which takes more memory than there is.
    pub fn next_batch(&mut self) -> Result<()> {
        if self.record_count == 0 {
            return Ok(());
        }
        self.end()?;
        let used = self.options.last_offset_delta.unwrap_or(self.last_offset_delta);
        self.options.base_offset = self.options.base_offset.wrapping_add(i64::from(used) + 1);
        self.options.base_sequence = increment_sequence(self.options.base_sequence, used.wrapping_add(1));
        self.begin();
        Ok(())
    }

    /// Ends the current batch, if it has records, and begins one with other header fields.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a level that the codec does not have, or when the codec's library fails.
    pub fn begin_batch(&mut self, options: BatchOptions) -> Result<()> {
        check_level(options.codec, options.level).map_err(invalid)?;
        if self.record_count == 0 {
            self.out.truncate(self.batch_start);
        } else {
            self.end()?;
        }
        self.options = options;
        self.begin();
        Ok(())
    }

    /// Bytes of finished batches.
    pub fn finished_bytes(&self) -> usize {
        self.batch_start
    }

    /// The finished batches. A current batch without records is left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the codec's library fails, which takes more memory than there is.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        if self.record_count == 0 {
            self.out.truncate(self.batch_start);
        } else {
            self.end()?;
        }
        Ok(self.out)
    }

    fn begin(&mut self) {
        self.batch_start = self.out.len();
        self.out.extend_from_slice(&[0; HEADER_SIZE]);
        self.base_timestamp = self.options.delete_horizon_ms.unwrap_or(NO_TIMESTAMP);
        self.max_timestamp = NO_TIMESTAMP;
        self.last_offset_delta = -1;
        self.record_count = 0;
    }

    /// The current batch in memory of its own, without its checksum; the next one begins at the same offset. Records that
    /// do not get smaller by compression stay as they are, and the header says so. None when there are no records.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the codec's library fails, which takes more memory than there is, or when there are
    /// finished batches.
    pub fn take_batch(&mut self) -> Result<Option<Vec<u8>>> {
        if self.batch_start != 0 {
            return Err(Error::Invalid("batches were finished in the same buffer".to_owned()));
        }
        if self.record_count == 0 {
            return Ok(None);
        }
        self.compressed.clear();
        if self.options.codec != Codec::None {
            if self.compressed.capacity() == 0 {
                self.compressed = byte_pool::take(self.out.len());
            }
            self.compressed.extend_from_slice(&[0; HEADER_SIZE]);
            let records = self.out.get(HEADER_SIZE..).unwrap_or_default();
            compression::compress(self.options.codec, self.options.level, records, &mut self.compressed)
                .map_err(invalid)?;
        }
        let summary = self.summary();
        let is_smaller = (HEADER_SIZE..self.out.len()).contains(&self.compressed.len());
        let batch = if is_smaller {
            write_fields(&self.options, &summary, &mut self.compressed)?;
            let mut batch = byte_pool::take(self.compressed.len());
            batch.extend_from_slice(&self.compressed);
            self.out.clear();
            batch
        } else {
            let options = BatchOptions { codec: Codec::None, ..self.options };
            write_fields(&options, &summary, &mut self.out)?;
            let room = self.out.capacity();
            let mut batch = std::mem::replace(&mut self.out, byte_pool::take(room));
            if batch.capacity() / 2 > batch.len() {
                batch.shrink_to_fit();
            }
            batch
        };
        self.begin();
        Ok(Some(batch))
    }

    /// Gives the memory to the pool, records that were not taken with it.
    pub fn recycle(self) {
        byte_pool::give(self.out);
        byte_pool::give(self.compressed);
    }

    fn end(&mut self) -> Result<()> {
        if self.options.codec != Codec::None {
            let records_start = self.batch_start + HEADER_SIZE;
            let records = self.out.get(records_start..).unwrap_or_default();
            self.compressed.clear();
            compression::compress(self.options.codec, self.options.level, records, &mut self.compressed)
                .map_err(invalid)?;
            self.out.truncate(records_start);
            self.out.extend_from_slice(&self.compressed);
        }
        let summary = self.summary();
        let batch = self.out.get_mut(self.batch_start..).unwrap_or_default();
        write_header(&self.options, &summary, batch)
    }

    fn summary(&self) -> Summary {
        let options = &self.options;
        let max_timestamp = match options.timestamp_type {
            TimestampType::CreateTime | TimestampType::NoTimestamp => self.max_timestamp,
            TimestampType::LogAppendTime => options.log_append_time_ms,
        };
        Summary {
            last_offset_delta: options.last_offset_delta.unwrap_or(self.last_offset_delta),
            base_timestamp: self.base_timestamp,
            max_timestamp: options.max_timestamp_ms.unwrap_or(max_timestamp),
            record_count: self.record_count,
        }
    }
}

/// A header without records, as compaction leaves it to keep a producer's last sequence. The attributes have
/// no codec; `last_offset_delta` and `max_timestamp_ms` of the options are what the batch had.
///
/// # Errors
/// [`Error::Invalid`] when the options have no last offset delta.
pub fn empty_batch(options: &BatchOptions) -> Result<[u8; HEADER_SIZE]> {
    let Some(last_offset_delta) = options.last_offset_delta else {
        return Err(Error::Invalid("a batch without records needs a last offset delta".to_owned()));
    };
    let summary = Summary {
        last_offset_delta,
        base_timestamp: options.delete_horizon_ms.unwrap_or(NO_TIMESTAMP),
        max_timestamp: options.max_timestamp_ms.unwrap_or(NO_TIMESTAMP),
        record_count: 0,
    };
    let mut header = [0; HEADER_SIZE];
    write_header(&BatchOptions { codec: Codec::None, ..*options }, &summary, &mut header)?;
    Ok(header)
}

/// Kafka's sizes are int32; a batch stays so far below 2^31 that a record's length prefix fits too.
const BATCH_SIZE_MAX: usize = i32::MAX as usize - 64;

/// The header fields that follow from the records.
struct Summary {
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    record_count: i32,
}

/// Writes the header of `batch`, whose records are in place, with length and checksum.
fn write_header(options: &BatchOptions, summary: &Summary, batch: &mut [u8]) -> Result<()> {
    write_fields(options, summary, batch)?;
    let (header, body) = crate::batch::split_header_mut(batch)?;
    update_crc(header, body);
    Ok(())
}

/// Writes the header of `batch`, whose records are in place; the checksum is 0.
fn write_fields(options: &BatchOptions, summary: &Summary, batch: &mut [u8]) -> Result<()> {
    let length = i32::try_from(batch.len() - LOG_OVERHEAD).map_err(|_| too_large())?;
    let (header, _) = crate::batch::split_header_mut(batch)?;
    let mut rest = header.as_mut_slice();
    let mut put = |bytes: &[u8]| {
        if let Some((field, after)) = std::mem::take(&mut rest).split_at_mut_checked(bytes.len()) {
            field.copy_from_slice(bytes);
            rest = after;
        }
    };
    put(&options.base_offset.to_be_bytes());
    put(&length.to_be_bytes());
    put(&options.partition_leader_epoch.to_be_bytes());
    put(&MAGIC.to_be_bytes());
    put(&[0; 4]);
    put(&options.attributes().to_be_bytes());
    put(&summary.last_offset_delta.to_be_bytes());
    put(&summary.base_timestamp.to_be_bytes());
    put(&summary.max_timestamp.to_be_bytes());
    put(&options.producer_id.to_be_bytes());
    put(&options.producer_epoch.to_be_bytes());
    put(&options.base_sequence.to_be_bytes());
    put(&summary.record_count.to_be_bytes());
    debug_assert_eq!(BatchHeader::new(header).record_count(), summary.record_count);
    Ok(())
}

/// Small integers of a record, gathered so that they reach the buffer in one piece.
struct Prefix {
    bytes: [u8; Self::SIZE],
    length: usize,
}

impl Prefix {
    /// Record size, attributes, timestamp delta, offset delta, key length and value length take at most 31
    /// bytes; a power of two lets the index be masked instead of checked.
    const SIZE: usize = 32;

    #[inline(always)]
    fn new() -> Self {
        Self { bytes: [0; Self::SIZE], length: 0 }
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        self.bytes[self.length % Self::SIZE] = byte;
        self.length += 1;
    }

    #[inline(always)]
    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// Appends what was gathered: copying all bytes, a size the compiler knows, and cutting off the rest
    /// takes less than to copy just the right number.
    #[inline(always)]
    fn flush(&mut self, out: &mut Vec<u8>) {
        let end = out.len() + self.length;
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
        self.length = 0;
    }
}

#[inline(always)]
fn length_prefix(field: Option<&[u8]>) -> u64 {
    match field {
        // Zigzag of a length that `append` has found to fit.
        Some(bytes) => (bytes.len() as u64) << 1,
        None => 1,
    }
}

#[inline(always)]
fn field_size(field: Option<&[u8]>) -> usize {
    match field {
        // A length that does not fit makes the batch too large whatever its prefix takes.
        Some(bytes) => unsigned_varint_size((bytes.len() as u32) << 1) + bytes.len(),
        None => 1,
    }
}

#[cold]
fn headers_size(headers: &[HeaderRef<'_>]) -> usize {
    let each = |&(key, value): &HeaderRef<'_>| field_size(Some(key)) + field_size(value);
    unsigned_varint_size((headers.len() as u32) << 1) + headers.iter().map(each).sum::<usize>()
}

fn write_headers(out: &mut Vec<u8>, headers: &[HeaderRef<'_>]) {
    write_varint(out, headers.len() as i32);
    for (key, value) in headers {
        write_varint(out, key.len() as i32);
        out.extend_from_slice(key);
        write_varint(out, value.map_or(-1, |value| value.len() as i32));
        out.extend_from_slice(value.unwrap_or_default());
    }
}

#[cold]
fn too_large() -> Error {
    Error::Invalid("a record batch stays below 2 GiB".to_owned())
}

#[cold]
fn delta_order(offset_delta: i32, last: i32) -> Error {
    Error::Invalid(format!(
        "offset delta {offset_delta} after {last}: they must grow from 0 on and fit 31 bits"
    ))
}

fn invalid(error: CodecError) -> Error {
    Error::Invalid(error.to_string())
}

#[cfg(test)]
mod tests;
