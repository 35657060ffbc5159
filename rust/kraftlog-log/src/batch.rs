//! Record batch v2: a header view over borrowed bytes, iteration over a buffer, in-place edits.
//!
//! Layout (big endian), <https://kafka.apache.org/documentation/#recordbatch>:
//!
//! | bytes | field | | bytes | field |
//! |---|---|---|---|---|
//! | 0..8 | base offset | | 27..35 | base timestamp |
//! | 8..12 | length of what follows | | 35..43 | max timestamp |
//! | 12..16 | partition leader epoch | | 43..51 | producer id |
//! | 16 | magic | | 51..53 | producer epoch |
//! | 17..21 | CRC-32C of bytes 21.. | | 53..57 | base sequence |
//! | 21..23 | attributes | | 57..61 | record count |
//! | 23..27 | last offset delta | | 61.. | records, compressed as one block |
use crate::compression::{self, Bound, Codec};
use crate::crc::{crc32c, crc32c_append};
use crate::record::RecordIter;
use crate::{Error, Result};
use std::ops::Deref;

mod validate;
pub use validate::{single_batch, validate_produce_batch, ProduceCheck, ProduceRules, RecordOrigin};

/// Bytes of a v2 batch header.
pub const HEADER_SIZE: usize = 61;
/// Bytes in front of what the length field counts: base offset and length.
pub const LOG_OVERHEAD: usize = 12;
/// Bytes up to and with the magic byte: less cannot be judged.
pub const HEADER_SIZE_UP_TO_MAGIC: usize = 17;
/// The magic byte of the only format written since Kafka 3.0.
pub const MAGIC: i8 = 2;
/// Value of the length field of the smallest legacy batch; less is corrupt in every format.
const LENGTH_MIN_LEGACY: i32 = 14;
/// Value of the length field of a batch without records.
pub(crate) const LENGTH_MIN: i32 = (HEADER_SIZE - LOG_OVERHEAD) as i32;
/// First byte that the checksum covers.
const CRC_START: usize = 21;

/// Timestamp of a record or batch that has none.
pub const NO_TIMESTAMP: i64 = -1;
/// Producer id of a batch without one.
pub const NO_PRODUCER_ID: i64 = -1;
/// Sequence of a batch without one.
pub const NO_SEQUENCE: i32 = -1;

/// Bits of the attributes field.
pub mod attributes {
    /// Codec id.
    pub const COMPRESSION_MASK: i16 = 0x07;
    /// Set: LogAppendTime.
    pub const TIMESTAMP_TYPE: i16 = 0x08;
    /// Part of a transaction.
    pub const TRANSACTIONAL: i16 = 0x10;
    /// Holds control records.
    pub const CONTROL: i16 = 0x20;
    /// The base timestamp is the time after which tombstones of the batch may go.
    pub const DELETE_HORIZON: i16 = 0x40;
}

/// What the timestamps of a batch mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimestampType {
    /// Each record has the producer's time.
    #[default]
    CreateTime,
    /// All records have the time the leader appended them, in `max_timestamp`.
    LogAppendTime,
}

impl TimestampType {
    /// Kafka's name, as in `message.timestamp.type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateTime => "CreateTime",
            Self::LogAppendTime => "LogAppendTime",
        }
    }

    /// The type with Kafka's name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "CreateTime" => Some(Self::CreateTime),
            "LogAppendTime" => Some(Self::LogAppendTime),
            _ => None,
        }
    }
}

/// The 61 header bytes of a v2 batch, read in place.
#[derive(Debug, Clone, Copy)]
pub struct BatchHeader<'a>(&'a [u8; HEADER_SIZE]);

