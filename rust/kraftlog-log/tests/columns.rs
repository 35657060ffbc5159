//! The fast loop gives the rows that the plain record iterator gives, for sound batches and for damaged
//! ones, however small the Arrow batches are.
#![allow(clippy::unwrap_used)]

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use kraftlog_log::batch::{next_batch, BatchView};
use kraftlog_log::builder::{BatchBuilder, BatchOptions};
use kraftlog_log::columns::{BatchCursor, BinaryType, ColumnOptions, ColumnsDecoder, Progress};
use kraftlog_log::compression::Codec;
use kraftlog_log::Result;
use proptest::prelude::*;
use std::sync::Arc;

type Row = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

fn bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    let some = prop_oneof![4 => prop::collection::vec(any::<u8>(), 0..40), 1 => prop::collection::vec(any::<u8>(), 0..900)];
    prop_oneof![5 => some.prop_map(Some), 1 => Just(None)]
}

fn batch() -> impl Strategy<Value = Vec<u8>> {
    let headers = prop_oneof![
        5 => Just(Vec::new()),
        1 => prop::collection::vec((prop::collection::vec(any::<u8>(), 0..9), bytes()), 0..3)
    ];
    let record = (0i64..1 << 40, bytes(), bytes(), headers);
    let codec = prop_oneof![3 => Just(Codec::None), 1 => Just(Codec::Lz4), 1 => Just(Codec::Zstd)];
    (0i64..1 << 40, codec, prop::collection::vec(record, 1..60)).prop_map(|(base_offset, codec, records)| {
        let mut builder =
            BatchBuilder::new(BatchOptions { base_offset, codec, ..BatchOptions::default() }).unwrap();
        for (timestamp, key, value, headers) in &records {
            let headers: Vec<(&[u8], Option<&[u8]>)> =
                headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
            builder.append(*timestamp, key.as_deref(), value.as_deref(), &headers).unwrap();
        }
        builder.finish().unwrap()
    })
}

fn plain_rows(batch: &BatchView<'_>) -> Result<Vec<Row>> {
    let mut scratch = Vec::new();
    batch
        .records(&mut scratch)?
        .map(|record| {
            let record = record?;
            let headers = record.headers.into_iter();
            Ok((
                record.offset,
                record.timestamp,
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
                headers
                    .map(|(key, value)| {
                        (String::from_utf8_lossy(key).into_owned(), value.map(<[u8]>::to_vec))
                    })
                    .collect(),
            ))
        })
        .collect()
}

fn binary(rows: &RecordBatch, name: &str, index: usize) -> Option<Vec<u8>> {
    let column = rows.column_by_name(name).unwrap();
    if column.is_null(index) {
        return None;
    }
    Some(match column.as_binary_opt::<i32>() {
        Some(column) => column.value(index).to_vec(),
        None => column.as_binary_view().value(index).to_vec(),
    })
}

fn headers(rows: &RecordBatch, index: usize) -> Vec<(String, Option<Vec<u8>>)> {
    let items = rows.column_by_name("headers").unwrap().as_list::<i32>().value(index);
    let items = items.as_struct();
    let (keys, values) = (items.column(0).as_string::<i32>(), items.column(1).as_binary::<i32>());
    (0..items.len())
        .map(|item| (keys.value(item).to_owned(), values.is_valid(item).then(|| values.value(item).to_vec())))
        .collect()
}

fn arrow_rows(rows: &RecordBatch) -> Vec<Row> {
    let offsets = rows.column_by_name("offset").unwrap().as_primitive::<Int64Type>();
    let timestamps = rows.column_by_name("timestamp").unwrap().as_primitive::<TimestampMillisecondType>();
    (0..rows.num_rows())
        .map(|index| {
            let (key, value) = (binary(rows, "key", index), binary(rows, "value", index));
            (offsets.value(index), timestamps.value(index), key, value, headers(rows, index))
        })
        .collect()
}

