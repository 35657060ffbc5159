//! `partition.metadata`: the topic id a partition directory belongs to.
use std::path::Path;

use crate::fs::{self, FileSystem};
use crate::{Error, Result};

/// File name inside a partition directory.
pub const FILE_NAME: &str = "partition.metadata";

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Read the topic id; `None` when there is no file.
pub fn read(fs: &dyn FileSystem, directory: &Path) -> Result<Option<[u8; 16]>> {
    let path = directory.join(FILE_NAME);
    let Some(bytes) = fs::read_file(fs, &path)? else { return Ok(None) };
    parse(&bytes).map(Some).ok_or_else(|| {
        Error::Invalid(format!("{}: not a version 0 partition.metadata with a topic id", path.display()))
    })
}

/// Write the topic id durably (Kafka's `PartitionMetadataFile`).
pub fn write(fs: &dyn FileSystem, directory: &Path, topic_id: [u8; 16]) -> Result<()> {
    let text = format!("version: 0\ntopic_id: {}", encode_id(topic_id));
    fs::write_file_atomically(fs, &directory.join(FILE_NAME), text.as_bytes())
}

fn parse(bytes: &[u8]) -> Option<[u8; 16]> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    if lines.next()?.strip_prefix("version:")?.trim() != "0" {
        return None;
    }
    let id = decode_id(lines.next()?.strip_prefix("topic_id:")?.trim())?;
    (id != [0; 16]).then_some(id)
}

fn encode_id(id: [u8; 16]) -> String {
    let value = u128::from_be_bytes(id);
    let mut text = String::with_capacity(22);
    for digit in 0..22_u32 {
        // 22 digits of six bits; the last carries two bits and four zeros, as base64 without padding has it.
        let bits = if digit < 21 { value >> (122 - 6 * digit) } else { value << 4 };
        text.push(char::from(ALPHABET.get((bits & 63) as usize).copied().unwrap_or(b'A')));
    }
    text
}

fn decode_id(text: &str) -> Option<[u8; 16]> {
    let text = text.trim_end_matches('=');
    if text.len() != 22 {
        return None;
    }
    let mut value: u128 = 0;
    for (digit, character) in text.bytes().enumerate() {
        let bits = ALPHABET.iter().position(|letter| *letter == character)? as u128;
        value = if digit < 21 { value << 6 | bits } else { value << 2 | bits >> 4 };
    }
    Some(value.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_match_kafka_text() {
        let text = "b_oE_sWxR8eSzk2-aq2CIA";
        let id = decode_id(text).unwrap();
        assert_eq!(encode_id(id), text);
        assert_eq!(encode_id([0; 16]), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(parse(format!("version: 0\ntopic_id: {text}").as_bytes()), Some(id));
        assert_eq!(parse(b"version: 1\ntopic_id: b_oE_sWxR8eSzk2-aq2CIA"), None);
        assert_eq!(parse(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"), None);
        assert_eq!(decode_id("short"), None);
    }
}
