//! Producer snapshots: the checksum is made right, and what is read is written as the same producers.
#![no_main]
use kraftlog_fuzz::{bounded, plain_bound};
use kraftlog_log::crc::crc32c;
use kraftlog_log::producer_state::{read_snapshot, write_snapshot};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    bounded(plain_bound(data.len()), || {
        let _ = read_snapshot(data);
        if data.len() < 6 {
            return;
        }
        let mut fixed = data.to_vec();
        let crc = crc32c(&fixed[6..]);
        fixed[2..6].copy_from_slice(&crc.to_be_bytes());
        let Ok(entries) = read_snapshot(&fixed) else { return };
        let bytes = write_snapshot(entries.iter());
        let mut again = read_snapshot(&bytes).unwrap();
        again.sort_by_key(|entry| entry.producer_id);
        let mut sorted = entries.clone();
        sorted.sort_by_key(|entry| entry.producer_id);
        let ids: Vec<i64> = sorted.iter().map(|entry| entry.producer_id).collect();
        assert_eq!(again.iter().map(|entry| entry.producer_id).collect::<Vec<_>>(), ids);
        if ids.windows(2).all(|pair| pair[0] < pair[1]) {
            assert_eq!(format!("{again:?}"), format!("{sorted:?}"));
        }
    });
});
