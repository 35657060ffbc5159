use super::*;
use crate::builder::{BatchBuilder, BatchOptions};
use proptest::prelude::*;

const NOW: i64 = 1_700_000_000_000;

fn build(options: BatchOptions, timestamps: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options).unwrap();
    for &timestamp in timestamps {
        builder.append(timestamp, Some(b"key"), Some(b"some value"), &[(b"h", None)]).unwrap();
    }
    builder.finish().unwrap()
}

fn with_header(batch: &[u8], change: impl FnOnce(&mut [u8; HEADER_SIZE])) -> Vec<u8> {
    let mut batch = batch.to_vec();
    let (header, body) = split_header_mut(&mut batch).unwrap();
    change(header);
    update_crc(header, body);
    batch
}

fn rules() -> ProduceRules {
    ProduceRules { now_ms: NOW, ..ProduceRules::default() }
}

fn validate(batch: &[u8], rules: &ProduceRules) -> Result<ProduceCheck> {
    validate_produce_batch(&BatchView::parse(batch).unwrap(), rules, &mut Vec::new())
}

fn code(result: Result<ProduceCheck>) -> i16 {
    match result {
        Ok(_) => 0,
        Err(Error::Rejected { code, .. }) => code,
        Err(other) => panic!("{other}"),
    }
}

fn all_codecs() -> impl Iterator<Item = BatchOptions> {
    Codec::ALL.into_iter().map(|codec| BatchOptions { codec, ..BatchOptions::default() })
}

#[test]
fn produced_batch_tells_its_largest_timestamp_and_where() {
    for options in all_codecs() {
        let check = validate(&build(options, &[NOW - 5, NOW + 3, -1, NOW + 3]), &rules()).unwrap();
        assert_eq!(
            (check.max_timestamp, check.max_timestamp_offset_delta, check.record_count),
            (NOW + 3, 1, 4)
        );
        let append_time = ProduceRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
        let check = validate(&build(options, &[0, 1, 2]), &append_time).unwrap();
        assert_eq!((check.max_timestamp, check.max_timestamp_offset_delta), (NOW, 2));
    }
}

/// What a Kafka broker answered for hand-made batches (tests/golden/topics/workload.json, `raw`).
#[test]
fn produced_timestamps_are_judged_as_kafka_judged_them() {
    let hour = 3_600_000;
    let cases: [(&[i64], i16); 12] = [
        (&[0], 0),
        (&[-1, -1, -1], 0),
        (&[1, 2, 3], 0),
        (&[4_102_444_800_000], 32),
        (&[NOW + 2 * hour], 32),
        (&[NOW + hour / 2], 0),
        (&[i64::MAX], 32),
        (&[i64::MAX / 2, i64::MAX / 2 - 7], 32),
        (&[-95_000, -94_000], 0),
        (&[-i64::MAX], 32),
        (&[0, 1_702_389_442, 100], 0),
        (&[NOW, NOW - 1, NOW - 2], 0),
    ];
    for options in all_codecs() {
        for (timestamps, expected) in cases {
            assert_eq!(code(validate(&build(options, timestamps), &rules())), expected, "{timestamps:?}");
        }
    }
    let any_future = ProduceRules { timestamp_after_max_ms: i64::MAX, ..rules() };
    assert_eq!(code(validate(&build(BatchOptions::default(), &[i64::MAX]), &any_future)), 0);
}

#[test]
fn produced_batch_with_bad_header_is_refused() {
    let good = build(BatchOptions::default(), &[NOW, NOW]);
    let producer =
        BatchOptions { producer_id: 9, producer_epoch: 0, base_sequence: 0, ..BatchOptions::default() };
    let idempotent = build(producer, &[NOW, NOW]);
    let cases: [(&str, Vec<u8>, i16); 12] = [
        ("good", good.clone(), 0),
        ("idempotent", idempotent.clone(), 0),
        // As Kafka: a client that forwards batches as stored leaves their offsets in; the leader assigns its own.
        ("base offset", with_header(&good, |h| set_base_offset(h, 1)), 0),
        ("count 0", with_header(&good, |h| put(h, 57, 0i32.to_be_bytes())), 87),
        ("count 3", with_header(&good, |h| put(h, 57, 3i32.to_be_bytes())), 87),
        ("count 1", with_header(&good, |h| put(h, 57, 1i32.to_be_bytes())), 87),
        (
            "delta and count 3",
            with_header(&good, |h| (put(h, 57, 3i32.to_be_bytes()), put(h, 23, 2i32.to_be_bytes())).0),
            87,
        ),
        ("control", with_header(&good, |h| put(h, 21, attributes::CONTROL.to_be_bytes())), 87),
        ("sequence", with_header(&idempotent, |h| put(h, 53, (-1i32).to_be_bytes())), 87),
        ("transactional", with_header(&good, |h| put(h, 21, attributes::TRANSACTIONAL.to_be_bytes())), 87),
        ("codec 6", with_header(&good, |h| put(h, 21, 6i16.to_be_bytes())), 76),
        ("codec zstd", with_header(&good, |h| put(h, 21, 4i16.to_be_bytes())), 87),
    ];
    for (name, batch, expected) in cases {
        assert_eq!(code(validate(&batch, &rules())), expected, "{name}");
    }
    let mut wrong = good;
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(code(validate(&wrong, &rules())), 2);
    let small = ProduceRules { max_message_bytes: idempotent.len() - 1, ..rules() };
    assert_eq!(code(validate(&idempotent, &small)), 10);
}

