//! Message formats v0 and v1: sets of any bytes, whole or with their checksums made right, iterated two ways.
#![no_main]
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_buffer::Buffer;
use kraftlog_fuzz::{bounded, inflating_bound, legacy_framed};
use kraftlog_log::batch::{next_batch_shallow, Batches, BatchView, Source};
use kraftlog_log::columns::{BatchCursor, ColumnOptions, ColumnsDecoder, Progress};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    for bytes in [data.to_vec(), legacy_framed(data)] {
        bounded(4 * inflating_bound(bytes.len()), || {
            for source in [Source::Memory, Source::File] {
                let mut batches = Batches::with_source(source, &bytes);
                while let Some(Ok(batch)) = batches.next() {
                    if batch.magic() < 2 {
                        check(&batch, &bytes);
                    }
                }
            }
        });
    }
});

fn check(batch: &BatchView<'_>, source: &[u8]) {
    let _ = batch.validate_crc();
    let shallow = next_batch_shallow(Source::File, source, batch.position() as usize);
    if let Ok(Some(shallow)) = shallow {
        assert_eq!(shallow.bytes(), batch.bytes());
    }
    let mut scratch = Vec::new();
    let records = batch.records(&mut scratch).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    if let Ok(records) = &records {
        assert_eq!(records.len(), batch.record_count() as usize);
        assert_eq!(records.first().map(|record| record.offset), Some(batch.base_offset()));
        assert!(records.iter().all(|record| record.headers.is_empty()));
    }
    let buffer = Buffer::from(source);
    let options = ColumnOptions { check_crc: false, include_control: true, ..ColumnOptions::default() };
    let column = options.schema().index_of("offset").unwrap();
    let mut decoder = ColumnsDecoder::new(Arc::new(options));
    let mut cursor = BatchCursor::default();
    let mut offsets = Vec::new();
    loop {
        let Ok(progress) = decoder.decode(batch, &buffer, &mut cursor) else {
            assert!(records.is_err(), "columns refuse what the iterator reads");
            return;
        };
        let part = decoder.finish().unwrap();
        offsets.extend_from_slice(part.column(column).as_primitive::<Int64Type>().values());
        if progress == Progress::Done {
            break;
        }
    }
    if let Ok(records) = records {
        // The largest offset is the exclusive end of a scan without one.
        let expected: Vec<i64> =
            records.iter().map(|record| record.offset).filter(|offset| *offset != i64::MAX).collect();
        assert_eq!(offsets, expected);
    }
}
