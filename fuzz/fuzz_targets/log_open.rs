//! A whole partition directory of two segments with every sidecar from the input: opened, read, appended to.
#![no_main]
use kraftlog_fuzz::{bounded, directory, framed_many, inflating_bound, pieces};
use kraftlog_log::batch::Batches;
use kraftlog_log::builder::{BatchBuilder, BatchOptions};
use kraftlog_log::log::{Log, LogConfig, OpenOptions};
use kraftlog_log::producer_state::Origin;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let [log, second, index, time_index, transactions, snapshot, epochs, metadata] = pieces::<8>(data);
    let (log, second) = (framed_many(log), framed_many(second));
    bounded(4 * inflating_bound(data.len()) + (64 << 20), || {
        let mut files: Vec<(&str, &[u8])> = vec![
            ("00000000000000000000.log", &log),
            ("00000000000000000000.index", index),
            ("00000000000000000000.timeindex", time_index),
        ];
        let optional: [(u8, &str, &[u8]); 5] = [
            (2, "00000000000000000100.log", &second),
            (4, "00000000000000000000.txnindex", transactions),
            (8, "00000000000000000100.snapshot", snapshot),
            (16, "leader-epoch-checkpoint", epochs),
            (32, "partition.metadata", metadata),
        ];
        files.extend(optional.iter().filter(|(bit, ..)| choice & bit != 0).map(|(_, name, bytes)| (*name, *bytes)));
        let (fs, path) = directory(&files);
        let options = OpenOptions {
            recovery_point: 0,
            log_start_offset: 0,
            clean_shutdown: choice & 1 != 0,
            now_ms: 1_700_000_000_000,
        };
        let config = LogConfig { index_interval_bytes: 64, ..LogConfig::default() };
        let Ok(opened) = Log::open(Arc::clone(&fs), &path, config.clone(), options) else { return };
        let (start, end) = (opened.log_start_offset(), opened.log_end_offset());
        assert!(start <= end, "{start} {end}");
        for offset in [start, end, start + (end - start) / 2] {
            if let Ok(slice) = opened.read(offset, 1 << 20, end, true) {
                for batch in Batches::new(&slice.read().unwrap()).flatten() {
                    let _ = batch.validate_crc();
                }
            }
        }
        let _ = opened.offset_for_timestamp(0);
        let _ = opened.max_timestamp();
        let _ = opened.aborted_transactions(start, end);
        let mut builder = BatchBuilder::new(BatchOptions::default()).unwrap();
        builder.append(1_700_000_000_000, None, Some(b"after"), &[]).unwrap();
        let batch = builder.finish().unwrap();
        let appended = opened.append_as_leader(&batch, 1 << 30, 1_700_000_000_000, Origin::Client);
        let Ok(info) = appended else { return };
        assert_eq!(info.first_offset, end);
        let closed = opened.close();
        let clean = OpenOptions { clean_shutdown: true, ..options };
        // After a clean stop the indexes are taken as they are, and damage in them may show when they are closed.
        if !options.clean_shutdown {
            closed.unwrap();
            // A log that was recovered and closed opens clean, and has what was appended.
            let again = Log::open(fs, &path, config, clean).unwrap();
            assert_eq!(again.log_end_offset(), end + 1);
        }
    });
});
