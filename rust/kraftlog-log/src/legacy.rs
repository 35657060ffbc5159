//! Message formats v0 and v1, which Kafka wrote before 0.11 and still reads. Nothing here writes them.
//!
//! An entry of a message set is an offset, a length and a message:
//!
//! | bytes | field | | bytes | field |
//! |---|---|---|---|---|
//! | 0..8 | offset | | 17 | attributes: codec, in v1 timestamp type |
//! | 8..12 | length of what follows | | v1: 18..26 | timestamp |
//! | 12..16 | CRC-32 (zlib's) of bytes 16.. | | then | key: length, -1 for null, and bytes |
//! | 16 | magic | | then | value: likewise |
//!
//! The value of a message with a codec is a message set, compressed as a whole: the outer message is its wrapper. The
//! offset of a wrapper is that of its last inner message. Inner offsets are absolute in v0; in v1 they count from 0
//! and are made absolute by the wrapper's.
//!
//! One outermost entry is one batch here. Its header is translated into the layout of v2, and its messages, when they
//! are asked for, into v2 records: all that reads batches reads these formats too, and pays nothing for it.
//! See <https://kafka.apache.org/documentation/#messageset>, KIP-31 and KIP-32.
use crate::batch_view::{
    attributes, BatchView, HEADER_SIZE, LOG_OVERHEAD, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP,
};
use crate::compression::{self, Bound, Codec};
use crate::crc::crc32;
use crate::record::RecordIter;
use crate::varint::{varint_size, varlong_size, write_varint, write_varlong};
use crate::Result;

mod lz4;

/// Bytes of the smallest entry, a v0 message with null key and value. Enough to translate a header.
pub(crate) const ENTRY_SIZE_MIN: usize = 26;
/// Value of the length field of the smallest entry.
const MESSAGE_SIZE_MIN: usize = ENTRY_SIZE_MIN - LOG_OVERHEAD;
/// Where the magic byte is in a message; the checksum covers all from it on.
const MAGIC_AT: usize = 4;
const ATTRIBUTES_AT: usize = 5;
/// Where the timestamp of v1 is in a message, and the key of v0.
const TIMESTAMP_AT: usize = 6;
const CODEC_MASK: u8 = attributes::COMPRESSION_MASK as u8;
const TIMESTAMP_TYPE: u8 = attributes::TIMESTAMP_TYPE as u8;
/// Record count in a translated header when the messages were not looked at, or make no sense.
const COUNT_UNKNOWN: i32 = -1;

/// True for the magic bytes of this module.
#[inline]
pub(crate) const fn is_legacy(magic: i8) -> bool {
    magic == 0 || magic == 1
}

/// What is wrong with a message set, in words.
type Defect = String;
/// A key or value; None is null.
type Field<'a> = Option<&'a [u8]>;

