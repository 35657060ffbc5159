//! Batches or records of a file as JSON lines.
//!
//! Bytes are written as text where they are UTF-8, and as base64 under a name that ends in `Base64` where
//! they are not, so that a reader never has to guess.
use super::dump::Describe;
use super::text::coordinator_epoch;
use crate::batch::{increment_sequence, BatchView};
use crate::record::RecordRef;
use crate::Result;
use std::io::Write;

/// `,"name":number`
fn write_number(out: &mut Vec<u8>, name: &str, number: i64) {
    out.push(b',');
    write_name(out, name);
    write_integer(out, number);
}

/// `"name":`, for names that need no escapes.
fn write_name(out: &mut Vec<u8>, name: &str) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

pub(super) fn write_integer(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0u8; 20];
    let mut left = number.unsigned_abs();
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
        used += 1;
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(20 - used..).unwrap_or_default());
}

/// The line of a batch.
pub(super) fn write_batch_json(out: &mut Vec<u8>, first_members: &str, batch: &BatchView<'_>, position: u64) {
    let codec = match batch.codec() {
        Ok(codec) => codec.name().to_owned(),
        Err(id) => format!("unknown({id})"),
    };
    let horizon = batch.delete_horizon_ms().map_or_else(|| "null".to_owned(), |time| time.to_string());
    // Writing to a vector does not fail.
    let _ = writeln!(
        out,
        "{{{first_members}\"baseOffset\":{},\"lastOffset\":{},\"count\":{},\"baseSequence\":{},\"lastSequence\":{},\
         \"producerId\":{},\"producerEpoch\":{},\"partitionLeaderEpoch\":{},\"isTransactional\":{},\
         \"isControl\":{},\"deleteHorizonMs\":{horizon},\"position\":{position},\"timestampType\":\"{}\",\
         \"maxTimestamp\":{},\"size\":{},\"magic\":{},\"compressCodec\":\"{codec}\",\"crc\":{},\"isValid\":{}}}",
        batch.base_offset(),
        batch.last_offset(),
        batch.record_count(),
        batch.base_sequence(),
        batch.last_sequence(),
        batch.producer_id(),
        batch.producer_epoch(),
        batch.partition_leader_epoch(),
        batch.is_transactional(),
        batch.is_control(),
        batch.timestamp_type().name(),
        batch.max_timestamp(),
        batch.bytes().len(),
        batch.magic(),
        batch.crc(),
        batch.computed_crc() == batch.crc(),
    );
}

/// The line of a record.
///
/// # Errors
/// What `describe` gives.
pub(super) fn write_record(
    out: &mut Vec<u8>,
    first_members: &str,
    data: bool,
    batch: &BatchView<'_>,
    record: &RecordRef<'_>,
    describe: &mut dyn Describe,
) -> Result<()> {
    out.push(b'{');
    out.extend_from_slice(first_members.as_bytes());
    write_name(out, "offset");
    write_integer(out, record.offset);
    write_number(out, "timestamp", record.timestamp);
    out.extend_from_slice(b",\"timestampType\":\"");
    out.extend_from_slice(batch.timestamp_type().name().as_bytes());
    out.push(b'"');
    write_number(out, "partitionLeaderEpoch", i64::from(batch.partition_leader_epoch()));
    write_number(out, "sequence", i64::from(increment_sequence(batch.base_sequence(), record.offset_delta)));
    write_number(out, "keySize", size_of_field(record.key));
    write_number(out, "valueSize", size_of_field(record.value));
    if data {
        write_headers(out, record);
    } else {
        write_header_keys(out, record);
    }
    if batch.is_control() {
        write_control(out, record, describe)?;
    } else if data && !describe.contents(out, record, ",")? {
        out.push(b',');
        write_bytes(out, "key", record.key);
        out.push(b',');
        write_bytes(out, "value", record.value);
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

fn size_of_field(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |bytes| bytes.len() as i64)
}

fn write_header_keys(out: &mut Vec<u8>, record: &RecordRef<'_>) {
    out.extend_from_slice(b",\"headerKeys\":[");
    for (index, (key, _)) in record.headers.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(out, &String::from_utf8_lossy(key));
    }
    out.push(b']');
}

