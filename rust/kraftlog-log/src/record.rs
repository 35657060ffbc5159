//! Records inside a batch, borrowed from its (decompressed) body.
//!
//! Reading follows `DefaultRecord.readFrom`: negative key, value and header value lengths mean
//! null, a record must end where its length says, and what follows the last record of the count is
//! an error. See <https://kafka.apache.org/documentation/#record>.
use crate::batch::{BatchView, TimestampType};
use crate::varint::{read_varint, read_varlong, VarintError};
use crate::{Error, Result};

/// One record of a v2 batch. Offset and timestamp are absolute; bytes are borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Offset in the log.
    pub offset: i64,
    /// Milliseconds since the epoch: the batch's when it has LogAppendTime.
    pub timestamp: i64,
    /// As stored; `offset` minus the batch's base offset.
    pub offset_delta: i32,
    /// Unused by Kafka so far, kept as stored.
    pub attributes: i8,
    /// None is a null key, which is not an empty one.
    pub key: Option<&'a [u8]>,
    /// None is a null value: a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// Headers in stored order; keys may repeat.
    pub headers: Headers<'a>,
    /// Bytes of the whole record with its length prefix, uncompressed.
    pub size_bytes: usize,
}

/// The headers of a record: checked when the record was read, parsed again when iterated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Headers<'a> {
    /// How many headers there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True when there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The headers as stored: key length, key, value length, value, back to back.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        HeaderIter { reader: Reader(self.bytes), remaining: self.count }
    }
}

/// Key and value of each header; keys are meant to be UTF-8 but are not checked.
#[derive(Debug, Clone)]
pub struct HeaderIter<'a> {
    reader: Reader<'a>,
    remaining: usize,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        // Both were read once before, so the `ok` never drops an error.
        self.reader.header().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for HeaderIter<'_> {}

/// What is wrong with a record body; small, so that the hot loop stays in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordDefect {
    Varint(VarintError),
    Truncated { expected: i32, remaining: usize },
    FieldTooLong { length: i32 },
    HeaderCount(i32),
    HeaderKeyLength(i32),
    SizeMismatch { stored: i32, read: usize },
    Empty,
}

impl From<VarintError> for RecordDefect {
    #[inline]
    fn from(error: VarintError) -> Self {
        Self::Varint(error)
    }
}

impl std::fmt::Display for RecordDefect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Varint(error) => write!(f, "{error}"),
            Self::Truncated { expected, remaining } => {
                write!(f, "record size is {expected}, but only {remaining} bytes remain")
            }
            Self::FieldTooLong { length } => {
                write!(f, "a key, value or header of {length} bytes runs past its record")
            }
            Self::HeaderCount(count) => write!(f, "header count {count}"),
            Self::HeaderKeyLength(length) => write!(f, "header key length {length}"),
            Self::SizeMismatch { stored, read } => {
                write!(f, "record size is {stored}, but its fields take {read}")
            }
            Self::Empty => write!(f, "the bytes end inside a record"),
        }
    }
}

/// A record before offset and timestamp are made absolute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecord<'a> {
    pub(crate) attributes: i8,
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: Headers<'a>,
}

/// Takes fields off the front of a slice.
#[derive(Debug, Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[inline(always)]
    fn varint(&mut self) -> Result<i32, RecordDefect> {
        let (value, size) = read_varint(self.0)?;
        self.0 = self.0.get(size..).unwrap_or_default();
        Ok(value)
    }

    #[inline(always)]
    fn varlong(&mut self) -> Result<i64, RecordDefect> {
        let (value, size) = read_varlong(self.0)?;
        self.0 = self.0.get(size..).unwrap_or_default();
        Ok(value)
    }

    #[inline(always)]
    fn bytes(&mut self, length: i32) -> Result<&'a [u8], RecordDefect> {
        // A negative length becomes a huge usize and fails the same comparison.
        match self.0.split_at_checked(length as usize) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => Err(RecordDefect::FieldTooLong { length }),
        }
    }

    /// Length-prefixed bytes, null for any negative length.
    #[inline(always)]
    fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, RecordDefect> {
        let length = self.varint()?;
        if length < 0 {
            return Ok(None);
        }
        self.bytes(length).map(Some)
    }

    fn header(&mut self) -> Result<(&'a [u8], Option<&'a [u8]>), RecordDefect> {
        let length = self.varint()?;
        if length < 0 {
            return Err(RecordDefect::HeaderKeyLength(length));
        }
        let key = self.bytes(length)?;
        Ok((key, self.nullable_bytes()?))
    }

    /// Walks the headers once, so that iterating them later cannot fail.
    #[inline(never)]
    fn headers(&mut self, count: i32) -> Result<Headers<'a>, RecordDefect> {
        if count < 0 || count as usize > self.0.len() {
            return Err(RecordDefect::HeaderCount(count));
        }
        let start = self.0;
        for _ in 0..count {
            self.header()?;
        }
        let size = start.len() - self.0.len();
        Ok(Headers { bytes: start.get(..size).unwrap_or_default(), count: count as usize })
    }
}

