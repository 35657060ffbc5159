//! Operations that fail, end short or lie when they are told to.
use std::io;

use super::MemoryFileSystem;
use crate::fs::Random;

/// Kinds of operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `read_at`.
    Read,
    /// `writev_at`.
    Write,
    /// `sync_data` and `sync_dir`. A failed `sync_data` drops the file's unsynced pages, as Linux does: some arrived,
    /// the others are not tried again.
    Sync,
    /// Creating, renaming and removing names, and `truncate`.
    Change,
    /// `open` and `open_dir`, before anything is created.
    Open,
}

/// A failure that waits for its operation.
#[derive(Clone, Copy, Debug)]
struct Failure {
    operation: Operation,
    countdown: u64,
    /// `None`: the read succeeds with one bit inverted.
    errno: Option<i32>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    failures: Vec<Failure>,
    short: Option<Random>,
    pub(super) random: Option<Random>,
}

impl Faults {
    /// The failure due now, if any: `Some(None)` is a flipped bit.
    pub(super) fn due(&mut self, operation: Operation) -> Option<Option<i32>> {
        let mut due = None;
        self.failures.retain_mut(|failure| {
            if failure.operation != operation {
                return true;
            }
            if failure.countdown == 0 && due.is_none() {
                due = Some(failure.errno);
                return false;
            }
            failure.countdown = failure.countdown.saturating_sub(1);
            true
        });
        due
    }

    /// How many of `length` bytes one call moves.
    pub(super) fn shorten(&mut self, length: usize) -> io::Result<usize> {
        let Some(random) = &mut self.short else { return Ok(length) };
        match random.below(8) {
            0 => Err(io::ErrorKind::Interrupted.into()),
            1..=3 if length > 1 => Ok(1 + random.index(length - 1)),
            _ => Ok(length),
        }
    }

    pub(super) fn random(&mut self) -> &mut Random {
        self.random.get_or_insert_with(|| Random::new(0))
    }
}

impl MemoryFileSystem {
    /// Let the operation number `countdown` (0 is the next) of this kind fail once with `errno`.
    pub fn fail(&self, operation: Operation, countdown: u64, errno: i32) {
        self.lock().faults.failures.push(Failure { operation, countdown, errno: Some(errno) });
    }

    /// Let the read number `countdown` (0 is the next) see one bit inverted.
    pub fn flip_on_read(&self, countdown: u64) {
        self.lock().faults.failures.push(Failure { operation: Operation::Read, countdown, errno: None });
    }

    /// With a seed, reads and writes move fewer bytes than asked or are interrupted, now and then.
    pub fn set_short_io(&self, seed: Option<u64>) {
        self.lock().faults.short = seed.map(Random::new);
    }

    /// What decides which pages a failed sync had written, and which bit a read sees inverted.
    pub fn set_fault_seed(&self, seed: u64) {
        self.lock().faults.random = Some(Random::new(seed));
    }

    /// From here on nothing fails.
    pub fn clear_faults(&self) {
        let mut state = self.lock();
        state.faults = Faults::default();
        state.capacity_bytes = None;
    }

    /// True while a failure set by [`Self::fail`] or [`Self::flip_on_read`] has not happened yet.
    pub fn has_pending_faults(&self) -> bool {
        !self.lock().faults.failures.is_empty()
    }

    /// Bytes in all files together beyond which writes end short and then fail with ENOSPC.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.lock().capacity_bytes = capacity_bytes;
    }
}