fn write_headers(out: &mut Vec<u8>, record: &RecordRef<'_>) {
    out.extend_from_slice(b",\"headers\":[");
    for (index, (key, value)) in record.headers.into_iter().enumerate() {
        out.extend_from_slice(if index > 0 { b",{\"key\":" } else { b"{\"key\":" });
        write_text(out, &String::from_utf8_lossy(key));
        out.push(b',');
        write_bytes(out, "value", value);
        out.push(b'}');
    }
    out.push(b']');
}

/// What a control record says: transaction markers in words, others as described, or with their value as it is.
fn write_control(out: &mut Vec<u8>, record: &RecordRef<'_>, describe: &mut dyn Describe) -> Result<()> {
    let kind = record.key.and_then(|key| key.get(2..)).and_then(|key| key.first_chunk::<2>());
    let kind = kind.map_or(-1, |kind| i16::from_be_bytes(*kind));
    if let Some(epoch) = coordinator_epoch(kind, record.value) {
        out.extend_from_slice(if kind == 0 {
            b",\"endTxnMarker\":\"ABORT\""
        } else {
            b",\"endTxnMarker\":\"COMMIT\""
        });
        write_number(out, "coordinatorEpoch", i64::from(epoch));
        return Ok(());
    }
    if describe.control(out, record)? {
        return Ok(());
    }
    let name = match kind {
        2 => "LeaderChange",
        3 => "SnapshotHeader",
        4 => "SnapshotFooter",
        5 => "KRaftVersion",
        6 => "KRaftVoters",
        _ => "UNKNOWN",
    };
    out.extend_from_slice(b",\"controlType\":");
    write_text(out, name);
    out.push(b',');
    write_base64(out, "value", record.value.unwrap_or_default());
    Ok(())
}

/// `"name":"text"`, `"name":null` or `"nameBase64":"..."`.
fn write_bytes(out: &mut Vec<u8>, name: &str, bytes: Option<&[u8]>) {
    let Some(bytes) = bytes else {
        write_name(out, name);
        out.extend_from_slice(b"null");
        return;
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            write_name(out, name);
            write_text(out, text);
        }
        Err(_) => write_base64(out, name, bytes),
    }
}

/// A string with the escapes that JSON wants.
fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(index) = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        let (plain, special) = rest.split_at(index);
        out.extend_from_slice(plain);
        let Some((&byte, after)) = special.split_first() else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn write_base64(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"Base64\":\"");
    let sextet = |bits: u32, shift: u32| BASE64.get((bits >> shift & 63) as usize).copied().unwrap_or(b'=');
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let mut four = [sextet(bits, 18), sextet(bits, 12), sextet(bits, 6), sextet(bits, 0)];
        if let Some(padding) = four.get_mut(group.len() + 1..) {
            padding.fill(b'=');
        }
        out.extend_from_slice(&four);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    #[test]
    fn text_is_escaped_and_other_bytes_are_base64() {
        assert_eq!(written(|out| write_text(out, "a\"b\\c\n\u{1}é")), r#""a\"b\\c\n\u0001é""#);
        for (bytes, text) in
            [(&b"\xff"[..], "/w=="), (b"\xff\0", "/wA="), (b"\xff\0a", "/wBh"), (b"\xff\0ab", "/wBhYg==")]
        {
            assert_eq!(written(|out| write_bytes(out, "v", Some(bytes))), format!("\"vBase64\":\"{text}\""));
        }
        assert_eq!(written(|out| write_bytes(out, "v", None)), "\"v\":null");
    }

    #[test]
    fn integers_are_whole() {
        for number in [0, 7, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(written(|out| write_integer(out, number)), number.to_string());
        }
    }
}