macro_rules! field {
    ($(#[$doc:meta])* $name:ident, $type:ty, $($index:literal),+) => {
        $(#[$doc])*
        #[inline]
        pub const fn $name(&self) -> $type {
            <$type>::from_be_bytes([$(self.0[$index]),+])
        }
    };
}

impl<'a> BatchHeader<'a> {
    /// A view of header bytes; nothing is checked.
    #[inline]
    pub const fn new(bytes: &'a [u8; HEADER_SIZE]) -> Self {
        Self(bytes)
    }

    /// The header bytes.
    #[inline]
    pub const fn as_bytes(&self) -> &'a [u8; HEADER_SIZE] {
        self.0
    }

    field!(
        /// Offset of the first record as written; kept by compaction when that record is gone.
        base_offset, i64, 0, 1, 2, 3, 4, 5, 6, 7
    );
    field!(
        /// Bytes after this field: [`size_bytes`](Self::size_bytes) less 12.
        batch_length, i32, 8, 9, 10, 11
    );
    field!(
        /// Epoch of the leader that appended the batch, -1 before it is appended.
        partition_leader_epoch, i32, 12, 13, 14, 15
    );
    field!(
        /// Format version, 2.
        magic, i8, 16
    );
    field!(
        /// CRC-32C of all from the attributes on, as stored.
        crc, u32, 17, 18, 19, 20
    );
    field!(
        /// Codec, timestamp type and flags; see [`attributes`].
        attributes, i16, 21, 22
    );
    field!(
        /// `last_offset` minus `base_offset`; kept by compaction when the last record is gone.
        last_offset_delta, i32, 23, 24, 25, 26
    );
    field!(
        /// What record timestamp deltas count from.
        base_timestamp, i64, 27, 28, 29, 30, 31, 32, 33, 34
    );
    field!(
        /// Largest record timestamp, or the append time.
        max_timestamp, i64, 35, 36, 37, 38, 39, 40, 41, 42
    );
    field!(
        /// -1 for a producer that is not idempotent.
        producer_id, i64, 43, 44, 45, 46, 47, 48, 49, 50
    );
    field!(
        /// -1 for a producer that is not idempotent.
        producer_epoch, i16, 51, 52
    );
    field!(
        /// Sequence of the first record, -1 when there is none.
        base_sequence, i32, 53, 54, 55, 56
    );
    field!(
        /// Records in the batch; 0 after compaction removed all.
        record_count, i32, 57, 58, 59, 60
    );

    /// Bytes of the whole batch, header included.
    #[inline]
    pub const fn size_bytes(&self) -> usize {
        LOG_OVERHEAD.wrapping_add(self.batch_length() as usize)
    }

    /// Offset of the last record as written, inclusive.
    #[inline]
    pub const fn last_offset(&self) -> i64 {
        self.base_offset().wrapping_add(self.last_offset_delta() as i64)
    }

    /// Offset after the batch.
    #[inline]
    pub const fn next_offset(&self) -> i64 {
        self.last_offset().wrapping_add(1)
    }

    /// Sequence of the last record, or -1; sequences wrap from 2^31-1 to 0.
    #[inline]
    pub const fn last_sequence(&self) -> i32 {
        increment_sequence(self.base_sequence(), self.last_offset_delta())
    }

    /// The codec, or the unknown id in the attributes.
    #[inline]
    pub const fn codec(&self) -> std::result::Result<Codec, u8> {
        let id = (self.attributes() & attributes::COMPRESSION_MASK) as u8;
        match Codec::from_id(id) {
            Some(codec) => Ok(codec),
            None => Err(id),
        }
    }

    /// What the timestamps mean.
    #[inline]
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.attributes() & attributes::TIMESTAMP_TYPE != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Part of a transaction.
    #[inline]
    pub const fn is_transactional(&self) -> bool {
        self.attributes() & attributes::TRANSACTIONAL != 0
    }

    /// Holds control records.
    #[inline]
    pub const fn is_control(&self) -> bool {
        self.attributes() & attributes::CONTROL != 0
    }

    /// True for idempotent and transactional producers.
    #[inline]
    pub const fn has_producer_id(&self) -> bool {
        self.producer_id() > NO_PRODUCER_ID
    }

    /// When tombstones of the batch may go, if compaction has set it (KIP-534).
    #[inline]
    pub const fn delete_horizon_ms(&self) -> Option<i64> {
        if self.attributes() & attributes::DELETE_HORIZON != 0 {
            Some(self.base_timestamp())
        } else {
            None
        }
    }
}

/// `sequence` plus `increment`, wrapping from 2^31-1 to 0; -1 stays -1.
#[inline]
pub const fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    if sequence < 0 {
        return NO_SEQUENCE;
    }
    ((sequence as i64 + increment as i64) & 0x7fff_ffff) as i32
}