#[test]
fn control_batch_of_the_node_itself_passes() {
    let options = BatchOptions { is_control: true, base_offset: 55, ..BatchOptions::default() };
    let batch = build(options, &[NOW]);
    for origin in [RecordOrigin::Coordinator, RecordOrigin::Raft] {
        assert_eq!(code(validate(&batch, &ProduceRules { origin, ..rules() })), 0);
    }
}

#[test]
fn record_without_a_key_is_refused_by_a_compacted_topic_and_named() {
    let mut builder = BatchBuilder::new(BatchOptions::default()).unwrap();
    builder.append(NOW, Some(b"k"), None, &[]).unwrap();
    builder.append(NOW, None, Some(b"v"), &[]).unwrap();
    builder.append(NOW, None, Some(b"w"), &[]).unwrap();
    let batch = builder.finish().unwrap();
    let compacted = ProduceRules { is_compacted: true, ..rules() };
    match validate(&batch, &compacted) {
        Err(Error::Rejected { code: 87, record_errors, .. }) => {
            assert_eq!(record_errors.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1, 2]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn offset_deltas_that_skip_are_refused() {
    let mut builder = BatchBuilder::new(BatchOptions::default()).unwrap();
    builder.append_at(0, NOW, None, None, &[]).unwrap();
    builder.append_at(2, NOW, None, None, &[]).unwrap();
    let skipping = with_header(&builder.finish().unwrap(), |h| put(h, 23, 1i32.to_be_bytes()));
    assert_eq!(code(validate(&skipping, &rules())), 87);
    assert_eq!(code(validate(&skipping, &ProduceRules { gives_offset_deltas: true, ..rules() })), 0);
}

#[test]
fn a_cut_batch_behind_the_produced_one_is_dropped() {
    let batch = build(BatchOptions::default(), &[NOW]);
    for cut in [1, 11, 16, 17, 40, batch.len() - 1] {
        let bytes = [&batch[..], &batch[..cut]].concat();
        assert_eq!(single_batch(&bytes).unwrap().bytes(), batch);
    }
    let mut wrong = batch.repeat(2);
    wrong[batch.len() + 16] = 9;
    assert!(matches!(single_batch(&wrong), Err(Error::Rejected { code: 2, .. })));
}

#[test]
fn produce_request_has_one_batch() {
    let batch = build(BatchOptions::default(), &[NOW]);
    assert_eq!(single_batch(&batch).unwrap().bytes(), batch);
    let with_magic = |magic: i8| {
        let mut bytes = batch.clone();
        bytes[16] = magic as u8;
        bytes
    };
    let cases = [
        (Vec::new(), 87),
        (batch[..70].to_vec(), 87),
        (batch.repeat(2), 87),
        (with_magic(0), 87),
        (with_magic(1), 87),
        (with_magic(3), 2),
        (with_magic(-1), 2),
        (vec![0; 80], 2),
    ];
    for (bytes, expected) in cases {
        assert!(
            matches!(single_batch(&bytes), Err(Error::Rejected { code, .. }) if code == expected),
            "{bytes:?}"
        );
    }
}

#[test]
fn assigned_header_keeps_a_right_checksum() {
    for options in all_codecs() {
        let original = build(options, &[NOW - 9, NOW]);
        for timestamp_type in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
            let mut batch = original.clone();
            let rules = ProduceRules { timestamp_type, now_ms: NOW + 5, ..rules() };
            let check = validate(&batch, &rules).unwrap();
            let (header, body) = split_header_mut(&mut batch).unwrap();
            check.assign(header, body, timestamp_type, 1234, 7);
            let view = BatchView::parse(&batch).unwrap();
            view.validate_crc().unwrap();
            assert_eq!(
                (view.base_offset(), view.last_offset(), view.partition_leader_epoch()),
                (1234, 1235, 7)
            );
            assert_eq!(view.timestamp_type(), timestamp_type);
            let mut scratch = Vec::new();
            let timestamps: Vec<i64> =
                view.records(&mut scratch).unwrap().map(|record| record.unwrap().timestamp).collect();
            match timestamp_type {
                TimestampType::CreateTime | TimestampType::NoTimestamp => {
                    assert_eq!(timestamps, [NOW - 9, NOW])
                }
                TimestampType::LogAppendTime => assert_eq!(timestamps, [NOW + 5, NOW + 5]),
            }
        }
    }
}

#[test]
fn wrong_largest_timestamp_of_a_producer_is_mended() {
    let mut batch = with_header(&build(BatchOptions::default(), &[NOW]), |h| put(h, 35, 5i64.to_be_bytes()));
    let check = validate(&batch, &rules()).unwrap();
    let (header, body) = split_header_mut(&mut batch).unwrap();
    check.assign(header, body, TimestampType::CreateTime, 0, 0);
    let view = BatchView::parse(&batch).unwrap();
    assert_eq!(view.max_timestamp(), NOW);
    view.validate_crc().unwrap();
}

#[test]
fn sequences_wrap_to_zero() {
    assert_eq!(increment_sequence(i32::MAX, 1), 0);
    assert_eq!(increment_sequence(i32::MAX - 1, 1), i32::MAX);
    assert_eq!(increment_sequence(-1, 5), -1);
}

#[test]
fn iteration_ends_after_an_error_and_tells_where() {
    let mut bytes = build(BatchOptions::default(), &[NOW]);
    let good = bytes.len();
    bytes.extend_from_slice(&[0; 80]);
    let mut batches = Batches::new(&bytes);
    assert!(batches.next().unwrap().is_ok());
    assert!(matches!(batches.next(), Some(Err(Error::Corrupt { position, .. })) if position == good as u64));
    assert!(batches.next().is_none());
    assert_eq!(batches.position(), good);
}

#[test]
fn file_and_memory_differ_as_kafkas_readers_do() {
    let batch = build(BatchOptions::default(), &[NOW]);
    let mut unknown = batch.clone();
    unknown[16] = 3;
    assert!(next_batch_from(Source::Memory, &unknown, 0).is_err());
    let view = next_batch_from(Source::File, &unknown, 0).unwrap().unwrap();
    view.validate_crc().unwrap();
    assert!(view.records(&mut Vec::new()).is_err());
    for length in [0, 11, 12, 16, 17] {
        assert!(next_batch_from(Source::File, &vec![0; length], 0).unwrap().is_none(), "{length}");
    }
    assert!(next_batch_from(Source::File, &[0; 18], 0).is_err());
    assert!(next_batch_from(Source::Memory, &[0; 11], 0).unwrap().is_none());
    assert!(next_batch_from(Source::Memory, &[0; 12], 0).is_err());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), magic in prop::bool::ANY, length in 0i32..200) {
        let mut bytes = bytes;
        if magic && bytes.len() > 17 {
            bytes[16] = 2;
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
        }
        for source in [Source::Memory, Source::File] {
            for batch in Batches::with_source(source, &bytes).flatten() {
                let _ = batch.validate_crc();
                let _ = validate_produce_batch(&batch, &ProduceRules::default(), &mut Vec::new());
                let _ = batch.records(&mut Vec::new()).map(Iterator::count);
            }
        }
    }

    #[test]
    fn damaged_body_never_panics(codec in 0usize..5, at in any::<prop::sample::Index>(), xor in 1u8..) {
        let options = BatchOptions { codec: Codec::ALL[codec], ..BatchOptions::default() };
        let mut bytes = build(options, &[NOW; 20]);
        let at = HEADER_SIZE + at.index(bytes.len() - HEADER_SIZE);
        bytes[at] ^= xor;
        let batch = BatchView::parse(&bytes).unwrap();
        prop_assert!(batch.validate_crc().is_err());
        let _ = batch.records(&mut Vec::new()).map(Iterator::count);
    }
}