/// One entry of a message set.
#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    offset: i64,
    /// From the checksum on; at least [`MESSAGE_SIZE_MIN`] bytes.
    message: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry at the front of a set and what follows it; None for an end, whole or cut short, as
    /// Kafka's `DataLogInputStream` has it.
    fn split_first(set: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, Defect> {
        let Some((offset, rest)) = set.split_first_chunk::<8>() else { return Ok(None) };
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = i32::from_be_bytes(*length);
        let size = usize::try_from(length).unwrap_or(0);
        if size < MESSAGE_SIZE_MIN {
            return Err(format!("message length {length}, the least is {MESSAGE_SIZE_MIN}"));
        }
        let Some((message, rest)) = rest.split_at_checked(size) else { return Ok(None) };
        Ok(Some((Self { offset: i64::from_be_bytes(*offset), message }, rest)))
    }

    fn byte(&self, at: usize) -> u8 {
        self.message.get(at).copied().unwrap_or_default()
    }

    fn magic(&self) -> i8 {
        self.byte(MAGIC_AT) as i8
    }

    fn codec(&self) -> Result<Codec, Defect> {
        let id = self.byte(ATTRIBUTES_AT) & CODEC_MASK;
        Codec::from_id(id).ok_or_else(|| format!("unknown compression codec {id}"))
    }

    /// The stored time; -1 for v0, which has none.
    fn timestamp(&self) -> i64 {
        let bytes = self.message.get(TIMESTAMP_AT..).and_then(<[u8]>::first_chunk);
        match bytes {
            Some(bytes) if self.magic() != 0 => i64::from_be_bytes(*bytes),
            _ => NO_TIMESTAMP,
        }
    }

    /// The time inside a wrapper that gives its own to all messages of v1, or to none.
    fn timestamp_in(&self, append_time: Option<i64>) -> i64 {
        append_time.filter(|_| self.magic() != 0).unwrap_or_else(|| self.timestamp())
    }

    /// Key and value. As in Kafka, what follows the value is not looked at.
    fn key_and_value(&self) -> Result<(Field<'a>, Field<'a>), Defect> {
        let start = if self.magic() == 0 { TIMESTAMP_AT } else { TIMESTAMP_AT + 8 };
        let fields = self.message.get(start..).unwrap_or_default();
        let (key, fields) = sized(fields).ok_or_else(|| too_long("key", fields))?;
        let (value, _) = sized(fields).ok_or_else(|| too_long("value", fields))?;
        Ok((key, value))
    }

    fn stored_crc(&self) -> u32 {
        self.message.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    fn computed_crc(&self) -> u32 {
        crc32(self.message.get(MAGIC_AT..).unwrap_or_default())
    }

    /// # Errors
    /// Both checksums, when they differ.
    fn validate_crc(&self) -> Result<(), Defect> {
        let (stored, computed) = (self.stored_crc(), self.computed_crc());
        if stored == computed {
            return Ok(());
        }
        Err(format!("CRC {stored:#010x} stored, {computed:#010x} computed (message offset {})", self.offset))
    }
}

/// Bytes behind their length, null for a negative one, and what follows them.
fn sized(fields: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (length, rest) = fields.split_first_chunk::<4>()?;
    match usize::try_from(i32::from_be_bytes(*length)) {
        Ok(length) => rest.split_at_checked(length).map(|(bytes, rest)| (Some(bytes), rest)),
        Err(_) => Some((None, rest)),
    }
}

#[cold]
fn too_long(name: &str, fields: &[u8]) -> Defect {
    match fields.first_chunk().map(|bytes| i32::from_be_bytes(*bytes)) {
        Some(length) => format!("a {name} of {length} bytes where {} remain", fields.len() - 4),
        None => format!("the message ends before its {name}"),
    }
}

/// The messages of one outermost entry.
#[derive(Debug)]
struct Messages<'a> {
    /// The inner set, or the entry itself when it is not compressed.
    set: &'a [u8],
    count: i32,
    /// What makes an offset in `set` absolute.
    shift: i64,
    first_offset: i64,
    first_timestamp: i64,
    /// The time of all messages that have one, when the wrapper has LogAppendTime.
    append_time: Option<i64>,
    /// Messages of another format than their wrapper, as an old cleaner left them (KAFKA-4298).
    is_mixed: bool,
}

impl<'a> Messages<'a> {
    /// Decompresses into `scratch` if need be, and walks over the messages once.
    fn read(entry: &'a [u8], bound: Bound, scratch: &'a mut Vec<u8>) -> Result<Self, Defect> {
        let Some((outer, _)) = Entry::split_first(entry)? else {
            return Err("the message is cut short".to_owned());
        };
        let codec = outer.codec()?;
        if codec == Codec::None {
            return Ok(Self {
                set: entry,
                count: 1,
                shift: 0,
                first_offset: outer.offset,
                first_timestamp: outer.timestamp(),
                append_time: None,
                is_mixed: false,
            });
        }
        if codec == Codec::Zstd {
            return Err(format!("a message of format {} cannot be compressed with zstd", outer.magic()));
        }
        let (_, value) = outer.key_and_value()?;
        let value = value.ok_or("a compressed message set that is null")?;
        let fixed = (codec == Codec::Lz4 && outer.magic() == 0).then(|| lz4::with_right_checksum(value));
        let value = fixed.as_deref().unwrap_or(value);
        compression::decompress(codec, value, bound, scratch).map_err(|error| error.to_string())?;
        Self::of_set(&outer, scratch)
    }

