use super::*;
use crate::batch::{BatchView, Batches};
use proptest::prelude::*;

type OwnedHeaders = Vec<(Vec<u8>, Option<Vec<u8>>)>;
type Owned = (i64, Option<Vec<u8>>, Option<Vec<u8>>, OwnedHeaders);

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => prop::collection::vec(any::<u8>(), 0..90), 1 => prop::collection::vec(any::<u8>(), 0..9000)]
}

fn record() -> impl Strategy<Value = Owned> {
    let headers = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec((bytes(), prop::option::of(bytes())), 0..4)];
    let timestamp = prop_oneof![1_600_000_000_000i64..1_600_000_100_000, any::<i64>()];
    (timestamp, prop::option::of(bytes()), prop::option::of(bytes()), headers)
}

fn append(builder: &mut BatchBuilder, record: &Owned) {
    let headers: Vec<HeaderRef<'_>> = record.3.iter().map(|(k, v)| (k.as_slice(), v.as_deref())).collect();
    builder.append(record.0, record.1.as_deref(), record.2.as_deref(), &headers).unwrap();
}

fn read(batch: &BatchView<'_>) -> Vec<(i64, Owned)> {
    let mut scratch = Vec::new();
    let records = batch.records(&mut scratch).unwrap();
    records
        .map(|record| {
            let record = record.unwrap();
            let headers =
                record.headers.into_iter().map(|(k, v)| (k.to_vec(), v.map(<[u8]>::to_vec))).collect();
            (
                record.offset,
                (record.timestamp, record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec), headers),
            )
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_roundtrip_in_every_codec(records in prop::collection::vec(record(), 1..40), per_batch in 1i32..30) {
        for codec in Codec::ALL {
            let options = BatchOptions { base_offset: 17, codec, producer_id: 5, producer_epoch: 1, base_sequence: i32::MAX - 3, ..BatchOptions::default() };
            let mut builder = BatchBuilder::new(options).unwrap();
            for record in &records {
                append(&mut builder, record);
                if builder.record_count() == per_batch {
                    builder.next_batch().unwrap();
                }
            }
            let out = builder.finish().unwrap();
            let batches: Vec<_> = Batches::new(&out).collect::<Result<_>>().unwrap();
            let mut sequence = i32::MAX - 3;
            let mut offset = 17;
            for batch in &batches {
                batch.validate_crc().unwrap();
                prop_assert_eq!((batch.base_offset(), batch.base_sequence()), (offset, sequence));
                offset = batch.next_offset();
                sequence = increment_sequence(sequence, batch.record_count());
            }
            let expected: Vec<_> = records.iter().enumerate().map(|(i, record)| (17 + i as i64, record.clone())).collect();
            prop_assert_eq!(batches.iter().flat_map(read).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn header_fields_follow_from_the_records(records in prop::collection::vec(record(), 1..9)) {
        let mut builder = BatchBuilder::new(BatchOptions::default()).unwrap();
        records.iter().for_each(|record| append(&mut builder, record));
        let out = builder.finish().unwrap();
        let batch = BatchView::parse(&out).unwrap();
        prop_assert_eq!(batch.record_count() as usize, records.len());
        prop_assert_eq!(batch.last_offset_delta() as usize, records.len() - 1);
        prop_assert_eq!(batch.base_timestamp(), records[0].0);
        prop_assert_eq!(batch.max_timestamp(), records.iter().map(|record| record.0).max().unwrap().max(-1));
    }
}

#[test]
fn offset_delta_that_does_not_grow_is_refused_and_nothing_is_written() {
    let mut builder = BatchBuilder::new(BatchOptions::default()).unwrap();
    builder.append_at(4, 0, None, Some(b"a"), &[]).unwrap();
    let before = builder.batch_bytes();
    assert!(builder.append_at(4, 0, None, Some(b"b"), &[]).is_err());
    assert!(builder.append_at(-1, 0, None, Some(b"b"), &[]).is_err());
    assert_eq!(builder.batch_bytes(), before);
    let mut full = BatchBuilder::new(BatchOptions::default()).unwrap();
    full.append_at(i32::MAX, 0, None, None, &[]).unwrap();
    assert!(full.append(0, None, None, &[]).is_err());
}

#[test]
fn builder_without_records_gives_no_bytes() {
    assert!(BatchBuilder::new(BatchOptions::default()).unwrap().finish().unwrap().is_empty());
}

#[test]
fn level_that_the_codec_has_not_is_refused() {
    let options = BatchOptions { codec: Codec::Lz4, level: Some(99), ..BatchOptions::default() };
    assert!(matches!(BatchBuilder::new(options), Err(Error::Invalid(_))));
}

#[test]
fn a_batch_that_is_taken_has_the_bytes_of_one_that_is_finished() {
    for codec in Codec::ALL {
        let options = BatchOptions { codec, ..BatchOptions::default() };
        let mut taken = BatchBuilder::new(options).unwrap();
        for _ in 0..2 {
            let mut finished = BatchBuilder::new(options).unwrap();
            for row in 0..300 {
                for builder in [&mut taken, &mut finished] {
                    builder.append(1_000 + row, Some(b"key"), Some(b"a value again and again"), &[]).unwrap();
                }
            }
            let mut batch = taken.take_batch().unwrap().unwrap();
            let (header, body) = crate::batch::split_header_mut(&mut batch).unwrap();
            update_crc(header, body);
            assert_eq!(batch, finished.finish().unwrap(), "{codec:?}");
        }
        assert_eq!(taken.take_batch().unwrap(), None);
    }
}

#[test]
fn records_that_do_not_get_smaller_are_not_compressed() {
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(100_000)
    .collect();
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut builder = BatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() }).unwrap();
        builder.append(1, None, Some(&noise), &[]).unwrap();
        let size = builder.batch_bytes();
        let batch = builder.take_batch().unwrap().unwrap();
        assert_eq!(batch.len(), size);
        let view = BatchView::parse(&batch).unwrap();
        assert_eq!(view.codec(), Ok(Codec::None));
        assert_eq!(view.records(&mut Vec::new()).unwrap().next().unwrap().unwrap().value, Some(&*noise));
    }
}
