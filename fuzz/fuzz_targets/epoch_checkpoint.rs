//! `leader-epoch-checkpoint`: read, asked, cut and written.
#![no_main]
use kraftlog_fuzz::{bounded, directory, plain_bound};
use kraftlog_log::epoch_checkpoint::EpochCheckpoint;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    bounded(plain_bound(data.len()), || {
        let (fs, path) = directory(&[("leader-epoch-checkpoint", data)]);
        let Ok(mut epochs) = EpochCheckpoint::open(Arc::clone(&fs), &path) else { return };
        let entries = epochs.entries().to_vec();
        for entry in entries.iter().take(50) {
            let _ = epochs.end_offset_for(entry.epoch, i64::MAX);
            let _ = epochs.epoch_for_offset(entry.start_offset);
        }
        if let Some(middle) = entries.get(entries.len() / 2) {
            epochs.truncate_from_start(middle.start_offset);
            epochs.truncate_from_end(middle.start_offset.saturating_add(1));
            epochs.assign(middle.epoch.saturating_add(1), middle.start_offset.saturating_add(2));
        }
        epochs.flush().unwrap();
        let again = EpochCheckpoint::open(Arc::clone(&fs), &path).unwrap();
        assert_eq!(again.entries(), epochs.entries());
    });
});