    fn of_set(outer: &Entry<'_>, set: &'a [u8]) -> Result<Self, Defect> {
        let mut rest = set;
        let mut count = 0;
        let mut is_mixed = false;
        let mut ends: Option<(Entry<'_>, Entry<'_>)> = None;
        while let Some((inner, after)) = Entry::split_first(rest)? {
            if !is_legacy(inner.magic()) {
                return Err(format!("magic {} inside a message of format {}", inner.magic(), outer.magic()));
            }
            if inner.codec()? != Codec::None {
                return Err("a compressed message inside a compressed message".to_owned());
            }
            is_mixed |= inner.magic() != outer.magic();
            ends = Some((ends.map_or(inner, |(first, _)| first), inner));
            count += 1;
            rest = after;
        }
        let Some((first, last)) = ends else {
            return Err("a compressed message set without messages".to_owned());
        };
        let shift = match (outer.magic(), outer.offset) {
            // A wrapper of some versions of librdkafka says 0 when it is produced: nothing to count from.
            (0, _) | (_, 0) => 0,
            (_, wrapper) if wrapper < last.offset => {
                return Err(format!(
                    "the set's offset {wrapper} is before its last inner offset {}",
                    last.offset
                ));
            }
            (_, wrapper) => wrapper.wrapping_sub(last.offset),
        };
        let is_append_time = outer.magic() == 1 && outer.byte(ATTRIBUTES_AT) & TIMESTAMP_TYPE != 0;
        let append_time = is_append_time.then(|| outer.timestamp());
        Ok(Self {
            set,
            count,
            shift,
            first_offset: first.offset.wrapping_add(shift),
            first_timestamp: first.timestamp_in(append_time),
            append_time,
            is_mixed,
        })
    }
}

/// The header of an entry in the layout of v2, from its first bytes alone. A set gets its last offset as its base
/// offset, and -1 as its record count: only its messages know better.
pub(crate) fn translate_header(start: &[u8; ENTRY_SIZE_MIN]) -> [u8; HEADER_SIZE] {
    let [o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3, message @ ..] = start;
    let length = i32::from_be_bytes([*l0, *l1, *l2, *l3]);
    let offset = i64::from_be_bytes([*o0, *o1, *o2, *o3, *o4, *o5, *o6, *o7]);
    let entry = Entry { offset, message };
    let count = if entry.byte(ATTRIBUTES_AT) & CODEC_MASK == 0 { 1 } else { COUNT_UNKNOWN };
    header(&entry, length, offset, 0, entry.timestamp(), count)
}

/// [`translate_header`] of a whole entry, with base offset, base timestamp and record count from its messages. An
/// entry that does not decompress is translated from its first bytes, and fails when its records are read.
pub(crate) fn resolve_header(entry: &[u8]) -> Option<[u8; HEADER_SIZE]> {
    let translated = translate_header(entry.first_chunk()?);
    let Ok(Some((outer, _))) = Entry::split_first(entry) else { return Some(translated) };
    let mut scratch = Vec::new();
    let Ok(messages) = Messages::read(entry, Bound::DEFAULT, &mut scratch) else { return Some(translated) };
    let Ok(delta) = i32::try_from(outer.offset.wrapping_sub(messages.first_offset)) else {
        return Some(translated);
    };
    let length = i32::try_from(outer.message.len()).ok()?;
    let mut resolved =
        header(&outer, length, messages.first_offset, delta, messages.first_timestamp, messages.count);
    if messages.is_mixed {
        // Not all messages have the time of the wrapper: each has to say its own.
        if let Some(attributes) = resolved.get_mut(22) {
            *attributes &= !TIMESTAMP_TYPE;
        }
    }
    Some(resolved)
}

fn header(
    entry: &Entry<'_>,
    length: i32,
    base_offset: i64,
    last_offset_delta: i32,
    base_timestamp: i64,
    count: i32,
) -> [u8; HEADER_SIZE] {
    // In v0 the bit of the timestamp type has no meaning; in both formats those of transactions have none.
    let mask = if entry.magic() == 0 { CODEC_MASK } else { CODEC_MASK | TIMESTAMP_TYPE };
    let attributes = i16::from(entry.byte(ATTRIBUTES_AT) & mask);
    let mut bytes = [0; HEADER_SIZE];
    let mut rest = &mut bytes[..];
    let mut put = |field: &[u8]| {
        if let Some((target, after)) = std::mem::take(&mut rest).split_at_mut_checked(field.len()) {
            target.copy_from_slice(field);
            rest = after;
        }
    };
    put(&base_offset.to_be_bytes());
    put(&length.to_be_bytes());
    put(&(-1i32).to_be_bytes());
    put(&[entry.magic() as u8]);
    put(entry.message.get(..MAGIC_AT).unwrap_or(&[0; MAGIC_AT]));
    put(&attributes.to_be_bytes());
    put(&last_offset_delta.to_be_bytes());
    put(&base_timestamp.to_be_bytes());
    put(&entry.timestamp().to_be_bytes());
    put(&NO_PRODUCER_ID.to_be_bytes());
    put(&(-1i16).to_be_bytes());
    put(&NO_SEQUENCE.to_be_bytes());
    put(&count.to_be_bytes());
    bytes
}

/// The checksum that the message of an entry has.
pub(crate) fn computed_crc(entry: &[u8]) -> u32 {
    crc32(entry.get(LOG_OVERHEAD + MAGIC_AT..).unwrap_or_default())
}