/// A whole v2 batch in a buffer. Its length and magic are checked, its checksum and records are not.
#[derive(Debug, Clone, Copy)]
pub struct BatchView<'a> {
    header: BatchHeader<'a>,
    bytes: &'a [u8],
    position: u64,
}

impl<'a> Deref for BatchView<'a> {
    type Target = BatchHeader<'a>;

    #[inline]
    fn deref(&self) -> &BatchHeader<'a> {
        &self.header
    }
}

impl<'a> BatchView<'a> {
    /// The one batch that `bytes` is, from the first byte to the last.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it is not whole, has another magic, or bytes follow it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        match next_batch(bytes, 0)? {
            Some(batch) if batch.bytes.len() == bytes.len() => Ok(batch),
            Some(batch) => {
                Err(batch.corrupt(format!("batch size {} in a buffer of {}", batch.bytes.len(), bytes.len())))
            }
            None => Err(Error::corrupt(0, -1, format!("{} bytes do not hold a whole batch", bytes.len()))),
        }
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> BatchHeader<'a> {
        self.header
    }

    /// All bytes of the batch.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The records as stored, compressed or not.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.bytes.get(HEADER_SIZE..).unwrap_or_default()
    }

    /// Where the batch starts in the buffer it was found in.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where the batch ends in the buffer it was found in.
    #[inline]
    pub fn end_position(&self) -> u64 {
        self.position + self.bytes.len() as u64
    }

    /// The checksum that the bytes have, which should equal [`crc`](BatchHeader::crc).
    #[inline]
    pub fn computed_crc(&self) -> u32 {
        crc32c(self.bytes.get(CRC_START..).unwrap_or_default())
    }

    /// # Errors
    /// [`Error::Corrupt`] naming both checksums when they differ.
    #[inline]
    pub fn validate_crc(&self) -> Result<()> {
        let computed = self.computed_crc();
        if computed == self.crc() {
            return Ok(());
        }
        Err(self.corrupt(format!("CRC {:#010x} stored, {computed:#010x} computed", self.crc())))
    }

    /// The records uncompressed: the body itself, or `scratch` after decompressing into it.
    /// `scratch` is overwritten and may be used again for the next batch.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an unknown codec, bytes that do not decompress, or more than `bound`.
    #[inline]
    pub fn uncompressed_body<'s>(&self, bound: Bound, scratch: &'s mut Vec<u8>) -> Result<&'s [u8]>
    where
        'a: 's,
    {
        match self.codec() {
            Ok(Codec::None) => Ok(self.body()),
            // As in Kafka, a batch that compaction emptied is not looked into.
            Ok(_) if self.record_count() == 0 => Ok(&[]),
            Ok(codec) => match compression::decompress(codec, self.body(), bound, scratch) {
                Ok(()) => Ok(scratch),
                Err(error) => Err(self.corrupt(error.to_string())),
            },
            Err(id) => Err(self.corrupt(format!("unknown compression codec {id}"))),
        }
    }

    /// The records, borrowed from the batch or from `scratch`.
    ///
    /// # Errors
    /// As [`uncompressed_body`](Self::uncompressed_body); [`Error::Corrupt`] for another magic or a
    /// negative record count. Each item may be an error too, and is then the last one.
    #[inline]
    pub fn records<'s>(&self, scratch: &'s mut Vec<u8>) -> Result<RecordIter<'s>>
    where
        'a: 's,
    {
        if self.magic() != MAGIC {
            return Err(self.corrupt(format!("magic {} where records need 2", self.magic())));
        }
        RecordIter::new(
            self,
            if self.record_count() > 0 { self.uncompressed_body(Bound::default(), scratch)? } else { &[] },
        )
    }

    /// An [`Error::Corrupt`] at this batch.
    #[cold]
    pub fn corrupt(&self, reason: impl Into<String>) -> Error {
        Error::corrupt(self.position, self.base_offset(), reason)
    }
}

