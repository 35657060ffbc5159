//! Transactions whose coordinator was asked before their first batch is appended (KIP-890).
//!
//! Follows Kafka's `VerificationStateEntry` and `VerificationGuard`: an answer that arrives after the transaction was
//! ended must not begin it again.
use std::collections::HashMap;

use super::update::Verification;

/// What was asked about one producer.
#[derive(Clone, Copy, Debug)]
struct Entry {
    epoch: i16,
    verification: Verification,
    guard: u64,
    begun_ms: i64,
}

/// Producers whose transaction is being verified.
#[derive(Debug, Default)]
pub(super) struct Verifications {
    entries: HashMap<i64, Entry>,
    last_guard: u64,
}

impl Verifications {
    /// Begin to verify, or join the verification that goes on; the guard goes with the append.
    pub(super) fn begin(&mut self, producer_id: i64, epoch: i16, asked: Verification, now_ms: i64) -> u64 {
        let last_guard = &mut self.last_guard;
        let entry = self.entries.entry(producer_id).or_insert_with(|| {
            *last_guard += 1;
            Entry { epoch, verification: asked, guard: *last_guard, begun_ms: now_ms }
        });
        let is_lower = asked.lowest_sequence < entry.verification.lowest_sequence;
        if epoch > entry.epoch || epoch == entry.epoch && is_lower {
            entry.epoch = epoch;
            entry.verification.lowest_sequence = asked.lowest_sequence;
        }
        entry.guard
    }

    /// What the verification knows that `guard` stands for, if it is not over.
    pub(super) fn find(&self, producer_id: i64, guard: u64) -> Option<Verification> {
        self.entries.get(&producer_id).filter(|entry| entry.guard == guard).map(|entry| entry.verification)
    }

    /// A batch of the producer's transaction was appended.
    pub(super) fn end(&mut self, producer_id: i64) {
        self.entries.remove(&producer_id);
    }

    /// A marker was appended. A producer that gets a new epoch with each transaction may have asked for its next one.
    pub(super) fn end_by_marker(&mut self, producer_id: i64, marker_epoch: i16) {
        let is_next = |entry: &Entry| entry.verification.supports_epoch_bump && entry.epoch >= marker_epoch;
        if !self.entries.get(&producer_id).is_some_and(is_next) {
            self.end(producer_id);
        }
    }

    /// Forget what was asked so long ago that nobody waits any more.
    pub(super) fn remove_expired(&mut self, now_ms: i64, expiration_ms: i64) {
        self.entries.retain(|_, entry| now_ms.saturating_sub(entry.begun_ms) < expiration_ms);
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}
