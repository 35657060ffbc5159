//! Record batch v2: a header view over borrowed bytes, iteration over a buffer, in-place edits. Entries of the
//! formats before it are batches too: see `legacy`.
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
use crate::legacy::{self, is_legacy};
use crate::record::RecordIter;
use crate::{Error, Result};
use std::marker::PhantomData;
use std::ops::Deref;

mod find;
mod validate;
pub(crate) use find::LENGTH_MIN;
pub use find::{next_batch, next_batch_from, next_batch_shallow, Batches, Source};
pub use validate::{single_batch, validate_produce_batch, ProduceCheck, ProduceRules, RecordOrigin};

/// Bytes of a v2 batch header.
pub const HEADER_SIZE: usize = 61;
/// Bytes in front of what the length field counts: base offset and length.
pub const LOG_OVERHEAD: usize = 12;
/// Bytes up to and with the magic byte: less cannot be judged.
pub const HEADER_SIZE_UP_TO_MAGIC: usize = 17;
/// The magic byte of the only format written since Kafka 3.0.
pub const MAGIC: i8 = 2;
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
    /// Bits with a meaning.
    pub const KNOWN: i16 = 0x7f;
}

/// What the timestamps of a batch mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimestampType {
    /// Each record has the producer's time.
    #[default]
    CreateTime,
    /// All records have the time the leader appended them, in `max_timestamp`.
    LogAppendTime,
    /// Messages of format v0 have no time. No topic is configured so.
    NoTimestamp,
}

impl TimestampType {
    /// Kafka's name, as in `message.timestamp.type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateTime => "CreateTime",
            Self::LogAppendTime => "LogAppendTime",
            Self::NoTimestamp => "NoTimestampType",
        }
    }

    /// Kafka's number: 0 CreateTime, 1 LogAppendTime, -1 none.
    pub const fn id(self) -> i32 {
        match self {
            Self::CreateTime => 0,
            Self::LogAppendTime => 1,
            Self::NoTimestamp => -1,
        }
    }

    /// The type with a name that `message.timestamp.type` takes.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "CreateTime" => Some(Self::CreateTime),
            "LogAppendTime" => Some(Self::LogAppendTime),
            _ => None,
        }
    }
}

/// The 61 header bytes of a v2 batch, or those that say the same of an entry of an older format.
#[derive(Debug, Clone, Copy)]
pub struct BatchHeader<'a> {
    /// A copy, since an older header has no such bytes to refer to; the compiler sees through it.
    bytes: [u8; HEADER_SIZE],
    source: PhantomData<&'a [u8]>,
}

macro_rules! field {
    ($(#[$doc:meta])* $name:ident, $type:ty, $($index:literal),+) => {
        $(#[$doc])*
        #[inline]
        pub const fn $name(&self) -> $type {
            <$type>::from_be_bytes([$(self.bytes[$index]),+])
        }
    };
}

impl<'a> BatchHeader<'a> {
    /// A view of header bytes; nothing is checked.
    #[inline]
    pub const fn new(bytes: &'a [u8; HEADER_SIZE]) -> Self {
        Self { bytes: *bytes, source: PhantomData }
    }

    /// The header bytes in the layout of v2.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; HEADER_SIZE] {
        &self.bytes
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
        /// Format version: 2; 0 and 1 for the formats before record batches.
        magic, i8, 16
    );
    field!(
        /// CRC-32C of all from the attributes on, as stored; a CRC-32 before v2.
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

    /// The same header, bound to no bytes.
    const fn outlive<'b>(self) -> BatchHeader<'b> {
        BatchHeader { bytes: self.bytes, source: PhantomData }
    }

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
        } else if self.magic() == 0 {
            TimestampType::NoTimestamp
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

/// A whole batch in a buffer. Its length and magic are checked, its checksum and records are not.
///
/// An outermost entry of the formats before v2 is a batch of one record, or of as many as are compressed in it.
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

    /// The records as stored, compressed or not. Before v2, the compressed message set, or the whole entry.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        if is_legacy(self.magic()) {
            return legacy::body(self.bytes);
        }
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
        if is_legacy(self.magic()) {
            return legacy::computed_crc(self.bytes);
        }
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
    /// `scratch` is overwritten and may be used again for the next batch. Messages of the formats before v2 come
    /// as v2 records.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an unknown codec, bytes that do not decompress, or more than `bound`.
    #[inline]
    pub fn uncompressed_body<'s>(&self, bound: Bound, scratch: &'s mut Vec<u8>) -> Result<&'s [u8]>
    where
        'a: 's,
    {
        if is_legacy(self.magic()) {
            legacy::transcode(self, bound, false, scratch)?;
            return Ok(scratch);
        }
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
            return self.records_of_other_format(scratch);
        }
        RecordIter::new(
            self,
            if self.record_count() > 0 { self.uncompressed_body(Bound::default(), scratch)? } else { &[] },
        )
    }

    #[cold]
    fn records_of_other_format<'s>(&self, scratch: &'s mut Vec<u8>) -> Result<RecordIter<'s>> {
        if is_legacy(self.magic()) {
            return legacy::records(self, scratch);
        }
        Err(self.corrupt(format!("magic {} is unknown", self.magic())))
    }

    /// The batch with the base offset, base timestamp and record count that only the messages of an older format tell;
    /// a v2 batch as it is. Needed after [`next_batch_shallow`] only.
    #[must_use]
    pub fn resolved(&self) -> Self {
        let resolved = if is_legacy(self.magic()) { legacy::resolve_header(self.bytes) } else { None };
        Self { header: resolved.map_or(self.header, |bytes| BatchHeader::new(&bytes).outlive()), ..*self }
    }

    /// Each message of formats v0 and v1 has a checksum of its own: those of the messages inside, and whether they are
    /// right. None for v2, whose records have none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] as [`records`](Self::records).
    pub fn message_checksums(&self) -> Result<Option<Vec<(u32, bool)>>> {
        if is_legacy(self.magic()) {
            return legacy::message_checksums(self).map(Some);
        }
        Ok(None)
    }

    /// An [`Error::Corrupt`] at this batch.
    #[cold]
    pub fn corrupt(&self, reason: impl Into<String>) -> Error {
        Error::corrupt(self.position, self.base_offset(), reason)
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
    let view = BatchHeader::new(header);
    if view.timestamp_type() == timestamp_type && view.max_timestamp() == max_timestamp {
        return;
    }
    // Like Kafka, which computes the field anew: bits without a meaning go.
    let kept = view.attributes() & attributes::KNOWN & !attributes::TIMESTAMP_TYPE;
    let attributes = match timestamp_type {
        TimestampType::CreateTime | TimestampType::NoTimestamp => kept,
        TimestampType::LogAppendTime => kept | attributes::TIMESTAMP_TYPE,
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
