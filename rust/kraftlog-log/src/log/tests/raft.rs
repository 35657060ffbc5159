//! What the metadata quorum asks of its log.
use super::*;

fn raft_batch(leader_epoch: i32) -> Vec<u8> {
    batch(0..2, BatchOptions { partition_leader_epoch: leader_epoch, ..BatchOptions::default() })
}

/// DISK-15
#[test]
fn a_leader_appends_batches_of_its_own_epoch_only() {
    let bench = Bench::new();
    for other in [-1, 0, 2, 4] {
        let refused = bench.log.append_as_leader(&raft_batch(other), 3, 0, Origin::Raft).unwrap_err();
        assert_eq!(code(refused), 87, "epoch {other}");
    }
    let both = [raft_batch(3), raft_batch(2)].concat();
    assert_eq!(code(bench.log.append_as_leader(&both, 3, 0, Origin::Raft).unwrap_err()), 87);
    assert_eq!(bench.log.log_end_offset(), 0);
    let info = bench.log.append_as_leader(&raft_batch(3), 3, 0, Origin::Raft).unwrap();
    assert_eq!((info.first_offset, info.last_offset), (0, 1));
}

/// DISK-27: a segment that a roll began, and that nothing was appended to, is there after a flush and a crash.
#[test]
fn an_empty_active_segment_is_flushed_too() {
    let mut bench = Bench::new();
    bench.append(3).unwrap();
    bench.log.roll(5000).unwrap();
    let bases = |log: &Log| log.segments().unwrap().iter().map(|one| one.base_offset).collect::<Vec<_>>();
    assert_eq!(bases(&bench.log), [0, 3]);
    assert_eq!(bench.log.flush().unwrap(), 3);
    bench.fs = bench.fs.crash(0, false);
    let log = bench.reopen(options(3, false));
    assert_eq!(bases(&log), [0, 3]);
    assert_eq!(values(&log), [0, 1, 2]);
}
