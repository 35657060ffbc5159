//! Checks of one producer's batches before they are written (`ProducerAppendInfo`).
use super::{BatchMetadata, CompletedTransaction, ProducerEntry, RecentBatches, INVALID_TXN_STATE};
use crate::batch::{increment_sequence, BatchHeader};
use crate::{Error, Result};

const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
const INVALID_PRODUCER_EPOCH: i16 = 47;
const TRANSACTION_COORDINATOR_FENCED: i16 = 52;

/// Who appends, which decides how much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A produce request: everything is checked.
    Client,
    /// A group or transaction coordinator: no sequences.
    Coordinator,
    /// The leader of the metadata log.
    Raft,
    /// Batches a leader has accepted already.
    Replication,
}

/// The first record of a control batch that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// Abort, not commit.
    pub is_abort: bool,
    /// Epoch of the coordinator.
    pub coordinator_epoch: i32,
    /// Timestamp of the record.
    pub timestamp: i64,
}

impl EndMarker {
    /// Read key and value of the marker's record.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a key without version and type, or a negative version; [`Error::Invalid`] for no key, a
    /// type that is neither commit nor abort, or a value that is too short (where Kafka throws something else).
    pub fn parse(key: Option<&[u8]>, value: Option<&[u8]>, timestamp: i64) -> Result<Self> {
        let bad = |reason: String| Error::Invalid(format!("transaction marker: {reason}"));
        let corrupt = |reason: &str| Error::corrupt(0, -1, format!("transaction marker: {reason}"));
        let key = key.ok_or_else(|| bad("no key".to_owned()))?;
        let [v0, v1, t0, t1] =
            *key.first_chunk::<4>().ok_or_else(|| corrupt("the key has no version and type"))?;
        if i16::from_be_bytes([v0, v1]) < 0 {
            return Err(corrupt("the key's version is negative"));
        }
        let kind = i16::from_be_bytes([t0, t1]);
        if !(kind == 0 || kind == 1) {
            return Err(bad(format!("control type {kind} is neither abort nor commit")));
        }
        let [w0, w1, e0, e1, e2, e3] = *value
            .and_then(|value| value.first_chunk::<6>())
            .ok_or_else(|| bad("the value has no version and coordinator epoch".to_owned()))?;
        if i16::from_be_bytes([w0, w1]) < 0 {
            return Err(corrupt("the value's version is negative"));
        }
        let coordinator_epoch = i32::from_be_bytes([e0, e1, e2, e3]);
        Ok(Self { is_abort: kind == 0, coordinator_epoch, timestamp })
    }
}

/// What is known of a transaction that was verified with its coordinator before its first batch here (KIP-890).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The lowest sequence seen since the verification was asked for.
    pub lowest_sequence: i32,
    /// The producer gets a new epoch with every transaction (`transaction.version` 2).
    pub supports_epoch_bump: bool,
}

/// A producer's state with the batches of one append on top, not applied yet.
#[derive(Clone, Debug)]
pub struct ProducerUpdate {
    current: ProducerEntry,
    updated: ProducerEntry,
    origin: Origin,
    /// First offsets of the transactions that these batches begin, in order: one append of a follower may hold several.
    started: Vec<i64>,
    verification: Option<Verification>,
}

impl ProducerUpdate {
    pub(super) fn new(current: ProducerEntry, origin: Origin) -> Self {
        let updated = ProducerEntry { batches: RecentBatches::default(), ..current };
        Self { current, updated, origin, started: Vec::new(), verification: None }
    }

    /// Check the sequences against what the verification of the transaction told, too.
    pub fn set_verification(&mut self, verification: Option<Verification>) {
        self.verification = verification;
    }

    /// The producer.
    pub fn producer_id(&self) -> i64 {
        self.current.producer_id
    }

    /// Whether the sequence of a batch follows on the last one added here.
    pub(crate) fn is_continued_by(&self, batch: &BatchHeader<'_>) -> bool {
        let next_sequence = increment_sequence(self.updated.last_sequence(), 1);
        self.updated.batches.last().is_some()
            && batch.producer_epoch() == self.updated.producer_epoch
            && batch.base_sequence() == next_sequence
    }

    pub(super) fn updated(&self) -> &ProducerEntry {
        &self.updated
    }

    pub(super) fn started_transactions(&self) -> &[i64] {
        &self.started
    }

