//! `.timeindex`: any bytes count, look up, take an entry and cut without harm.
#![no_main]
use kraftlog_fuzz::{bounded, directory, plain_bound};
use kraftlog_log::time_index::{TimeIndex, TimestampOffset};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let Some((base, data)) = data.split_first_chunk::<8>() else { return };
    let base_offset = i64::from_be_bytes(*base) & i64::MAX;
    bounded(plain_bound(data.len()), || {
        let (fs, path) = directory(&[("0.timeindex", data)]);
        let mut index = TimeIndex::open(Arc::clone(&fs), path.join("0.timeindex"), base_offset);
        let count = index.count().unwrap();
        assert!(count * 12 <= data.len());
        let entries: Vec<_> = (0..count).map(|entry| index.entry(entry).unwrap()).collect();
        let is_sorted = entries.windows(2).all(|pair| pair[0].timestamp < pair[1].timestamp);
        for timestamp in entries.iter().map(|entry| entry.timestamp).chain([i64::MIN, -1, i64::MAX]) {
            let found = index.lookup(timestamp).unwrap();
            if is_sorted {
                let expected = entries.iter().rfind(|entry| entry.timestamp <= timestamp);
                let none = TimestampOffset { timestamp: -1, offset: base_offset };
                assert_eq!(found, expected.copied().unwrap_or(none));
            }
        }
        let last = index.last().unwrap();
        let _ = index.maybe_append(TimestampOffset { timestamp: i64::MAX, offset: last.offset.saturating_add(1) });
        let _ = index.truncate_to(last.offset);
        assert!(index.count().unwrap() <= count + 1);
    });
});
