//! The header of a record batch as a view, and a whole batch as its header and bytes. Nothing is read beyond the
//! header here: checksums and records belong to [`batch`](crate::batch).
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
use crate::compression::Codec;
use crate::Error;
use std::marker::PhantomData;
use std::ops::Deref;

/// Bytes of a v2 batch header.
pub const HEADER_SIZE: usize = 61;
/// Bytes in front of what the length field counts: base offset and length.
pub const LOG_OVERHEAD: usize = 12;
/// Bytes up to and with the magic byte: less cannot be judged.
pub const HEADER_SIZE_UP_TO_MAGIC: usize = 17;
/// The magic byte of the only format written since Kafka 3.0.
pub const MAGIC: i8 = 2;
/// First byte that the checksum covers.
pub(crate) const CRC_START: usize = 21;

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
    pub(crate) const fn outlive<'b>(self) -> BatchHeader<'b> {
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
    /// The batch with `header` that `bytes` are, found at byte `position` of a buffer. Nothing is checked.
    #[inline]
    pub(crate) const fn new(header: BatchHeader<'a>, bytes: &'a [u8], position: u64) -> Self {
        Self { header, bytes, position }
    }

    /// The same bytes under another header.
    pub(crate) fn with_header(&self, header: &[u8; HEADER_SIZE]) -> Self {
        Self { header: BatchHeader::new(header).outlive(), ..*self }
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

    /// An [`Error::Corrupt`] at this batch.
    #[cold]
    pub fn corrupt(&self, reason: impl Into<String>) -> Error {
        Error::corrupt(self.position, self.base_offset(), reason)
    }
}
