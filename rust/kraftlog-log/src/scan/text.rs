//! Batches and records in the words of Kafka's `DumpLogSegments`.
//!
//! Numbers, booleans and optional numbers look as Java prints them, and bytes are text as Java's String
//! decodes UTF-8. What is printed before a defect stays printed, in the middle of a line if need be.
use super::dump::{Describe, DumpOptions};
use super::json::write_integer;
use crate::batch::{BatchHeader, BatchView, HEADER_SIZE, MAGIC, NO_SEQUENCE};
use crate::record::RecordRef;
use crate::Result;

/// Least value of a length field that Kafka's tool takes for a batch, of any format.
const LENGTH_MIN_READ: i32 = 14;
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

fn write_field(out: &mut Vec<u8>, name: &str, number: i64) {
    out.extend_from_slice(name.as_bytes());
    write_integer(out, number);
}

fn write_flag(out: &mut Vec<u8>, name: &str, flag: bool) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(if flag { b"true" } else { b"false" });
}

/// The line of a batch.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt) for an unknown codec, where Kafka's tool ends too, within the line.
pub(super) fn write_batch_text(out: &mut Vec<u8>, batch: &BatchView<'_>, position: u64) -> Result<()> {
    let is_valid = batch.computed_crc() == batch.crc();
    write_header(out, &batch.header(), position, is_valid)
        .map_err(|id| batch.corrupt(format!("unknown compression codec {id}")))
}

/// What Kafka's tool prints of a batch that it then cannot read: one whose length leaves no room for a header,
/// or with a negative magic.
pub(super) fn write_refused_batch(out: &mut Vec<u8>, bytes: &[u8], position: u64) {
    let Some(header) = bytes.first_chunk::<HEADER_SIZE>().map(BatchHeader::new) else { return };
    if header.batch_length() < LENGTH_MIN_READ || header.size_bytes() > bytes.len() {
        return;
    }
    if header.magic() < 0 {
        write_field(out, "offset: ", header.base_offset());
    } else if header.magic() >= MAGIC {
        // An unknown codec ends the line early.
        let _ = write_header(out, &header, position, false);
    }
}

/// The line; gives the id of an unknown codec.
fn write_header(
    out: &mut Vec<u8>,
    header: &BatchHeader<'_>,
    position: u64,
    is_valid: bool,
) -> std::result::Result<(), u8> {
    if header.magic() < MAGIC {
        write_field(out, "offset: ", header.last_offset());
    } else {
        write_header_fields(out, header);
    }
    let codec = header.codec()?;
    write_field(out, " position: ", position as i64);
    out.push(b' ');
    out.extend_from_slice(header.timestamp_type().name().as_bytes());
    write_field(out, ": ", header.max_timestamp());
    write_field(out, " size: ", header.size_bytes() as i64);
    write_field(out, " magic: ", i64::from(header.magic()));
    out.extend_from_slice(b" compresscodec: ");
    out.extend_from_slice(codec.name().as_bytes());
    write_field(out, " crc: ", i64::from(header.crc()));
    write_flag(out, " isvalid: ", is_valid);
    out.push(b'\n');
    Ok(())
}

/// What only batches have, which came with format v2.
fn write_header_fields(out: &mut Vec<u8>, header: &BatchHeader<'_>) {
    write_field(out, "baseOffset: ", header.base_offset());
    write_field(out, " lastOffset: ", header.last_offset());
    write_field(out, " count: ", i64::from(header.record_count()));
    write_field(out, " baseSequence: ", i64::from(header.base_sequence()));
    let last_sequence = match header.base_sequence() {
        NO_SEQUENCE => NO_SEQUENCE,
        base => java_sequence(base, header.last_offset_delta()),
    };
    write_field(out, " lastSequence: ", i64::from(last_sequence));
    write_field(out, " producerId: ", header.producer_id());
    write_field(out, " producerEpoch: ", i64::from(header.producer_epoch()));
    write_field(out, " partitionLeaderEpoch: ", i64::from(header.partition_leader_epoch()));
    write_flag(out, " isTransactional: ", header.is_transactional());
    write_flag(out, " isControl: ", header.is_control());
    match header.delete_horizon_ms() {
        Some(time) => {
            write_field(out, " deleteHorizonMs: OptionalLong[", time);
            out.push(b']');
        }
        None => out.extend_from_slice(b" deleteHorizonMs: OptionalLong.empty"),
    }
}

/// `sequence` plus `increment` as Kafka adds them, also where one of them is out of bounds.
fn java_sequence(sequence: i32, increment: i32) -> i32 {
    if sequence > i32::MAX.wrapping_sub(increment) {
        increment.wrapping_sub(i32::MAX.wrapping_sub(sequence)).wrapping_sub(1)
    } else {
        sequence.wrapping_add(increment)
    }
}

/// The line of a record; `checksum` is that of a message of the formats before v2, and whether it is right.
///
/// # Errors
/// What `describe` gives, and [`Error::Corrupt`](crate::Error::Corrupt) for a control record that cannot be told.
pub(super) fn write_record(
    out: &mut Vec<u8>,
    options: &DumpOptions,
    batch: &BatchView<'_>,
    record: &RecordRef<'_>,
    checksum: Option<(u32, bool)>,
    describe: &mut dyn Describe,
) -> Result<()> {
    if options.record_metadata {
        write_metadata(out, batch, record, checksum);
        if batch.is_control() {
            write_control(out, batch, record, describe)?;
        }
    }
    if options.data && !batch.is_control() {
        write_contents(out, record, if options.record_metadata { " " } else { "| " }, describe)?;
    }
    out.push(b'\n');
    Ok(())
}

