//! Batches of a buffer: places, checks and in-place edits.
#![no_main]
use kraftlog_fuzz::{bounded, inflating_bound};
use kraftlog_log::batch::{
    set_base_offset, set_log_append_time, set_partition_leader_epoch, single_batch, split_header_mut,
    validate_produce_batch, BatchView, Batches, ProduceRules, Source,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    bounded(inflating_bound(data.len()), || {
        for source in [Source::Memory, Source::File] {
            let mut batches = Batches::with_source(source, data);
            let mut end = 0;
            while let Some(Ok(batch)) = batches.next() {
                assert_eq!(batch.position(), end);
                end = batch.end_position();
                assert_eq!(batch.bytes().len(), batch.size_bytes());
                assert_eq!(batch.bytes(), &data[batch.position() as usize..end as usize]);
                assert_eq!(batches.position() as u64, end);
                let _ = (batch.last_sequence(), batch.codec(), batch.delete_horizon_ms(), batch.next_offset());
                edit(&batch);
            }
            assert!(end <= data.len() as u64);
        }
        if let Ok(batch) = single_batch(data) {
            let mut scratch = Vec::new();
            let rules = ProduceRules { max_message_bytes: usize::MAX, ..ProduceRules::default() };
            if let Ok(check) = validate_produce_batch(&batch, &rules, &mut scratch) {
                // What a leader takes, everyone can read.
                batch.validate_crc().unwrap();
                let records: Vec<_> = batch.records(&mut scratch).unwrap().map(Result::unwrap).collect();
                assert_eq!(records.len(), check.record_count as usize);
                assert_eq!(check.max_timestamp, records.iter().map(|r| r.timestamp).max().unwrap().max(-1));
            }
        }
    });
});

fn edit(batch: &BatchView<'_>) {
    if batch.magic() < 2 {
        return; // the oldest formats are only read
    }
    let mut bytes = batch.bytes().to_vec();
    let was_sound = batch.validate_crc().is_ok();
    let (header, _) = split_header_mut(&mut bytes).unwrap();
    set_base_offset(header, 77);
    set_partition_leader_epoch(header, 5);
    if BatchView::parse(&bytes).is_ok() {
        assert_eq!(BatchView::parse(&bytes).unwrap().validate_crc().is_ok(), was_sound);
    }
    let (header, body) = split_header_mut(&mut bytes).unwrap();
    set_log_append_time(header, body, 123_456);
    if batch.magic() == 2 {
        let edited = BatchView::parse(&bytes).unwrap();
        let unchanged = batch.max_timestamp() == 123_456 && batch.attributes() & 8 != 0;
        assert!(unchanged || edited.validate_crc().is_ok());
        assert_eq!((edited.base_offset(), edited.max_timestamp()), (77, 123_456));
    }
}
