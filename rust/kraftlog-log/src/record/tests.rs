use super::*;
use crate::varint::{write_varint, write_varlong};
use proptest::prelude::*;

/// A record from fields that may contradict each other.
fn assemble(
    size_change: i32,
    timestamp: i64,
    offset: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: i32,
) -> Vec<u8> {
    let mut body = vec![0];
    write_varlong(&mut body, timestamp);
    write_varint(&mut body, offset);
    for field in [key, value] {
        write_varint(&mut body, field.map_or(-1, |field| field.len() as i32));
        body.extend_from_slice(field.unwrap_or_default());
    }
    write_varint(&mut body, headers);
    for _ in 0..headers {
        body.extend_from_slice(&[2, b'h', 1]);
    }
    let mut record = Vec::new();
    write_varint(&mut record, body.len() as i32 + size_change);
    record.extend(body);
    record
}

fn field() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        (0usize..20_000).prop_map(|size| vec![7; size])
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The short way answers only where the long way answers the same.
    #[test]
    fn common_records_are_read_as_any_record(
        size_change in prop_oneof![8 => Just(0), 1 => -3i32..4],
        timestamp in prop_oneof![-9_000i64..9_000, any::<i64>()],
        offset in prop_oneof![-5i32..70_000, any::<i32>()],
        key in field(),
        value in field(),
        headers in prop_oneof![4 => Just(0), 1 => 0i32..3],
        behind in 0usize..40,
        damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut bytes = assemble(size_change, timestamp, offset, key.as_deref(), value.as_deref(), headers);
        if let Some((at, byte)) = damage {
            let at = at.index(bytes.len().min(40));
            bytes[at] = byte;
        }
        bytes.resize(bytes.len() + behind, 0);
        let long = read_any_record(&bytes);
        if let Some(short) = read_common_record(&bytes) {
            prop_assert_eq!(Ok(short), long);
        }
        if size_change == 0 && damage.is_none() {
            let (raw, rest) = long.unwrap();
            prop_assert_eq!((raw.timestamp_delta, raw.offset_delta, rest.len()), (timestamp, offset, behind));
            prop_assert_eq!((raw.key, raw.value), (key.as_deref(), value.as_deref()));
            prop_assert_eq!(raw.headers.len(), headers as usize);
            prop_assert!(raw.headers.into_iter().all(|header| header == (b"h".as_slice(), None)));
        }
    }
}

#[test]
fn negative_lengths_are_null_but_negative_counts_are_defects() {
    let mut body = vec![0, 0, 0];
    write_varint(&mut body, -7);
    write_varint(&mut body, -2);
    body.push(0);
    let mut record = vec![body.len() as u8 * 2];
    record.extend(&body);
    record.resize(80, 0);
    let (raw, _) = read_record(&record).unwrap();
    assert_eq!((raw.key, raw.value), (None, None));
    record[body.len()] = 1;
    assert_eq!(read_record(&record).unwrap_err(), RecordDefect::HeaderCount(-1));
}

#[test]
fn defects_say_what_is_wrong() {
    let good = assemble(0, 0, 0, Some(b"key"), Some(b"value"), 0);
    let cases: [(Vec<u8>, &str); 5] = [
        (good[..good.len() - 1].to_vec(), "record size is 14, but only 13 bytes remain"),
        (vec![0x01; 40], "record size is -1, but only 39 bytes remain"),
        (vec![0; 40], "the bytes end inside a record"),
        (vec![0xff; 40], "a variable-length integer has too many bytes"),
        (
            assemble(1, 0, 0, None, None, 0).into_iter().chain([0; 40]).collect(),
            "record size is 7, but its fields take 6",
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(read_record(&bytes).unwrap_err().to_string(), expected);
    }
}