/// Whom a length of bytes is read for, since Kafka's two readers stop at different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Bytes of a request, response or message: `MemoryRecords`. Magic above 2 is corrupt.
    Memory,
    /// Bytes of a segment file: `FileRecords`. Magic above 2 is left to whoever reads the records.
    File,
}

/// The batch at `position` of `buffer`, or None when what remains is not a whole batch.
///
/// # Errors
/// [`Error::Corrupt`] for a length that no batch has, or a magic other than 2; the error names legacy
/// formats 0 and 1. Kafka finds some of these later, when it validates or reads the batch.
#[inline]
pub fn next_batch(buffer: &[u8], position: usize) -> Result<Option<BatchView<'_>>> {
    next_batch_from(Source::Memory, buffer, position)
}

/// [`next_batch`] with the rules of `source`.
///
/// # Errors
/// As [`next_batch`], but magic 3 to 127 passes in a file, as the magic byte is outside the checksum and
/// Kafka's recovery keeps such batches.
#[inline]
pub fn next_batch_from(source: Source, buffer: &[u8], position: usize) -> Result<Option<BatchView<'_>>> {
    let rest = buffer.get(position..).unwrap_or_default();
    let Some(header) = rest.first_chunk::<HEADER_SIZE>() else {
        return short_batch(source, rest, position);
    };
    let header = BatchHeader(header);
    let length = header.batch_length();
    let whole = rest.get(..header.size_bytes());
    if length < LENGTH_MIN || header.magic() != MAGIC {
        let frame = Frame { position, base_offset: header.base_offset(), length, is_whole: whole.is_some() };
        frame.check(source, Some(header.magic()))?;
    }
    Ok(whole.map(|bytes| BatchView { header, bytes, position: position as u64 }))
}

/// Fewer bytes than a header: no batch, but a bad length or magic is still worth an error.
#[cold]
fn short_batch(source: Source, rest: &[u8], position: usize) -> Result<Option<BatchView<'_>>> {
    let readable = match source {
        Source::Memory => LOG_OVERHEAD,
        // FileLogInputStream wants one byte more than the header up to magic before it looks.
        Source::File => HEADER_SIZE_UP_TO_MAGIC + 1,
    };
    let (Some(base_offset), Some(length)) =
        (rest.first_chunk(), rest.get(8..LOG_OVERHEAD).and_then(<[u8]>::first_chunk))
    else {
        return Ok(None);
    };
    if rest.len() < readable {
        return Ok(None);
    }
    let length = i32::from_be_bytes(*length);
    let frame = Frame {
        position,
        base_offset: i64::from_be_bytes(*base_offset),
        length,
        is_whole: usize::try_from(length).is_ok_and(|length| LOG_OVERHEAD + length <= rest.len()),
    };
    frame.check(source, rest.get(HEADER_SIZE_UP_TO_MAGIC - 1).map(|&byte| byte as i8))?;
    Ok(None)
}

/// A batch to refuse, if what its first bytes say is wrong enough.
struct Frame {
    position: usize,
    base_offset: i64,
    length: i32,
    is_whole: bool,
}

impl Frame {
    /// The order of the checks is that of Kafka's two readers; those after `is_whole` are ours.
    #[cold]
    fn check(&self, source: Source, magic: Option<i8>) -> Result<()> {
        let length = self.length;
        let reason = match magic {
            _ if length < LENGTH_MIN_LEGACY => format!("batch length {length}, the least is {LENGTH_MIN}"),
            Some(magic) if source == Source::Memory && !(0..=MAGIC).contains(&magic) => {
                format!("magic {magic} is unknown")
            }
            _ if !self.is_whole => return Ok(()),
            Some(magic) if magic < 0 => format!("magic {magic} is unknown"),
            Some(magic @ (0 | 1)) => {
                format!("magic {magic}: the message format before record batches is not supported")
            }
            _ if length < LENGTH_MIN => format!("batch length {length}, the least is {LENGTH_MIN}"),
            _ => return Ok(()),
        };
        Err(Error::corrupt(self.position as u64, self.base_offset, reason))
    }
}

