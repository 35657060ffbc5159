//! Disks that fail, fill up or move fewer bytes than asked: a log is poisoned and stays so, and what was flushed
//! before is there after the next start.
use kraftlog_log::fs::{MemoryFileSystem, Operation, Random};
use kraftlog_log::producer_state::Origin;
use kraftlog_log::Error;

use crate::check::{check_log, Check};
use crate::ensure;
use crate::history::{History, Op};
use crate::machine::{new_disk, Failure, Machine};
use crate::model::{Expected, Model};
use crate::points::{explore, random_crash, Counts, Found};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn found(context: impl Into<String>) -> impl FnOnce(String) -> Found {
    let context = context.into();
    move |reason| Found { context, reason }
}

/// Set one fault; tells what it is.
fn inject(disk: &MemoryFileSystem, random: &mut Random) -> String {
    disk.set_fault_seed(random.next_u64());
    let limit = [8, 40, 200][random.index(3)];
    let countdown = random.below(limit);
    match random.below(6) {
        0 => {
            let seed = random.next_u64();
            disk.set_short_io(Some(seed));
            format!("short reads and writes, seed {seed}")
        }
        1 => {
            let bytes = random.below(6000);
            disk.set_capacity(Some(bytes));
            format!("a disk of {bytes} bytes")
        }
        kind => {
            let operation =
                [Operation::Write, Operation::Sync, Operation::Change, Operation::Read][kind as usize - 2];
            let errno = if random.one_in(2) { EIO } else { ENOSPC };
            disk.fail(operation, countdown, errno);
            format!("{operation:?} number {countdown} fails with errno {errno}")
        }
    }
}

/// Run a history on a disk with one fault.
pub fn run(history: &History, random: &mut Random, counts: &mut Counts) -> Result<(), Found> {
    counts.faults += 1;
    let disk = new_disk();
    let mut machine = Machine::new(disk.clone(), history.config)
        .map_err(|error| found("open of a new log")(error.to_string()))?;
    let fault = inject(&disk, random);
    for (index, op) in history.ops.iter().enumerate() {
        let context = format!("{fault}: operation {index}, {op:?}");
        let before = machine.model.clone();
        let Err(failure) = machine.step(*op) else { continue };
        let is_restart = matches!(op, Op::Kill | Op::Reopen);
        match &failure {
            Failure::Engine(Error::Io { .. }) => {}
            // The checks of a start say it in words.
            Failure::Mismatch(text) if text.contains("os error") => {}
            other => return Err(found(context)(other.to_string())),
        }
        disk.clear_faults();
        check_failed(&machine, *op, &before, is_restart).map_err(found(context.clone()))?;
        let crash = random_crash(random);
        let expected = Expected::during(&before, &machine.after);
        let again = disk.crash_with(&crash);
        return explore(&again, &expected, machine.config, random, 1, counts).map_err(|inner| Found {
            context: format!("{context} failed, {crash:?}\n    then: {}", inner.context),
            reason: inner.reason,
        });
    }
    disk.clear_faults();
    check_log(&machine.log, &machine.model).map_err(found(format!("{fault}: after all")))
}

/// A failed operation has poisoned the log, or changed nothing.
fn check_failed(machine: &Machine, op: Op, before: &Model, is_restart: bool) -> Check {
    let log = &machine.log;
    if log.poisoned().is_none() {
        let may_go_on = is_restart
            || matches!(
                op,
                Op::RemoveDeleted
                    | Op::CheckpointRecovery
                    | Op::CheckpointStart
                    | Op::Retry { .. }
                    | Op::Truncate { .. }
                    | Op::Restart { .. }
                    | Op::DeleteRecords { .. }
                    | Op::Produce { .. }
            );
        ensure!(may_go_on, "the operation failed and the log is not poisoned");
        if is_restart {
            return Ok(());
        }
        log.update_high_watermark(before.end);
        // A truncation that is over may have failed in the checkpoint written after it.
        return check_log(log, before).or_else(|_| check_log(log, &machine.after));
    }
    stays_poisoned(machine)
}

/// Every call says so, and nothing reaches the disk.
fn stays_poisoned(machine: &Machine) -> Check {
    let (log, now_ms) = (&machine.log, machine.model.now_ms);
    let changes = machine.fs.change_count();
    let reason = log.poisoned().map(str::to_owned);
    let batch = machine.model.batches.first().or(machine.after.batches.first());
    let bytes = batch.map_or(&[][..], |batch| &batch.bytes[..]);
    let calls: [(&str, Result<(), Error>); 12] = [
        ("append as leader", log.append_as_leader(bytes, 99, now_ms, Origin::Client).map(drop)),
        ("append as follower", log.append_as_follower(bytes, 99, now_ms).map(drop)),
        ("flush", log.flush().map(drop)),
        ("roll", log.roll(now_ms).map(drop)),
        ("truncate", log.truncate_to(log.log_start_offset(), now_ms).map(drop)),
        ("truncate fully", log.truncate_fully_and_start_at(0, now_ms)),
        ("advance the log start", log.advance_log_start_offset(log.log_end_offset()).map(drop)),
        ("retention", log.delete_old_segments(i64::MAX, log.log_end_offset()).map(drop)),
        ("remove deleted", log.remove_deleted(i64::MAX).map(drop)),
        ("snapshot", log.take_producer_snapshot()),
        ("assign an epoch", log.assign_epoch_start(1000, log.log_end_offset())),
        ("read", log.read(log.log_start_offset(), 100, i64::MAX, true).map(drop)),
    ];
    for (call, result) in calls {
        ensure!(matches!(result, Err(Error::Poisoned { .. })), "{call} on a poisoned log gives {result:?}");
    }
    let closed = log.close();
    ensure!(closed.is_ok(), "close of a poisoned log gives {closed:?}");
    ensure!(
        machine.fs.change_count() == changes,
        "{} changes reached the disk after the poison",
        machine.fs.change_count() - changes
    );
    ensure!(log.poisoned().map(str::to_owned) == reason, "the reason of the poison changed");
    Ok(())
}