/// Reads the record at the front of `bytes`: it, and what follows it.
#[inline(always)]
pub(crate) fn read_record(bytes: &[u8]) -> Result<(RawRecord<'_>, &[u8]), RecordDefect> {
    let mut reader = Reader(bytes);
    let stored = reader.varint()?;
    let Some((body, rest)) = reader.0.split_at_checked(stored as usize) else {
        return Err(size_defect(stored, reader.0));
    };
    // Kafka reads the fields from the whole buffer and compares the end with the size afterwards; to
    // read them from the body alone refuses the same records.
    let mut reader = Reader(body);
    let Some((&attributes, fields)) = reader.0.split_first() else {
        return Err(RecordDefect::Empty);
    };
    reader.0 = fields;
    let timestamp_delta = reader.varlong()?;
    let offset_delta = reader.varint()?;
    let key = reader.nullable_bytes()?;
    let value = reader.nullable_bytes()?;
    let header_count = reader.varint()?;
    let headers = if header_count == 0 { Headers::default() } else { reader.headers(header_count)? };
    if !reader.0.is_empty() {
        return Err(RecordDefect::SizeMismatch { stored, read: body.len() - reader.0.len() });
    }
    Ok((RawRecord { attributes: attributes as i8, timestamp_delta, offset_delta, key, value, headers }, rest))
}

#[cold]
fn size_defect(stored: i32, rest: &[u8]) -> RecordDefect {
    RecordDefect::Truncated { expected: stored, remaining: rest.len() }
}

/// The records of one batch, in stored order. After an error the iteration is over.
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    rest: &'a [u8],
    remaining: i32,
    read: i32,
    base_offset: i64,
    base_timestamp: i64,
    log_append_time: Option<i64>,
    position: u64,
}

impl<'a> RecordIter<'a> {
    /// Records of `batch` from its uncompressed `body`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the batch's record count is negative.
    #[inline]
    pub fn new(batch: &BatchView<'_>, body: &'a [u8]) -> Result<Self> {
        let count = batch.record_count();
        if count < 0 {
            return Err(Error::corrupt(
                batch.position(),
                batch.base_offset(),
                format!("record count {count}"),
            ));
        }
        let log_append_time =
            (batch.timestamp_type() == TimestampType::LogAppendTime).then(|| batch.max_timestamp());
        Ok(Self {
            rest: body,
            remaining: count,
            read: 0,
            base_offset: batch.base_offset(),
            base_timestamp: batch.base_timestamp(),
            log_append_time,
            position: batch.position(),
        })
    }

    #[cold]
    fn fail(&mut self, defect: RecordDefect) -> Error {
        self.remaining = 0;
        let reason = format!("record {}: {defect}", self.read);
        Error::corrupt(self.position, self.base_offset, reason)
    }

    #[cold]
    fn fail_remaining(&mut self) -> Error {
        let reason = format!("{} bytes follow the last of {} records", self.rest.len(), self.read + 1);
        self.remaining = 0;
        Error::corrupt(self.position, self.base_offset, reason)
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RecordRef<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining == 0 {
            return None;
        }
        let (raw, rest) = match read_record(self.rest) {
            Ok(found) => found,
            Err(defect) => return Some(Err(self.fail(defect))),
        };
        let size_bytes = self.rest.len() - rest.len();
        self.rest = rest;
        self.remaining -= 1;
        if self.remaining == 0 && !rest.is_empty() {
            return Some(Err(self.fail_remaining()));
        }
        self.read += 1;
        Some(Ok(RecordRef {
            offset: self.base_offset.wrapping_add(i64::from(raw.offset_delta)),
            timestamp: match self.log_append_time {
                None => self.base_timestamp.wrapping_add(raw.timestamp_delta),
                Some(time) => time,
            },
            offset_delta: raw.offset_delta,
            attributes: raw.attributes,
            key: raw.key,
            value: raw.value,
            headers: raw.headers,
            size_bytes,
        }))
    }
}