/// The batches of a buffer one after the other; ends before a truncated one, or after an error.
#[derive(Debug, Clone)]
pub struct Batches<'a> {
    source: Source,
    buffer: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    /// Batches of bytes in memory, from their start.
    pub fn new(buffer: &'a [u8]) -> Self {
        Self::with_source(Source::Memory, buffer)
    }

    /// Batches with the rules of `source`.
    pub fn with_source(source: Source, buffer: &'a [u8]) -> Self {
        Self { source, buffer, position: 0, failed: false }
    }

    /// Where the next batch starts: the end of the last one.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let found = next_batch_from(self.source, self.buffer, self.position);
        match &found {
            Ok(Some(batch)) => self.position += batch.bytes.len(),
            Ok(None) => {}
            Err(_) => self.failed = true,
        }
        found.transpose()
    }
}

/// Sets the base offset; the checksum does not cover it.
#[inline]
pub fn set_base_offset(header: &mut [u8; HEADER_SIZE], base_offset: i64) {
    put(header, 0, base_offset.to_be_bytes());
}

/// Sets the partition leader epoch; the checksum does not cover it.
#[inline]
pub fn set_partition_leader_epoch(header: &mut [u8; HEADER_SIZE], epoch: i32) {
    put(header, 12, epoch.to_be_bytes());
}

/// Makes the batch one with LogAppendTime and the time `now_ms`, and its checksum right again.
/// `body` is what follows the header.
pub fn set_log_append_time(header: &mut [u8; HEADER_SIZE], body: &[u8], now_ms: i64) {
    set_max_timestamp(header, body, TimestampType::LogAppendTime, now_ms);
}

/// Sets timestamp type and largest timestamp, and makes the checksum right again if that changes
/// anything. `body` is what follows the header.
pub fn set_max_timestamp(
    header: &mut [u8; HEADER_SIZE],
    body: &[u8],
    timestamp_type: TimestampType,
    max_timestamp: i64,
) {
    let view = BatchHeader(header);
    if view.timestamp_type() == timestamp_type && view.max_timestamp() == max_timestamp {
        return;
    }
    let attributes = match timestamp_type {
        TimestampType::CreateTime => view.attributes() & !attributes::TIMESTAMP_TYPE,
        TimestampType::LogAppendTime => view.attributes() | attributes::TIMESTAMP_TYPE,
    };
    put(header, 21, attributes.to_be_bytes());
    put(header, 35, max_timestamp.to_be_bytes());
    update_crc(header, body);
}

/// Computes the checksum of header and `body` and stores it.
pub fn update_crc(header: &mut [u8; HEADER_SIZE], body: &[u8]) {
    let crc = crc32c_append(crc32c(header.get(CRC_START..).unwrap_or_default()), body);
    put(header, 17, crc.to_be_bytes());
}

#[inline]
fn put<const N: usize>(header: &mut [u8; HEADER_SIZE], at: usize, bytes: [u8; N]) {
    if let Some(field) = header.get_mut(at..at + N) {
        field.copy_from_slice(&bytes);
    }
}

/// A batch that may be edited: its header and what follows.
///
/// # Errors
/// [`Error::Invalid`] when there are fewer bytes than a header.
pub fn split_header_mut(batch: &mut [u8]) -> Result<(&mut [u8; HEADER_SIZE], &mut [u8])> {
    batch.split_first_chunk_mut().ok_or_else(|| Error::Invalid("a batch has at least 61 bytes".to_owned()))
}

#[cfg(test)]
mod tests;