/// The value of a wrapper, still compressed, or the whole entry of a plain message.
pub(crate) fn body(entry: &[u8]) -> &[u8] {
    match Entry::split_first(entry) {
        Ok(Some((outer, _))) if outer.byte(ATTRIBUTES_AT) & CODEC_MASK != 0 => {
            outer.key_and_value().ok().and_then(|(_, value)| value).unwrap_or_default()
        }
        _ => entry,
    }
}

/// The messages of `batch` as v2 records in `out`, whose content is replaced; the records count from the base offset
/// and the base timestamp of the batch's header. Returns how many there are. `check_crc` compares the checksums of
/// inner messages too, as Kafka's consumer does.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt) for a set that does not decompress within `bound`, is nested, holds
/// other formats or no message; for a key or value longer than its message; for offsets more than 2^31 apart.
pub(crate) fn transcode(
    batch: &BatchView<'_>,
    bound: Bound,
    check_crc: bool,
    out: &mut Vec<u8>,
) -> Result<i32> {
    out.clear();
    let mut scratch = Vec::new();
    Messages::read(batch.bytes(), bound, &mut scratch)
        .and_then(|messages| transcode_messages(batch, &messages, check_crc, out))
        .map_err(|defect| batch.corrupt(defect))
}

fn transcode_messages(
    batch: &BatchView<'_>,
    messages: &Messages<'_>,
    check_crc: bool,
    out: &mut Vec<u8>,
) -> Result<i32, Defect> {
    out.reserve(messages.set.len());
    let mut rest = messages.set;
    while let Some((message, after)) = Entry::split_first(rest)? {
        if check_crc {
            message.validate_crc()?;
        }
        let offset = message.offset.wrapping_add(messages.shift);
        let delta = i32::try_from(offset.wrapping_sub(batch.base_offset()))
            .map_err(|_| format!("offset {offset} is too far from {}", batch.base_offset()))?;
        let timestamp = message.timestamp_in(messages.append_time);
        let timestamp_delta = timestamp.wrapping_sub(batch.base_timestamp());
        let (key, value) = message.key_and_value()?;
        write_record(out, timestamp_delta, delta, key, value)?;
        rest = after;
    }
    Ok(messages.count)
}

/// The checksums of the messages of `batch`, in their order: the stored one, and whether it is right.
///
/// # Errors
/// As [`transcode`].
pub(crate) fn message_checksums(batch: &BatchView<'_>) -> Result<Vec<(u32, bool)>> {
    let mut scratch = Vec::new();
    let mut found = Vec::new();
    let mut collect = || -> Result<(), Defect> {
        let mut rest = Messages::read(batch.bytes(), Bound::DEFAULT, &mut scratch)?.set;
        while let Some((message, after)) = Entry::split_first(rest)? {
            found.push((message.stored_crc(), message.stored_crc() == message.computed_crc()));
            rest = after;
        }
        Ok(())
    };
    collect().map_err(|defect| batch.corrupt(defect))?;
    Ok(found)
}

/// A v2 record without headers.
fn write_record(
    out: &mut Vec<u8>,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Field<'_>,
    value: Field<'_>,
) -> Result<(), Defect> {
    // Lengths come from 32-bit fields; with the integers around them the record may be longer than one can say.
    let length = |bytes: Field<'_>| bytes.map_or(-1, |bytes| bytes.len() as i32);
    let size = 2
        + varlong_size(timestamp_delta)
        + varint_size(offset_delta)
        + [key, value]
            .iter()
            .map(|bytes| varint_size(length(*bytes)) + bytes.map_or(0, <[u8]>::len))
            .sum::<usize>();
    write_varint(out, i32::try_from(size).map_err(|_| format!("a message of {size} bytes"))?);
    out.push(0);
    write_varlong(out, timestamp_delta);
    write_varint(out, offset_delta);
    for bytes in [key, value] {
        write_varint(out, length(bytes));
        out.extend_from_slice(bytes.unwrap_or_default());
    }
    out.push(0);
    Ok(())
}

/// The records of a batch of these formats, in `scratch`.
///
/// # Errors
/// As [`transcode`].
#[cold]
pub(crate) fn records<'s>(batch: &BatchView<'_>, scratch: &'s mut Vec<u8>) -> Result<RecordIter<'s>> {
    let batch = resolve_header(batch.bytes()).map_or(*batch, |header| batch.with_header(&header));
    transcode(&batch, Bound::DEFAULT, false, scratch)?;
    RecordIter::new(&batch, scratch)
}

#[cfg(test)]
mod tests;