fn write_metadata(
    out: &mut Vec<u8>,
    batch: &BatchView<'_>,
    record: &RecordRef<'_>,
    checksum: Option<(u32, bool)>,
) {
    write_field(out, "| offset: ", record.offset);
    out.push(b' ');
    out.extend_from_slice(batch.timestamp_type().name().as_bytes());
    write_field(out, ": ", record.timestamp);
    write_field(out, " keySize: ", record.key.map_or(-1, |key| key.len() as i64));
    write_field(out, " valueSize: ", record.value.map_or(-1, |value| value.len() as i64));
    if let Some((crc, is_valid)) = checksum {
        write_flag(out, " isValid: ", is_valid);
        write_field(out, " crc: ", i64::from(crc));
        return;
    }
    let sequence = match batch.base_sequence() {
        base @ 0.. => java_sequence(base, record.offset_delta),
        _ => NO_SEQUENCE,
    };
    write_field(out, " sequence: ", i64::from(sequence));
    out.extend_from_slice(b" headerKeys: [");
    for (index, (key, _)) in record.headers.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_java_text(out, key);
    }
    out.push(b']');
}

fn write_contents(
    out: &mut Vec<u8>,
    record: &RecordRef<'_>,
    before: &'static str,
    describe: &mut dyn Describe,
) -> Result<()> {
    if describe.contents(out, record, before)? {
        return Ok(());
    }
    let mut before = before;
    if let Some(key) = record.key {
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(b"key: ");
        write_java_text(out, key);
        before = " ";
    }
    if let Some(value) = record.value {
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(b"payload: ");
        write_java_text(out, value);
    }
    Ok(())
}

fn write_control(
    out: &mut Vec<u8>,
    batch: &BatchView<'_>,
    record: &RecordRef<'_>,
    describe: &mut dyn Describe,
) -> Result<()> {
    let (version, kind) = match record.key.and_then(<[u8]>::first_chunk::<4>) {
        Some(&[a, b, c, d]) => (i16::from_be_bytes([a, b]), i16::from_be_bytes([c, d])),
        None => {
            let size = record.key.map_or(-1, |key| key.len() as i64);
            return Err(
                batch.corrupt(format!("the key of a control record has {size} bytes, the least is 4"))
            );
        }
    };
    if version < 0 {
        return Err(batch.corrupt(format!("the key of a control record has version {version}")));
    }
    if let 0 | 1 = kind {
        let Some(epoch) = coordinator_epoch(kind, record.value) else {
            let size = record.value.map_or(-1, |value| value.len() as i64);
            return Err(
                batch.corrupt(format!("the value of a control record has {size} bytes, the least is 6"))
            );
        };
        out.extend_from_slice(if kind == 0 { b" endTxnMarker: ABORT" } else { b" endTxnMarker: COMMIT" });
        write_field(out, " coordinatorEpoch: ", i64::from(epoch));
        return Ok(());
    }
    if !describe.control(out, record)? {
        out.extend_from_slice(b" controlType: UNKNOWN(");
        write_integer(out, i64::from(kind));
        out.push(b')');
    }
    Ok(())
}

/// The coordinator epoch in the marker that ends a transaction; None for any other control record.
pub(super) fn coordinator_epoch(kind: i16, value: Option<&[u8]>) -> Option<i32> {
    let epoch = value?.get(2..)?.first_chunk::<4>()?;
    matches!(kind, 0 | 1).then(|| i32::from_be_bytes(*epoch))
}

/// Bytes as Java's String decodes UTF-8: a run that cannot begin a character becomes one U+FFFD, and so does
/// a surrogate, whole or cut short, where other decoders make one for each byte.
pub(super) fn write_java_text(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(_) => {
                out.extend_from_slice(rest);
                return;
            }
            Err(error) => error,
        };
        let (valid, bad) = rest.split_at_checked(error.valid_up_to()).unwrap_or((rest, &[]));
        out.extend_from_slice(valid);
        out.extend_from_slice(REPLACEMENT);
        let size = match *bad {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
            [0xed, 0xa0..=0xbf, ..] => 2,
            _ => error.error_len().unwrap_or(bad.len()),
        };
        rest = bad.get(size..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_text_as_java_decodes_them() {
        // What `new String(bytes, UTF_8)` of OpenJDK 17 gives.
        let cases: [(&[u8], &str); 13] = [
            (b"plain", "plain"),
            ("naïve мир 🙂".as_bytes(), "naïve мир 🙂"),
            (b"\xed\xa0\x80x", "\u{fffd}x"),
            (b"\xed\xa0x", "\u{fffd}x"),
            (b"\xed\xbf", "\u{fffd}"),
            (b"\xed\xa0\x80\xed\xb0\x80", "\u{fffd}\u{fffd}"),
            (b"\xe2\x82", "\u{fffd}"),
            (b"\xe2x", "\u{fffd}x"),
            (b"\xe0\x80\x80", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xf0\x9f\x99", "\u{fffd}"),
            (b"\xf0\x9f\x99x", "\u{fffd}x"),
            (b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xc0\x80\xff\xf8", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
        ];
        for (bytes, text) in cases {
            let mut out = Vec::new();
            write_java_text(&mut out, bytes);
            assert_eq!(String::from_utf8_lossy(&out), text, "{bytes:x?}");
        }
    }
}
