//! Records of a batch whose frame is right: two ways to walk them, and the same bytes after encoding again.
#![no_main]
use kraftlog_fuzz::{bounded, framed, framed_compressed, inflating_bound};
use kraftlog_log::batch::{BatchView, TimestampType};
use kraftlog_log::builder::{BatchBuilder, BatchOptions};
use kraftlog_log::compression::Codec;
use kraftlog_log::record::RecordRef;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for batch in [framed(data), framed_compressed(data)].into_iter().flatten() {
        bounded(inflating_bound(batch.len()), || check(&batch));
    }
});

fn check(bytes: &[u8]) {
    let batch = BatchView::parse(bytes).unwrap();
    batch.validate_crc().unwrap();
    let (mut scratch, mut scratch_again) = (Vec::new(), Vec::new());
    let Ok(records) = batch.records(&mut scratch) else {
        assert!(batch.records(&mut scratch_again).is_err());
        return;
    };
    let walked: Result<Vec<RecordRef<'_>>, _> = records.collect();
    let mut visited = Vec::new();
    let outcome = batch.records(&mut scratch_again).unwrap().try_for_each_record(|record| {
        visited.push(record);
        Ok(())
    });
    assert_eq!(walked.is_ok(), outcome.is_ok());
    let Ok(walked) = walked else { return };
    assert_eq!(walked, visited);
    assert_eq!(walked.len(), batch.record_count() as usize);
    for record in &walked {
        assert_eq!(record.headers.into_iter().count(), record.headers.len());
    }
    again(&batch, &walked);
}

/// What the builder makes of the records reads as the same records.
fn again(batch: &BatchView<'_>, records: &[RecordRef<'_>]) {
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: batch.base_offset(),
        codec: Codec::None,
        ..BatchOptions::default()
    })
    .unwrap();
    let mut last = -1;
    for record in records {
        let headers: Vec<_> = record.headers.into_iter().collect();
        let outcome =
            builder.append_at(record.offset_delta, record.timestamp, record.key, record.value, &headers);
        assert_eq!(outcome.is_ok(), record.offset_delta > last);
        if outcome.is_err() {
            return;
        }
        last = record.offset_delta;
    }
    let bytes = builder.finish().unwrap();
    if records.is_empty() {
        assert!(bytes.is_empty());
        return;
    }
    let encoded = BatchView::parse(&bytes).unwrap();
    encoded.validate_crc().unwrap();
    let mut scratch = Vec::new();
    for (read, record) in encoded.records(&mut scratch).unwrap().zip(records) {
        let read = read.unwrap();
        assert_eq!((read.offset, read.timestamp), (record.offset, record.timestamp));
        assert_eq!((read.key, read.value), (record.key, record.value));
        assert!(read.headers.into_iter().eq(record.headers));
    }
    // Bytes of the same settings come out equal unless a varint was longer than it must be.
    let is_plain = batch.codec() == Ok(Codec::None) && batch.timestamp_type() == TimestampType::CreateTime;
    if is_plain && encoded.body().len() == batch.body().len() && encoded.base_timestamp() == batch.base_timestamp() {
        let attributes_zero = records.iter().all(|record| record.attributes == 0);
        assert!(!attributes_zero || encoded.body() == batch.body() || has_odd_null(records));
    }
}

/// Lengths below -1 mean null too, and take as many bytes as some others.
fn has_odd_null(records: &[RecordRef<'_>]) -> bool {
    records.iter().any(|record| {
        record.key.is_none()
            || record.value.is_none()
            || record.headers.into_iter().any(|(_, value)| value.is_none())
    })
}
