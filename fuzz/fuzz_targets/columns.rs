//! Arrow columns of a batch: every type and batch size gives the rows that the record iterator gives.
#![no_main]
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use kraftlog_fuzz::{bounded, framed, framed_compressed, inflating_bound};
use kraftlog_log::batch::BatchView;
use kraftlog_log::columns::{BatchCursor, BinaryType, ColumnOptions, ColumnsDecoder, Progress};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;
type Row = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, Headers);

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let built = if choice & 1 == 0 { framed(data) } else { framed_compressed(data) };
    let Some(mut bytes) = built else { return };
    // The largest offset and time are the exclusive ends of a scan without ends.
    bytes[0] &= 0xbf;
    bytes[35] &= 0xbf;
    let Some(bytes) = framed(&bytes) else { return };
    bounded(2 * inflating_bound(bytes.len()), || {
        let expected = expected(&bytes);
        let binary_type = match choice >> 1 & 3 {
            0 => BinaryType::Binary,
            1 => BinaryType::LargeBinary,
            _ => BinaryType::BinaryView,
        };
        let batch_rows = [1, 3, 64, 16_384][usize::from(choice >> 3 & 3)];
        let batch_bytes = [1, 100, 8 << 20][usize::from(choice >> 5) % 3];
        let options = ColumnOptions {
            columns: ColumnOptions::parse_columns(&["key", "value", "offset", "timestamp", "headers"]).unwrap(),
            binary_type,
            batch_rows,
            batch_bytes,
            include_control: true,
            ..ColumnOptions::default()
        };
        match (decoded(&bytes, options, batch_rows), expected) {
            (Ok(rows), Some(expected)) => assert_eq!(rows, expected),
            (Ok(rows), None) => panic!("{} rows of a batch that is not sound", rows.len()),
            (Err(error), Some(_)) => panic!("sound records are refused: {error}"),
            (Err(_), None) => {}
        }
    });
});

fn expected(bytes: &[u8]) -> Option<Vec<Row>> {
    let batch = BatchView::parse(bytes).ok()?;
    let mut scratch = Vec::new();
    let mut rows = Vec::new();
    for record in batch.records(&mut scratch).ok()? {
        let record = record.ok()?;
        let headers = record.headers.into_iter().map(|(key, value)| {
            (String::from_utf8_lossy(key).into_owned().into_bytes(), value.map(<[u8]>::to_vec))
        });
        rows.push((
            record.offset,
            record.timestamp,
            record.key.map(<[u8]>::to_vec),
            record.value.map(<[u8]>::to_vec),
            headers.collect(),
        ));
    }
    Some(rows)
}

fn decoded(bytes: &[u8], options: ColumnOptions, batch_rows: usize) -> kraftlog_log::Result<Vec<Row>> {
    let source = Buffer::from(bytes);
    let batch = BatchView::parse(&source)?;
    let mut decoder = ColumnsDecoder::new(Arc::new(options));
    let mut cursor = BatchCursor::default();
    let mut rows = Vec::new();
    loop {
        let progress = decoder.decode(&batch, &source, &mut cursor)?;
        let part = decoder.finish()?;
        assert!(part.num_rows() <= batch_rows);
        for column in part.columns() {
            column.to_data().validate_full().unwrap();
        }
        append(&mut rows, &part);
        match progress {
            Progress::Done => return Ok(rows),
            Progress::Full => assert!(part.num_rows() > 0, "full without a row"),
        }
    }
}

fn bytes_at(array: &dyn Array, row: usize) -> Option<Vec<u8>> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        arrow_schema::DataType::Binary => array.as_binary::<i32>().value(row).to_vec(),
        arrow_schema::DataType::LargeBinary => array.as_binary::<i64>().value(row).to_vec(),
        arrow_schema::DataType::Utf8 => array.as_string::<i32>().value(row).as_bytes().to_vec(),
        _ => array.as_binary_view().value(row).to_vec(),
    })
}

fn append(rows: &mut Vec<Row>, part: &RecordBatch) {
    let offsets = part.column(2).as_primitive::<Int64Type>();
    let timestamps = part.column(3).as_primitive::<TimestampMillisecondType>();
    let lists = part.column(4).as_list::<i32>();
    for row in 0..part.num_rows() {
        let list = lists.value(row);
        let pairs = list.as_struct();
        let headers = (0..pairs.len())
            .map(|index| {
                (bytes_at(pairs.column(0), index).unwrap_or_default(), bytes_at(pairs.column(1), index))
            })
            .collect();
        rows.push((
            offsets.value(row),
            timestamps.value(row),
            bytes_at(part.column(0), row),
            bytes_at(part.column(1), row),
            headers,
        ));
    }
}