/// Rows through the decoder, and the rows of an Arrow batch at most.
fn decoded_rows(batch: &BatchView<'_>, source: &Buffer, options: &Arc<ColumnOptions>) -> Result<Vec<Row>> {
    let mut decoder = ColumnsDecoder::new(options.clone());
    let mut cursor = BatchCursor::default();
    let mut rows = Vec::new();
    loop {
        let progress = decoder.decode(batch, source, &mut cursor)?;
        let taken = decoder.finish()?;
        assert!(taken.num_rows() <= options.batch_rows);
        rows.extend(arrow_rows(&taken));
        if progress == Progress::Done {
            return Ok(rows);
        }
    }
}

#[test]
fn attributes_of_a_record_are_one_byte_whatever_their_highest_bit_is() {
    let mut builder = BatchBuilder::new(BatchOptions::default()).unwrap();
    for timestamp in 0..20 {
        // The first byte could be the size of the nine behind it.
        builder.append(timestamp, Some(b"\x12123456789"), Some(b"value"), &[]).unwrap();
    }
    let mut data = builder.finish().unwrap();
    let sound = plain_rows(&BatchView::parse(&data).unwrap()).unwrap();
    data[62] = 0x80;
    let source = Buffer::from_vec(data);
    let batch = BatchView::parse(&source).unwrap();
    let options = Arc::new(ColumnOptions { check_crc: false, ..ColumnOptions::default() });
    assert_eq!(plain_rows(&batch).unwrap(), sound);
    assert_eq!(decoded_rows(&batch, &source, &options).unwrap(), sound);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn fast_and_plain_readers_agree(
        data in batch(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        behind in prop::collection::vec(any::<u8>(), 0..100),
        batch_rows in prop_oneof![Just(1usize), 2usize..20, Just(100_000)],
        views in any::<bool>(),
        skip in 0i64..70,
    ) {
        let mut data = data;
        for (index, byte) in damage {
            // What frames the batch stays, as do the codec and the count: they are for other tests.
            let place = 61 + index.index(data.len() - 61);
            data[place] = byte;
        }
        let size = data.len();
        data.extend(behind);
        let source = Buffer::from_vec(data);
        let batch = BatchView::parse(&source[..size]).unwrap();
        let binary_type = if views { BinaryType::BinaryView } else { BinaryType::Binary };
        let options = ColumnOptions { batch_rows, binary_type, check_crc: false, ..ColumnOptions::default() };
        match (plain_rows(&batch), decoded_rows(&batch, &source, &Arc::new(options.clone()))) {
            (Ok(expected), Ok(found)) => {
                prop_assert_eq!(&found, &expected);
                let start_offset = batch.base_offset() + skip;
                // A damaged offset may lie outside the batch: nothing is left out of one that starts at the start
                // offset, and nothing is looked for in one that ends before it.
                let wants_all = start_offset <= batch.base_offset();
                let later: Vec<Row> =
                    expected.into_iter().filter(|row| wants_all || row.0 >= start_offset).collect();
                let options = Arc::new(ColumnOptions { start_offset, ..options });
                if start_offset <= batch.last_offset() {
                    prop_assert_eq!(decoded_rows(&batch, &source, &options).unwrap(), later);
                }
            }
            (Err(_), Err(_)) => {}
            (plain, found) => prop_assert!(false, "plain {plain:?}, fast {found:?}"),
        }
    }

    #[test]
    fn any_bytes_end_in_rows_or_an_error(data in prop::collection::vec(any::<u8>(), 0..300), views in any::<bool>()) {
        let source = Buffer::from_vec(data);
        let binary_type = if views { BinaryType::BinaryView } else { BinaryType::Binary };
        let options = Arc::new(ColumnOptions { binary_type, check_crc: false, ..ColumnOptions::default() });
        if let Ok(Some(batch)) = next_batch(&source, 0) {
            let _ = decoded_rows(&batch, &source, &options);
        }
    }
}