    /// Check and add a batch of records.
    ///
    /// # Errors
    /// [`Error::Rejected`] with 45, 47 or 48; the update is then to be thrown away.
    pub fn append_data(&mut self, batch: &BatchHeader<'_>, base_offset: i64) -> Result<()> {
        let epoch = batch.producer_epoch();
        self.check_epoch(epoch, base_offset, false)?;
        if self.origin == Origin::Client {
            self.check_sequence(epoch, batch.base_sequence(), base_offset)?;
        }
        self.updated.set_epoch(epoch);
        self.updated.batches.push(BatchMetadata {
            last_sequence: batch.last_sequence(),
            last_offset: base_offset.wrapping_add(i64::from(batch.last_offset_delta())),
            offset_delta: batch.last_offset_delta(),
            timestamp: batch.max_timestamp(),
        });
        self.updated.last_timestamp = batch.max_timestamp();
        match (self.updated.current_txn_first_offset, batch.is_transactional()) {
            (Some(_), false) => Err(Error::rejected(
                INVALID_TXN_STATE,
                format!(
                    "expected transactional write from producer {} at offset {base_offset}",
                    self.current.producer_id
                ),
            )),
            (None, true) => {
                self.updated.current_txn_first_offset = Some(base_offset);
                self.started.push(base_offset);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Check and add a marker; tells which transaction it ends, if one is open. With `transaction_version` 2 or later
    /// the marker carries an epoch above that of the transaction's records (KIP-1228), or repeats the last marker.
    ///
    /// # Errors
    /// [`Error::Rejected`] with 47 or 52.
    pub fn append_marker(
        &mut self,
        producer_epoch: i16,
        offset: i64,
        marker: EndMarker,
        transaction_version: i16,
    ) -> Result<Option<CompletedTransaction>> {
        // At the largest epoch there is none above it to bump to.
        let is_repeated = producer_epoch == self.updated.producer_epoch
            && (self.updated.current_txn_first_offset.is_none() || producer_epoch == i16::MAX);
        self.check_epoch(producer_epoch, offset, transaction_version >= 2 && !is_repeated)?;
        if self.updated.coordinator_epoch > marker.coordinator_epoch && self.origin != Origin::Replication {
            return Err(Error::rejected(
                TRANSACTION_COORDINATOR_FENCED,
                format!(
                    "coordinator epoch {} for producer {} at offset {offset} is older than {}",
                    marker.coordinator_epoch, self.current.producer_id, self.updated.coordinator_epoch
                ),
            ));
        }
        let completed = self.updated.current_txn_first_offset.map(|first_offset| CompletedTransaction {
            producer_id: self.current.producer_id,
            first_offset,
            last_offset: offset,
            is_aborted: marker.is_abort,
        });
        self.updated.set_epoch(producer_epoch);
        self.updated.coordinator_epoch = marker.coordinator_epoch;
        self.updated.current_txn_first_offset = None;
        self.updated.last_timestamp = marker.timestamp;
        Ok(completed)
    }

    fn check_epoch(&self, epoch: i16, offset: i64, must_rise: bool) -> Result<()> {
        let last = self.updated.producer_epoch;
        if self.origin != Origin::Replication && (epoch < last || must_rise && epoch == last) {
            let relation = if must_rise { "not larger" } else { "smaller" };
            return Err(Error::rejected(
                INVALID_PRODUCER_EPOCH,
                format!(
                    "epoch of producer {} at offset {offset} is {epoch}, {relation} than the last seen epoch {last}",
                    self.current.producer_id
                ),
            ));
        }
        Ok(())
    }

    fn check_sequence(&self, epoch: i16, base_sequence: i32, offset: i64) -> Result<()> {
        let id = self.current.producer_id;
        let last_epoch = self.updated.producer_epoch;
        if let Some(verification) = self.verification {
            let is_unknown = self.current.batches.last().is_none();
            let limit =
                if verification.supports_epoch_bump && is_unknown { 0 } else { verification.lowest_sequence };
            if base_sequence > limit {
                return Err(Error::rejected(
                    OUT_OF_ORDER_SEQUENCE_NUMBER,
                    format!(
                        "out of order sequence for producer {id} at offset {offset}: {base_sequence} (incoming), at \
                         most {limit} (as its transaction was verified)"
                    ),
                ));
            }
        }
        if epoch != last_epoch {
            if base_sequence != 0 && last_epoch != -1 {
                return Err(Error::rejected(
                    OUT_OF_ORDER_SEQUENCE_NUMBER,
                    format!(
                        "invalid sequence for new epoch of producer {id} at offset {offset}: {epoch} (request epoch), \
                         {base_sequence} (sequence), {last_epoch} (current epoch)"
                    ),
                ));
            }
            return Ok(());
        }
        let last = if self.updated.batches.last().is_some() {
            self.updated.last_sequence()
        } else if epoch == self.current.producer_epoch {
            self.current.last_sequence()
        } else {
            -1
        };
        let follows =
            i64::from(base_sequence) == i64::from(last) + 1 || (base_sequence == 0 && last == i32::MAX);
        // Nothing known of the producer (its records were deleted): any sequence may come.
        if self.current.producer_epoch == -1 || follows {
            return Ok(());
        }
        Err(Error::rejected(
            OUT_OF_ORDER_SEQUENCE_NUMBER,
            format!(
                "out of order sequence for producer {id} at offset {offset}: {base_sequence} (incoming), {last} (last)"
            ),
        ))
    }
}
