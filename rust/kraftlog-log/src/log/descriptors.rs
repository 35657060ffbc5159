//! Operations that run out of descriptors at any of their opens: nothing is lost, and a later call completes them.
use super::testing::*;
use super::*;
use crate::builder::BatchOptions;
use crate::epoch_checkpoint::FILE_NAME;
use crate::fs::{read_file, Operation};
use crate::producer_state::Origin;

const EMFILE: i32 = 24;

/// Several segments, two epochs and a producer; no segment is open.
fn filled() -> Fixture {
    let fixture = Fixture::new(small());
    for number in 0..20 {
        let options = BatchOptions {
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: 2 * number,
            ..BatchOptions::default()
        };
        let bytes = batch(i64::from(2 * number), 2, options);
        fixture.log.append_as_leader(&bytes, 1 + number / 12, 0, Origin::Client).unwrap();
    }
    fixture.log.flush().unwrap();
    fixture.log.close().unwrap();
    let log = open(&fixture.fs, small(), clean()).unwrap();
    Fixture { log, ..fixture }
}

/// What can be seen of a log, and of one that is opened again after an unclean stop.
fn seen(fixture: &Fixture) -> Vec<String> {
    let show = |log: &Log| {
        let ends = (log.log_start_offset(), log.log_end_offset());
        let producers: Vec<_> =
            log.active_producers().iter().map(|one| (one.producer_id, one.last_sequence())).collect();
        format!("{ends:?} {:?} {:?} {:?} {producers:?}", bases(log), records(log), log.epoch_entries())
    };
    let first = show(&fixture.log);
    fixture.log.flush().unwrap();
    let epochs = read_file(&fixture.fs, &Path::new(PATH).join(FILE_NAME)).unwrap().unwrap();
    let crashed = fixture.fs.crash(0, false);
    let reopened = show(&open(&crashed, small(), unclean(0)).unwrap());
    vec![first, String::from_utf8(epochs).unwrap(), reopened]
}

/// Let each open of `operation` fail in turn; afterwards all is as if none had failed.
fn fails_only_for_now(operation: impl Fn(&Fixture) -> Result<()>) {
    let expected = {
        let fixture = filled();
        operation(&fixture).unwrap();
        fixture.append(1).unwrap();
        seen(&fixture)
    };
    let mut refused = 0;
    for countdown in 0.. {
        let fixture = filled();
        fixture.fs.fail(Operation::Open, countdown, EMFILE);
        let outcome = operation(&fixture);
        let was_reached = !fixture.fs.has_pending_faults();
        fixture.fs.clear_faults();
        assert_eq!(fixture.log.poisoned(), None, "open {countdown}");
        if let Err(error) = outcome {
            assert!(error.is_out_of_descriptors(), "open {countdown}: {error}");
            operation(&fixture).unwrap();
            refused += 1;
        }
        fixture.append(1).unwrap();
        assert_eq!(seen(&fixture), expected, "open {countdown}");
        if !was_reached {
            break;
        }
    }
    assert!(refused > 3, "{refused} of the opens were refused");
}

#[test]
fn a_truncation_goes_on_where_descriptors_ran_out() {
    for offset in [39, 33, 23, 12, 3, 0] {
        fails_only_for_now(|fixture| fixture.log.truncate_to(offset, 0).map(|_| ()));
    }
}

#[test]
fn a_truncation_is_finished_by_the_next_append() {
    for countdown in 0..20 {
        let fixture = filled();
        fixture.fs.fail(Operation::Open, countdown, EMFILE);
        let outcome = fixture.log.truncate_to(13, 0);
        fixture.fs.clear_faults();
        let end_offset = fixture.log.log_end_offset();
        let info = fixture.append(1).unwrap();
        // Before anything was begun the log is as it was.
        let first_offset = if outcome.is_err() && end_offset == info.first_offset { 40 } else { 12 };
        assert_eq!(info.first_offset, first_offset, "open {countdown}");
        assert_eq!(offsets(&fixture.log), (0..=first_offset).collect::<Vec<_>>());
    }
}

#[test]
fn a_restart_goes_on_where_descriptors_ran_out() {
    for offset in [60, 20, 0] {
        fails_only_for_now(|fixture| fixture.log.truncate_fully_and_start_at(offset, 0));
    }
}

#[test]
fn a_replacement_without_descriptors_leaves_the_old_segments() {
    fails_only_for_now(|fixture| {
        let old: Vec<_> = fixture.log.segment_handles()?.into_iter().take(2).collect();
        let new = fixture.log.create_cleaned(0, 0)?;
        for segment in &old {
            let mut scan = segment.scan(0)?;
            while let Some(found) = scan.next_batch()? {
                let facts = crate::segment::AppendedBatch::of(&found.header());
                new.append(&[&segment.read_batch(&found)?], &[facts])?;
            }
        }
        assert!(fixture.log.replace_segments(vec![new], &old, 0)?);
        assert!(!names(&fixture.fs).iter().any(|name| name.ends_with(".cleaned")));
        Ok(())
    });
}

#[test]
fn an_aborted_transaction_is_indexed_once_its_file_can_be_opened() {
    let abort = |fixture: &Fixture| {
        let txn = BatchOptions {
            producer_id: 9,
            producer_epoch: 0,
            base_sequence: 0,
            is_transactional: true,
            ..BatchOptions::default()
        };
        fixture.append_bytes(&batch(0, 1, txn), 0)?;
        let control = BatchOptions { is_control: true, base_sequence: -1, ..txn };
        let mut marker = crate::builder::BatchBuilder::new(control)?;
        marker.append(0, Some(&[0, 0, 0, 0]), Some(&[0, 0, 0, 0, 0, 3]), &[])?;
        fixture.fs.fail(Operation::Open, 0, EMFILE);
        let appended = fixture.log.append_as_leader(&marker.finish()?, 1, 0, Origin::Coordinator);
        fixture.fs.clear_faults();
        appended
    };
    let fixture = Fixture::new(LogConfig::default());
    fixture.append(1).unwrap();
    abort(&fixture).unwrap();
    assert_eq!(fixture.log.poisoned(), None);
    let aborted = fixture.log.aborted_transactions(0, i64::MAX).unwrap();
    assert_eq!(aborted.len(), 1, "{aborted:?}");
    let txn_indexes =
        || names(&fixture.fs).into_iter().filter(|name| name.ends_with(".txnindex")).collect::<Vec<_>>();
    assert_eq!(txn_indexes(), [""; 0], "there was no descriptor");
    fixture.log.close().unwrap();
    assert_eq!(txn_indexes().len(), 1);
    let log = open(&fixture.fs, LogConfig::default(), clean()).unwrap();
    assert_eq!(log.aborted_transactions(0, i64::MAX).unwrap(), aborted);
}
