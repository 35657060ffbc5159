//! `.index`: any bytes count, look up, take an entry and cut without harm.
#![no_main]
use kraftlog_fuzz::{bounded, directory, plain_bound};
use kraftlog_log::index::OffsetIndex;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let Some((base, data)) = data.split_first_chunk::<8>() else { return };
    let base_offset = i64::from_be_bytes(*base) & i64::MAX;
    bounded(plain_bound(data.len()), || {
        let (fs, path) = directory(&[("0.index", data)]);
        let path = path.join("0.index");
        let mut index = OffsetIndex::open(Arc::clone(&fs), path, base_offset);
        let count = index.count().unwrap();
        assert!(count * 8 <= data.len());
        let entries: Vec<_> = (0..count).map(|entry| index.entry(entry).unwrap()).collect();
        assert_eq!(index.last().unwrap(), entries.last().copied());
        let is_sorted = entries.windows(2).all(|pair| pair[0].offset < pair[1].offset);
        for offset in entries.iter().map(|entry| entry.offset).chain([base_offset, i64::MAX, 0]) {
            let found = index.lookup(offset).unwrap();
            if is_sorted {
                let expected = entries.iter().rfind(|entry| entry.offset <= offset);
                assert_eq!(found.position, expected.map_or(0, |entry| entry.position));
            }
        }
        for position in [0, 1 << 20, u64::MAX] {
            index.lookup_position(position).unwrap();
        }
        let last = entries.last().map_or(base_offset, |entry| entry.offset);
        let _ = index.append(last.saturating_add(1), 77);
        let _ = index.append(last, 78);
        let _ = index.append(i64::MAX, 79);
        assert!(index.count().unwrap() <= count + 2);
    });
});
