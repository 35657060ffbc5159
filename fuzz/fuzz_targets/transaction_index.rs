//! `.txnindex`: read, and written again as the same bytes.
#![no_main]
use kraftlog_fuzz::{bounded, bytes_of, directory, plain_bound};
use kraftlog_log::segment::TransactionIndex;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    bounded(plain_bound(data.len()), || {
        let (fs, path) = directory(&[("0.txnindex", data), ("again.txnindex", b"")]);
        let mut index = TransactionIndex::new(Arc::clone(&fs), path.join("0.txnindex"));
        let Ok(entries) = index.entries() else { return };
        let entries = entries.clone();
        assert_eq!(entries.len() * 34, data.len());
        let mut again = TransactionIndex::new(Arc::clone(&fs), path.join("again.txnindex"));
        for entry in &entries {
            again.append(*entry).unwrap();
        }
        assert_eq!(bytes_of(fs.as_ref(), &path.join("again.txnindex")), data);
        let middle = entries.get(entries.len() / 2).map_or(0, |entry| entry.last_offset);
        index.truncate_to(middle).unwrap();
        index.sync().unwrap();
    });
});
