//! Records inside a batch, borrowed from its (decompressed) body.
//!
//! Reading follows `DefaultRecord.readFrom`: negative key, value and header value lengths mean
//! null, a record must end where its length says, and what follows the last record of the count is
//! an error. See <https://kafka.apache.org/documentation/#record>.
use crate::batch_view::{BatchView, TimestampType};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    match read_common_record(bytes) {
        Some(found) => Ok(found),
        None => read_any_record(bytes),
    }
}

/// Enough for the integers in front of a key; a power of two, so that an index is masked instead of checked.
const FRONT_BYTES: usize = 32;

/// Most records have no headers and integers of up to three bytes, and 32 bytes follow their start: all their
/// fields are then read with a handful of length checks. None is for any other record, good or bad.
#[inline(always)]
fn read_common_record(bytes: &[u8]) -> Option<(RawRecord<'_>, &[u8])> {
    let front = bytes.first_chunk::<FRONT_BYTES>()?;
    let mut at = 0;
    let size = length(short_varint(front, &mut at)?);
    let (record, rest) = bytes.split_at_checked(at.wrapping_add(size))?;
    let attributes = front[at % FRONT_BYTES] as i8;
    at += 1;
    let timestamp_delta = unzigzag(short_varint(front, &mut at)?);
    let offset_delta = unzigzag(short_varint(front, &mut at)?) as i32;
    let key_length = short_varint(front, &mut at)?;
    // From here on nothing is read beyond the record, whose end the integers above may have passed.
    let fields = record.get(at..)?;
    let (key, fields) = match key_length {
        NULL_LENGTH => (None, fields),
        _ => {
            let (key, fields) = fields.split_at_checked(length(key_length))?;
            (Some(key), fields)
        }
    };
    let (value_length, fields) = match *fields {
        [a, ref rest @ ..] if a < 0x80 => (u32::from(a), rest),
        [a, b, ref rest @ ..] if b < 0x80 => (u32::from(a & 0x7f) | u32::from(b) << 7, rest),
        [a, b, c, ref rest @ ..] if c < 0x80 => {
            (u32::from(a & 0x7f) | u32::from(b & 0x7f) << 7 | u32::from(c) << 14, rest)
        }
        _ => return None,
    };
    let (value, fields) = match value_length {
        NULL_LENGTH => (None, fields),
        _ => {
            let (value, fields) = fields.split_at_checked(length(value_length))?;
            (Some(value), fields)
        }
    };
    let raw =
        RawRecord { attributes, timestamp_delta, offset_delta, key, value, headers: Headers::default() };
    (fields == [0]).then_some((raw, rest))
}

/// Zigzag of -1.
const NULL_LENGTH: u32 = 1;

#[inline(always)]
fn short_varint(front: &[u8; FRONT_BYTES], at: &mut usize) -> Option<u32> {
    let mut byte = || {
        let byte = front[*at % FRONT_BYTES];
        *at += 1;
        u32::from(byte)
    };
    let a = byte();
    if a < 0x80 {
        return Some(a);
    }
    let b = byte();
    if b < 0x80 {
        return Some(a & 0x7f | b << 7);
    }
    let c = byte();
    (c < 0x80).then_some(a & 0x7f | (b & 0x7f) << 7 | c << 14)
}

#[inline(always)]
fn unzigzag(raw: u32) -> i64 {
    i64::from((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// A length from its zigzag form; a negative one becomes longer than any slice.
#[inline(always)]
fn length(raw: u32) -> usize {
    unzigzag(raw) as usize
}

/// Any record, step by step, with the defect if it has one.
fn read_any_record(bytes: &[u8]) -> Result<(RawRecord<'_>, &[u8]), RecordDefect> {
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
}

impl<'a> RecordIter<'a> {
    /// The next record, unless there is none or it is not sound.
    #[inline(always)]
    fn step(&mut self) -> std::result::Result<Option<RecordRef<'a>>, Stop> {
        if self.remaining == 0 {
            return Ok(None);
        }
        let (raw, rest) = read_record(self.rest).map_err(Stop::Defect)?;
        let size_bytes = self.rest.len() - rest.len();
        self.rest = rest;
        self.remaining -= 1;
        if self.remaining == 0 && !rest.is_empty() {
            return Err(Stop::BytesRemain);
        }
        self.read += 1;
        Ok(Some(RecordRef {
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

    /// Calls `visit` with every record. Where little is done with each this takes half the time of a loop over
    /// `next`, whose large result may go through memory.
    ///
    /// # Errors
    /// That of the first record that is not sound, or of `visit`.
    #[inline(always)]
    pub fn try_for_each_record(mut self, mut visit: impl FnMut(RecordRef<'a>) -> Result<()>) -> Result<()> {
        loop {
            match self.step() {
                Ok(Some(record)) => visit(record)?,
                Ok(None) => return Ok(()),
                Err(stop) => return Err(self.fail(stop)),
            }
        }
    }

    #[cold]
    fn fail(&mut self, stop: Stop) -> Error {
        self.remaining = 0;
        let reason = match stop {
            Stop::Defect(defect) => format!("record {}: {defect}", self.read),
            Stop::BytesRemain => {
                format!("{} bytes follow the last of {} records", self.rest.len(), self.read + 1)
            }
        };
        Error::corrupt(self.position, self.base_offset, reason)
    }
}

/// Why the records end before their count.
enum Stop {
    Defect(RecordDefect),
    BytesRemain,
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RecordRef<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.step() {
            Ok(record) => record.map(Ok),
            Err(stop) => Some(Err(self.fail(stop))),
        }
    }
}

#[cfg(test)]
mod tests;
