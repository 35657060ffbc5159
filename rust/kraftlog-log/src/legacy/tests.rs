//! A writer of v0 and v1, for tests only, against the reader; and bytes that no writer made.
use super::*;
use crate::batch::{next_batch, next_batch_shallow, BatchView, Batches, Source, TimestampType};
use crate::record::RecordRef;
use proptest::prelude::*;

/// What is read of a message, and what a test asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

impl From<RecordRef<'_>> for Message {
    fn from(record: RecordRef<'_>) -> Self {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        Self {
            offset: record.offset,
            timestamp: record.timestamp,
            key: owned(record.key),
            value: owned(record.value),
        }
    }
}

fn entry(magic: i8, attributes: u8, message: &Message) -> Vec<u8> {
    let mut body = vec![magic as u8, attributes];
    if magic > 0 {
        body.extend(message.timestamp.to_be_bytes());
    }
    for bytes in [&message.key, &message.value] {
        let length = bytes.as_ref().map_or(-1, |bytes| bytes.len() as i32);
        body.extend(length.to_be_bytes());
        body.extend(bytes.iter().flatten());
    }
    let mut entry = message.offset.to_be_bytes().to_vec();
    entry.extend((body.len() as i32 + 4).to_be_bytes());
    entry.extend(crc32(&body).to_be_bytes());
    entry.extend(body);
    entry
}

/// The entry that holds `messages` compressed, at the offset of the last.
fn wrapper(magic: i8, codec: Codec, append_time: Option<i64>, messages: &[Message]) -> Vec<u8> {
    let (first, last) = (messages[0].offset, messages[messages.len() - 1].offset);
    let mut set = Vec::new();
    for message in messages {
        let offset = if magic == 0 { message.offset } else { message.offset - first };
        set.extend(entry(magic, 0, &Message { offset, ..message.clone() }));
    }
    let mut value = Vec::new();
    compression::compress(codec, None, &set, &mut value).unwrap();
    if (magic, codec) == (0, Codec::Lz4) {
        // What Kafka computes over the magic as well, to the surprise of every other library.
        value[6] = 0x5a;
    }
    let largest = messages.iter().map(|message| message.timestamp).max().unwrap();
    let attributes = codec as u8 | if append_time.is_some() { TIMESTAMP_TYPE } else { 0 };
    let timestamp = append_time.unwrap_or(largest);
    entry(magic, attributes, &Message { offset: last, timestamp, key: None, value: Some(value) })
}

fn read(bytes: &[u8]) -> Vec<Message> {
    let batch = BatchView::parse(bytes).unwrap();
    batch.validate_crc().unwrap();
    let mut scratch = Vec::new();
    let messages: Vec<Message> =
        batch.records(&mut scratch).unwrap().map(|record| record.unwrap().into()).collect();
    assert_eq!(batch.base_offset(), messages[0].offset);
    assert_eq!(batch.last_offset(), messages[messages.len() - 1].offset);
    assert_eq!(batch.record_count() as usize, messages.len());
    assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.last_sequence()), (-1, -1, -1));
    assert_eq!(batch.partition_leader_epoch(), -1);
    assert!(!batch.is_control() && !batch.is_transactional() && batch.delete_horizon_ms().is_none());
    let shallow = next_batch_shallow(Source::File, bytes, 0).unwrap().unwrap();
    assert_eq!(shallow.next_offset(), batch.next_offset());
    assert_eq!(shallow.max_timestamp(), batch.max_timestamp());
    let mut scratch = Vec::new();
    let again: Vec<Message> =
        shallow.records(&mut scratch).unwrap().map(|record| record.unwrap().into()).collect();
    assert_eq!(again, messages);
    messages
}

fn message(offset: i64, timestamp: i64, value: &[u8]) -> Message {
    Message { offset, timestamp, key: None, value: Some(value.to_vec()) }
}

