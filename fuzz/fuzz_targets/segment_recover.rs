//! Header scan and recovery of one segment: recovery keeps a prefix, and a second one changes nothing.
#![no_main]
use kraftlog_fuzz::{bounded, bytes_of, directory, framed_many, inflating_bound};
use kraftlog_log::epoch_checkpoint::EpochCheckpoint;
use kraftlog_log::fs::FileSystem;
use kraftlog_log::producer_state::ProducerState;
use kraftlog_log::segment::{segment_path, Segment, SegmentConfig};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;

const CONFIG: SegmentConfig =
    SegmentConfig { index_interval_bytes: 64, segment_index_bytes: 10 << 20, roll_jitter_ms: 0, preallocate_bytes: 0 };

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let log = if choice & 1 == 0 { framed_many(data) } else { data.to_vec() };
    let base_offset = match log.first_chunk::<8>() {
        Some(offset) if choice & 2 == 0 => i64::from_be_bytes(*offset) & i64::MAX,
        _ => 0,
    };
    bounded(2 * inflating_bound(log.len()) + (16 << 20), || {
        let name = segment_path(Path::new(""), base_offset, "log");
        let (fs, path) = directory(&[(name.to_str().unwrap(), &log)]);
        let Some((size, indexes)) = recover(&fs, &path, base_offset) else { return };
        let kept = bytes_of(fs.as_ref(), &segment_path(&path, base_offset, "log"));
        assert_eq!(kept.len() as u64, size);
        assert!(log.starts_with(&kept));
        let (again, indexes_again) = recover(&fs, &path, base_offset).expect("a recovered segment recovers");
        assert_eq!((again, indexes_again), (size, indexes));
    });
});

type Indexes = (Vec<(i64, u64)>, Vec<(i64, i64)>);

fn recover(fs: &Arc<dyn FileSystem>, path: &Path, base_offset: i64) -> Option<(u64, Indexes)> {
    let (segment, _) = Segment::open(fs, path, base_offset, CONFIG, 0).unwrap();
    let mut scan = segment.scan(0).unwrap();
    let mut boundaries = vec![0];
    while let Ok(Some(batch)) = scan.next_batch() {
        assert_eq!(batch.position, *boundaries.last().unwrap());
        boundaries.push(batch.end_position());
    }
    let mut producers = ProducerState::open(Arc::clone(fs), path, i64::MAX).unwrap();
    let mut epochs = EpochCheckpoint::detached(Arc::clone(fs), path);
    segment.recover(&mut producers, &mut epochs).ok()?;
    let size = segment.size_bytes();
    assert!(boundaries.contains(&size), "{size} is no boundary of {boundaries:?}");
    let offsets: Vec<_> =
        segment.offset_entries().unwrap().iter().map(|entry| (entry.offset, entry.position)).collect();
    for (offset, position) in &offsets {
        assert!(*position < size && boundaries.contains(position) && *offset >= base_offset);
    }
    let times: Vec<_> =
        segment.time_entries().unwrap().iter().map(|entry| (entry.timestamp, entry.offset)).collect();
    let next = segment.read_next_offset().unwrap();
    for offset in [base_offset, next.saturating_sub(1), next] {
        let _ = segment.find_batch(offset);
        let _ = segment.find_timestamp(offset, base_offset);
    }
    let _ = segment.find_max_timestamp();
    Some((size, (offsets, times)))
}
