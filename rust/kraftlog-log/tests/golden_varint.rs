//! Variable-length integers against `tests/golden/vectors/varint.jsonl.gz`, made by Kafka's ByteUtils.
use flate2::read::GzDecoder;
use kraftlog_log::varint::{self, VarintError};
use std::fs::File;
use std::io::{BufRead, BufReader};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/vectors/varint.jsonl.gz");

/// The raw text of a field of a flat JSON object without commas in its strings.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.split_once(&format!("\"{name}\":"))?.1;
    Some(rest[..rest.find([',', '}']).unwrap()].trim_matches('"'))
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn read(kind: &str, data: &[u8]) -> Result<(i64, usize), VarintError> {
    match kind {
        "unsignedVarint" => varint::read_unsigned_varint(data).map(|(value, size)| (value.into(), size)),
        "varint" => varint::read_varint(data).map(|(value, size)| (value.into(), size)),
        "varlong" => varint::read_varlong(data),
        "unsignedVarlong" => varint::read_unsigned_varlong(data).map(|(value, size)| (value as i64, size)),
        other => panic!("{other}"),
    }
}

fn write(kind: &str, value: i64) -> Vec<u8> {
    let mut out = Vec::new();
    match kind {
        "unsignedVarint" => varint::write_unsigned_varint(&mut out, value as u32),
        "varint" => varint::write_varint(&mut out, i32::try_from(value).unwrap()),
        "varlong" => varint::write_varlong(&mut out, value),
        "unsignedVarlong" => varint::write_unsigned_varlong(&mut out, value as u64),
        other => panic!("{other}"),
    }
    out
}

#[test]
fn varints_equal_kafkas_also_for_odd_input() {
    let file = BufReader::new(GzDecoder::new(File::open(VECTORS).unwrap()));
    let mut rows = 0;
    for line in file.lines() {
        let line = line.unwrap();
        let kind = field(&line, "kind").unwrap();
        let value = || field(&line, "value").unwrap().parse::<i64>().unwrap();
        match field(&line, "decode") {
            None => {
                let data = bytes(field(&line, "hex").unwrap());
                assert_eq!(write(kind, value()), data, "{line}");
                let (found, size) = read(kind, &data).unwrap();
                // An unsigned varint of 2^31 and more is a negative int in Java.
                let same = found == value() || (kind == "unsignedVarint" && found as i32 == value() as i32);
                assert!(same && size == data.len(), "{line}");
            }
            Some(hex) => match field(&line, "exception") {
                None => {
                    let consumed = field(&line, "consumed").unwrap().parse().unwrap();
                    assert_eq!(read(kind, &bytes(hex)), Ok((value(), consumed)), "{line}");
                }
                Some("java.nio.BufferUnderflowException") => {
                    assert_eq!(read(kind, &bytes(hex)), Err(VarintError::Truncated), "{line}");
                }
                Some("java.lang.IllegalArgumentException") => {
                    assert_eq!(read(kind, &bytes(hex)), Err(VarintError::TooLong), "{line}");
                }
                Some(other) => panic!("{other}"),
            },
        }
        rows += 1;
    }
    assert!(rows > 100, "{rows}");
}