fn refusal(bytes: &[u8]) -> String {
    let batch = BatchView::parse(bytes).unwrap();
    let mut scratch = Vec::new();
    match batch.records(&mut scratch) {
        Ok(records) => records.collect::<Result<Vec<_>>>().expect_err("a refusal").to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_plain_message_is_a_batch_of_one_record() {
    for magic in [0, 1] {
        for (key, value) in
            [(None, None), (Some(vec![]), Some(vec![])), (Some(b"k".to_vec()), Some(b"v".to_vec()))]
        {
            let timestamp = if magic == 0 { -1 } else { 17 };
            let given = Message { offset: 1 << 40, timestamp, key, value };
            let bytes = entry(magic, 0, &given);
            assert_eq!(read(&bytes), [given]);
            let batch = BatchView::parse(&bytes).unwrap();
            assert_eq!((batch.magic(), batch.max_timestamp()), (magic, timestamp));
            let kind = if magic == 0 { TimestampType::NoTimestamp } else { TimestampType::CreateTime };
            assert_eq!(batch.timestamp_type(), kind);
            assert_eq!(batch.codec(), Ok(Codec::None));
        }
    }
    let bytes = entry(1, TIMESTAMP_TYPE, &message(3, 99, b"x"));
    assert_eq!(BatchView::parse(&bytes).unwrap().timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(read(&bytes), [message(3, 99, b"x")]);
}

#[test]
fn append_time_of_a_set_is_the_time_of_all_its_messages() {
    let given = [message(5, 1, b"a"), message(6, 2, b"b")];
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4] {
        let bytes = wrapper(1, codec, Some(77), &given);
        assert_eq!(read(&bytes), [message(5, 77, b"a"), message(6, 77, b"b")]);
    }
}

#[test]
fn inner_offsets_with_gaps_keep_them() {
    let given = [message(100, 1, b"a"), message(103, 2, b"b"), message(109, 3, b"c")];
    assert_eq!(read(&wrapper(1, Codec::Gzip, None, &given)), given);
    // A wrapper at 0 is left as librdkafka produced it.
    let inner = [message(0, 1, b"a"), message(1, 2, b"b")];
    let mut bytes = wrapper(1, Codec::Gzip, None, &inner);
    bytes[..8].copy_from_slice(&0i64.to_be_bytes());
    let batch = BatchView::parse(&bytes).unwrap();
    let mut scratch = Vec::new();
    let found: Vec<Message> =
        batch.records(&mut scratch).unwrap().map(|record| record.unwrap().into()).collect();
    assert_eq!(found, inner);
}

#[test]
fn sets_that_kafka_refuses_are_refused_by_name() {
    let plain = [message(0, 1, b"a"), message(1, 2, b"b")];
    let set = |magic, codec: u8, value: Option<Vec<u8>>| {
        entry(magic, codec, &Message { offset: 1, timestamp: 2, key: None, value })
    };
    let gzip = |set: &[u8]| {
        let mut value = Vec::new();
        compression::compress(Codec::Gzip, None, set, &mut value).unwrap();
        value
    };
    let nested = wrapper(1, Codec::Gzip, None, &plain);
    let mut late = wrapper(1, Codec::Gzip, None, &[message(9, 1, b"a"), message(19, 2, b"b")]);
    late[..8].copy_from_slice(&5i64.to_be_bytes());
    for (bytes, expected) in [
        (set(1, 4, Some(vec![1])), "cannot be compressed with zstd"),
        (set(0, 4, Some(vec![1])), "cannot be compressed with zstd"),
        (set(1, 5, Some(vec![1])), "unknown compression codec 5"),
        (set(1, 1, None), "message set that is null"),
        (set(1, 1, Some(vec![1, 2, 3])), "gzip does not decompress"),
        (set(1, 1, Some(gzip(b""))), "without messages"),
        (set(1, 1, Some(gzip(&[0; 20]))), "message length 0, the least is 14"),
        (set(1, 1, Some(gzip(&nested))), "a compressed message inside a compressed message"),
        (set(1, 1, Some(gzip(&entry(2, 0, &plain[0])))), "magic 2 inside a message of format 1"),
        (late, "the set's offset 5 is before its last inner offset 10"),
    ] {
        let found = refusal(&bytes);
        assert!(found.contains(expected), "{found:?} where {expected:?} is expected");
        // What cannot be read is a whole batch all the same: recovery keeps it when its checksum is right.
        let batch = BatchView::parse(&bytes).unwrap();
        batch.validate_crc().unwrap();
        assert_eq!(batch.next_offset(), batch.last_offset() + 1);
    }
}

#[test]
fn messages_of_another_format_than_their_wrapper_are_read() {
    let gzip = |set: &[u8]| {
        let mut value = Vec::new();
        compression::compress(Codec::Gzip, None, set, &mut value).unwrap();
        Some(value)
    };
    let mut set = entry(0, 0, &message(0, -1, b"a"));
    set.extend(entry(1, 0, &message(1, 5, b"b")));
    let outer = Message { offset: 11, timestamp: 9, key: None, value: gzip(&set) };
    assert_eq!(read(&entry(1, 1, &outer)), [message(10, -1, b"a"), message(11, 5, b"b")]);
    // What has a time has the wrapper's.
    let appended = entry(1, 1 | TIMESTAMP_TYPE, &outer);
    assert_eq!(read(&appended), [message(10, -1, b"a"), message(11, 9, b"b")]);
    let outer = Message { offset: 1, ..outer };
    assert_eq!(read(&entry(0, 1, &outer)), [message(0, -1, b"a"), message(1, 5, b"b")]);
}

#[test]
fn messages_shorter_than_their_key_or_value_are_refused() {
    let whole = entry(1, 0, &message(0, 1, b"value"));
    for cut in 1..=13 {
        let mut bytes = whole[..whole.len() - cut].to_vec();
        let length = (bytes.len() - LOG_OVERHEAD) as i32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        let found = refusal(&bytes);
        assert!(found.contains("bytes where") || found.contains("the message ends"), "{found}");
    }
}

#[test]
fn an_inner_set_that_is_cut_short_ends_before_the_cut() {
    let mut set = entry(1, 0, &message(0, 1, b"a"));
    set.extend(&entry(1, 0, &message(1, 2, b"b"))[..20]);
    let mut value = Vec::new();
    compression::compress(Codec::Gzip, None, &set, &mut value).unwrap();
    let bytes = entry(1, 1, &Message { offset: 7, timestamp: 1, key: None, value: Some(value) });
    assert_eq!(read(&bytes), [message(7, 1, b"a")]);
}

#[test]
fn a_set_is_decompressed_within_the_bound_only() {
    let bytes = wrapper(1, Codec::Gzip, None, &[message(0, 1, &vec![0; 1 << 20])]);
    let batch = BatchView::parse(&bytes).unwrap();
    let mut out = Vec::new();
    let refused = transcode(&batch, Bound::of_bytes(1 << 19), true, &mut out).unwrap_err();
    assert!(refused.to_string().contains("more than the bound of 524288 bytes"), "{refused}");
}

#[test]
fn all_formats_in_one_buffer() {
    let mut bytes = entry(0, 0, &message(0, -1, b"v0"));
    bytes.extend(wrapper(1, Codec::Lz4, None, &[message(1, 5, b"v1"), message(2, 6, b"v1")]));
    let mut builder = crate::builder::BatchBuilder::new(crate::builder::BatchOptions {
        base_offset: 3,
        ..Default::default()
    })
    .unwrap();
    builder.append(7, None, Some(b"v2"), &[]).unwrap();
    bytes.extend(builder.finish().unwrap());
    bytes.extend(entry(0, 0, &message(4, -1, b"last")));
    let (mut magics, mut offsets) = (Vec::new(), Vec::new());
    for batch in Batches::with_source(Source::File, &bytes) {
        let batch = batch.unwrap();
        magics.push(batch.magic());
        let mut scratch = Vec::new();
        offsets.extend(batch.records(&mut scratch).unwrap().map(|record| record.unwrap().offset));
    }
    assert_eq!(magics, [0, 1, 2, 0]);
    assert_eq!(offsets, [0, 1, 2, 3, 4]);
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let field = || prop::option::of(prop::collection::vec(any::<u8>(), 0..40));
    let one = (1i64..4, prop_oneof![Just(-1i64), any::<i64>(), 0i64..1 << 42], field(), field());
    (0i64..1 << 60, prop::collection::vec(one, 1..30)).prop_map(|(mut offset, messages)| {
        let of = |(step, timestamp, key, value)| {
            offset += step;
            Message { offset, timestamp, key, value }
        };
        messages.into_iter().map(of).collect()
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        given in messages(),
        magic in 0i8..2,
        codec in prop::sample::select(vec![Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4]),
        append_time in prop::option::of(0i64..1 << 50),
    ) {
        let append_time = append_time.filter(|_| magic == 1 && codec != Codec::None);
        let expected: Vec<Message> = given.iter().map(|message| Message {
            timestamp: if magic == 0 { -1 } else { append_time.unwrap_or(message.timestamp) },
            ..message.clone()
        }).collect();
        let found: Vec<Message> = if codec == Codec::None {
            given.iter().flat_map(|message| read(&entry(magic, 0, message))).collect()
        } else {
            read(&wrapper(magic, codec, append_time, &given))
        };
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn damaged_sets_never_panic(
        given in messages(),
        magic in 0i8..2,
        codec in prop::sample::select(vec![Codec::Gzip, Codec::Snappy, Codec::Lz4]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = wrapper(magic, codec, None, &given);
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        for source in [Source::File, Source::Memory] {
            let mut position = 0;
            for batch in Batches::with_source(source, &bytes).map_while(Result::ok) {
                prop_assert_eq!(batch.position(), position);
                position = batch.end_position();
                let mut scratch = Vec::new();
                let _ = batch.records(&mut scratch).map(|records| records.take(1000).count());
            }
        }
    }

    /// Damage inside the compressed set, which the wrapper's checksum does not show.
    #[test]
    fn damaged_inner_sets_never_panic(
        given in messages(),
        magic in 0i8..2,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut set: Vec<u8> = given.iter().flat_map(|message| entry(magic, 0, message)).collect();
        for (at, byte) in edits {
            let at = at.index(set.len());
            set[at] = byte;
        }
        let mut value = Vec::new();
        compression::compress(Codec::Snappy, None, &set, &mut value).unwrap();
        let bytes = entry(magic, 2, &Message { offset: i64::MAX, timestamp: 0, key: None, value: Some(value) });
        let batch = next_batch(&bytes, 0).unwrap().unwrap();
        let mut scratch = Vec::new();
        if let Ok(records) = batch.records(&mut scratch) {
            for record in records {
                prop_assert!(record.is_ok(), "transcoded records are sound");
            }
        }
    }
}
