//! What a log knows of its idempotent and transactional producers, and the `.snapshot` files that keep it.
//!
//! Follows Kafka's `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo`.
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::{self, FileSystem};
use crate::recovery_event::{RecoveryEvent, RecoveryKind};
use crate::{Error, Result};

mod snapshot;
mod update;
mod verification;

pub use snapshot::{read_snapshot, write_snapshot};
pub use update::{EndMarker, Origin, ProducerUpdate, Verification};

/// Batches remembered per producer, to tell a repeated request from a gap.
pub const BATCHES_KEPT: usize = 5;

const INVALID_PRODUCER_EPOCH: i16 = 47;
const INVALID_TXN_STATE: i16 = 48;

/// One of the last batches of a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchMetadata {
    /// Sequence of the last record.
    pub last_sequence: i32,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Last offset minus first offset.
    pub offset_delta: i32,
    /// Largest timestamp of the batch.
    pub timestamp: i64,
}

impl BatchMetadata {
    /// Sequence of the first record; sequences wrap from 2^31-1 to 0.
    pub fn first_sequence(&self) -> i32 {
        ((i64::from(self.last_sequence) - i64::from(self.offset_delta)) & 0x7fff_ffff) as i32
    }

    /// Offset of the first record.
    pub fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

/// The last batches of a producer, oldest first, at most five.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentBatches {
    kept: [BatchMetadata; BATCHES_KEPT],
    count: usize,
}

impl RecentBatches {
    /// Oldest first.
    pub fn as_slice(&self) -> &[BatchMetadata] {
        self.kept.get(..self.count).unwrap_or_default()
    }

    /// Add one; the oldest goes when there are five.
    pub fn push(&mut self, batch: BatchMetadata) {
        if self.count == BATCHES_KEPT {
            self.kept.rotate_left(1);
            self.count -= 1;
        }
        if let Some(slot) = self.kept.get_mut(self.count) {
            *slot = batch;
            self.count += 1;
        }
    }

    /// Forget all.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// The newest.
    pub fn last(&self) -> Option<&BatchMetadata> {
        self.as_slice().last()
    }
}

/// State of one producer id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// The producer.
    pub producer_id: i64,
    /// Its epoch, -1 when nothing is known.
    pub producer_epoch: i16,
    /// Epoch of the transaction coordinator that wrote the last marker, -1 for none.
    pub coordinator_epoch: i32,
    /// Timestamp of the last batch or marker, -1 for none.
    pub last_timestamp: i64,
    /// First offset of the open transaction.
    pub current_txn_first_offset: Option<i64>,
    /// The last batches of the current epoch.
    pub batches: RecentBatches,
}

impl ProducerEntry {
    /// Nothing known of this producer.
    pub fn unknown(producer_id: i64) -> Self {
        Self {
            producer_id,
            producer_epoch: -1,
            coordinator_epoch: -1,
            last_timestamp: -1,
            current_txn_first_offset: None,
            batches: RecentBatches::default(),
        }
    }

    /// Last sequence, -1 for none.
    pub fn last_sequence(&self) -> i32 {
        self.batches.last().map_or(-1, |batch| batch.last_sequence)
    }

    /// Last data offset, -1 for none.
    pub fn last_offset(&self) -> i64 {
        self.batches.last().map_or(-1, |batch| batch.last_offset)
    }

    /// A new epoch starts with no batches remembered.
    fn set_epoch(&mut self, epoch: i16) {
        if self.producer_epoch != epoch {
            self.batches.clear();
            self.producer_epoch = epoch;
        }
    }

    /// The remembered batch with these sequences: what a retried request repeats.
    pub fn find_duplicate(
        &self,
        epoch: i16,
        base_sequence: i32,
        last_sequence: i32,
    ) -> Option<BatchMetadata> {
        if epoch != self.producer_epoch {
            return None;
        }
        let same = |batch: &&BatchMetadata| {
            batch.first_sequence() == base_sequence && batch.last_sequence == last_sequence
        };
        self.batches.as_slice().iter().find(same).copied()
    }
}

/// A transaction that a marker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    /// The producer.
    pub producer_id: i64,
    /// First offset of its data.
    pub first_offset: i64,
    /// Offset of the marker.
    pub last_offset: i64,
    /// Aborted, not committed.
    pub is_aborted: bool,
}

/// All producers of one log.
#[derive(Debug)]
pub struct ProducerState {
    fs: Arc<dyn FileSystem>,
    directory: PathBuf,
    expiration_ms: i64,
    entries: HashMap<i64, ProducerEntry>,
    /// Open transactions: first offset to producer id.
    ongoing: BTreeMap<i64, i64>,
    verifications: verification::Verifications,
    /// Ended transactions whose marker is not below the high watermark yet: first offset to marker offset.
    unreplicated: BTreeMap<i64, i64>,
    snapshots: BTreeSet<i64>,
    end_offset: i64,
    last_snapshot_offset: i64,
    /// Snapshots that were unreadable, until [`Self::take_damaged`].
    damaged: Vec<RecoveryEvent>,
}

impl ProducerState {
    /// An empty state over the snapshot files of a partition directory.
    pub fn open(fs: Arc<dyn FileSystem>, directory: &Path, expiration_ms: i64) -> Result<Self> {
        let snapshots = list_snapshots(fs.as_ref(), directory)?;
        Ok(Self {
            fs,
            directory: directory.to_owned(),
            expiration_ms,
            entries: HashMap::new(),
            ongoing: BTreeMap::new(),
            verifications: verification::Verifications::default(),
            unreplicated: BTreeMap::new(),
            snapshots,
            end_offset: 0,
            last_snapshot_offset: 0,
            damaged: Vec::new(),
        })
    }

    /// Known producers, in no order.
    pub fn entries(&self) -> impl Iterator<Item = &ProducerEntry> {
        self.entries.values()
    }

    /// Number of known producers.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// State of one producer.
    pub fn entry(&self, producer_id: i64) -> Option<&ProducerEntry> {
        self.entries.get(&producer_id)
    }

    /// Offset up to which (exclusive) the log is reflected here.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// Say that the log up to `end_offset` (exclusive) is reflected.
    pub fn set_end_offset(&mut self, end_offset: i64) {
        self.end_offset = end_offset;
    }

    /// Take over what `other`, the state of an equal log, has in memory alone: older batches of each producer, and the
    /// verifications that go on. `other` is empty afterwards.
    pub(crate) fn take_over(&mut self, other: &mut Self) {
        self.entries = std::mem::take(&mut other.entries);
        self.ongoing = std::mem::take(&mut other.ongoing);
        self.verifications = std::mem::take(&mut other.verifications);
        self.unreplicated = std::mem::take(&mut other.unreplicated);
    }

    /// Change the expiration of idle producers.
    pub fn set_expiration_ms(&mut self, expiration_ms: i64) {
        self.expiration_ms = expiration_ms;
    }

    /// No producers and no transactions waiting for the high watermark.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.unreplicated.is_empty()
    }

    /// Whether a producer has an open transaction in this epoch.
    pub fn has_ongoing_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        self.entry(producer_id)
            .is_some_and(|entry| entry.current_txn_first_offset.is_some() && entry.producer_epoch == epoch)
    }

    /// Before the coordinator is asked about the first batch of a transaction: the guard that the append has to bring,
    /// or `None` if the transaction is open here already and nobody has to be asked.
    ///
    /// # Errors
    /// [`Error::Rejected`] with 47: the producer is fenced.
    pub fn begin_verification(
        &mut self,
        producer_id: i64,
        epoch: i16,
        asked: Verification,
        now_ms: i64,
    ) -> Result<Option<u64>> {
        let last = self.entry(producer_id).map_or(-1, |entry| entry.producer_epoch);
        if epoch < last {
            return Err(Error::rejected(
                INVALID_PRODUCER_EPOCH,
                format!(
                    "epoch of producer {producer_id} is {epoch}, smaller than the last seen epoch {last}"
                ),
            ));
        }
        if self.has_ongoing_transaction(producer_id, epoch) {
            return Ok(None);
        }
        Ok(Some(self.verifications.begin(producer_id, epoch, asked, now_ms)))
    }

    /// What the verification of a transaction found, if the guard of that time still holds.
    pub fn verification(&self, producer_id: i64, guard: u64) -> Option<Verification> {
        self.verifications.find(producer_id, guard)
    }

    /// A transactional batch was appended: the next one finds the transaction open.
    pub fn end_verification(&mut self, producer_id: i64) {
        self.verifications.end(producer_id);
    }

    /// A marker was appended: what was verified before it does not hold any more.
    pub fn end_verification_by_marker(&mut self, producer_id: i64, marker_epoch: i16) {
        self.verifications.end_by_marker(producer_id, marker_epoch);
    }

    /// Begin to validate batches of one producer against its state.
    pub fn prepare(&self, producer_id: i64, origin: Origin) -> ProducerUpdate {
        let current = self.entry(producer_id).copied().unwrap_or_else(|| ProducerEntry::unknown(producer_id));
        ProducerUpdate::new(current, origin)
    }

    /// Take over what an accepted batch changed.
    pub fn apply(&mut self, update: &ProducerUpdate) {
        let updated = update.updated();
        let entry = self
            .entries
            .entry(updated.producer_id)
            .or_insert_with(|| ProducerEntry::unknown(updated.producer_id));
        entry.set_epoch(updated.producer_epoch);
        for batch in updated.batches.as_slice() {
            entry.batches.push(*batch);
        }
        entry.coordinator_epoch = updated.coordinator_epoch;
        entry.current_txn_first_offset = updated.current_txn_first_offset;
        entry.last_timestamp = updated.last_timestamp;
        for first_offset in update.started_transactions() {
            self.ongoing.insert(*first_offset, updated.producer_id);
        }
    }

    /// The last stable offset once `completed` is over, as the transaction index records it.
    pub fn last_stable_offset(&self, completed: &CompletedTransaction) -> i64 {
        let other = self.ongoing.iter().find(|(_, producer_id)| **producer_id != completed.producer_id);
        other.map_or(completed.last_offset.saturating_add(1), |(first_offset, _)| *first_offset)
    }

    /// End a transaction; it stays unstable until the high watermark passes its marker.
    pub fn complete(&mut self, completed: &CompletedTransaction) -> Result<()> {
        if self.ongoing.remove(&completed.first_offset).is_none() {
            return Err(Error::rejected(
                INVALID_TXN_STATE,
                format!("transaction of producer {} was not started", completed.producer_id),
            ));
        }
        self.unreplicated.insert(completed.first_offset, completed.last_offset);
        Ok(())
    }

    /// First offset of a transaction that is open, or whose marker is not below the high watermark.
    pub fn first_unstable_offset(&self) -> Option<i64> {
        let ongoing = self.ongoing.keys().next().copied();
        let unreplicated = self.unreplicated.keys().next().copied();
        match (ongoing, unreplicated) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Markers below `high_watermark` are decided for good.
    pub fn on_high_watermark(&mut self, high_watermark: i64) {
        self.unreplicated.retain(|_, last_offset| *last_offset >= high_watermark);
    }

    fn is_expired(&self, entry: &ProducerEntry, now_ms: i64) -> bool {
        entry.current_txn_first_offset.is_none()
            && now_ms.saturating_sub(entry.last_timestamp) >= self.expiration_ms
    }

    /// Forget producers that were idle for the configured time and have no open transaction.
    pub fn remove_expired(&mut self, now_ms: i64) {
        let expired: Vec<i64> = self
            .entries
            .values()
            .filter(|entry| self.is_expired(entry, now_ms))
            .map(|entry| entry.producer_id)
            .collect();
        for producer_id in expired {
            self.entries.remove(&producer_id);
        }
        self.verifications.remove_expired(now_ms, self.expiration_ms);
    }

    /// Forget what lies outside `[log_start_offset, log_end_offset]`, going back to the newest snapshot inside.
    pub fn truncate_and_reload(
        &mut self,
        log_start_offset: i64,
        log_end_offset: i64,
        now_ms: i64,
    ) -> Result<()> {
        let outside: Vec<i64> = self
            .snapshots
            .iter()
            .copied()
            .filter(|offset| *offset > log_end_offset || *offset <= log_start_offset)
            .collect();
        for offset in outside {
            self.remove_snapshot(offset)?;
        }
        if log_end_offset == self.end_offset {
            self.on_log_start_offset(log_start_offset);
            return Ok(());
        }
        self.entries.clear();
        self.verifications.clear();
        self.ongoing.clear();
        self.unreplicated.clear();
        // Where no state is known, if the snapshot cannot be read now.
        self.end_offset = -1;
        self.load_newest_snapshot(log_start_offset, now_ms)
    }

    fn load_newest_snapshot(&mut self, log_start_offset: i64, now_ms: i64) -> Result<()> {
        while let Some(offset) = self.snapshots.last().copied() {
            let path = self.snapshot_path(offset);
            let read = fs::read_file(self.fs.as_ref(), &path)?
                .map_or_else(|| Err(Error::Invalid("gone".to_owned())), |bytes| read_snapshot(&bytes));
            let entries = match read {
                Ok(entries) => entries,
                // A snapshot that a crash tore is no loss: an older one and the log give the same state.
                Err(error) => {
                    self.remove_snapshot(offset)?;
                    let kind = RecoveryKind::ProducersRebuilt;
                    self.damaged.push(RecoveryEvent::rebuilt(kind, path, error.to_string()));
                    continue;
                }
            };
            for entry in entries {
                if self.is_expired(&entry, now_ms) {
                    continue;
                }
                if let Some(first_offset) = entry.current_txn_first_offset {
                    self.ongoing.insert(first_offset, entry.producer_id);
                }
                self.entries.insert(entry.producer_id, entry);
            }
            self.last_snapshot_offset = offset;
            self.end_offset = offset;
            return Ok(());
        }
        self.last_snapshot_offset = log_start_offset;
        self.end_offset = log_start_offset;
        Ok(())
    }

    /// The log now starts at `log_start_offset`.
    pub fn on_log_start_offset(&mut self, log_start_offset: i64) {
        self.on_high_watermark(log_start_offset);
        self.end_offset = self.end_offset.max(log_start_offset);
        self.last_snapshot_offset = self.snapshots.last().copied().unwrap_or(log_start_offset);
    }

    /// Forget everything, snapshots too, and start at `offset`.
    pub fn truncate_fully_and_start_at(&mut self, offset: i64) -> Result<()> {
        self.entries.clear();
        self.verifications.clear();
        self.ongoing.clear();
        self.unreplicated.clear();
        for snapshot in self.snapshots.clone() {
            self.remove_snapshot(snapshot)?;
        }
        self.last_snapshot_offset = 0;
        self.end_offset = offset;
        Ok(())
    }

    /// Write a snapshot at [`Self::end_offset`] unless the last one is there already.
    pub fn take_snapshot(&mut self) -> Result<()> {
        if self.end_offset > self.last_snapshot_offset {
            let path = self.snapshot_path(self.end_offset);
            let bytes = write_snapshot(self.entries.values());
            let handle = self
                .fs
                .open(&path, fs::OpenMode::Truncate)
                .map_err(|error| Error::io("create", path.as_path(), error))?;
            handle.write_all_at(&[&bytes], 0).map_err(|error| Error::io("write", path.as_path(), error))?;
            self.snapshots.insert(self.end_offset);
            self.last_snapshot_offset = self.end_offset;
        }
        Ok(())
    }

    /// Make the newest snapshot durable, for a start that will not look at the log.
    pub fn sync_snapshot(&self) -> Result<()> {
        let Some(offset) = self.snapshots.last() else { return Ok(()) };
        let path = self.snapshot_path(*offset);
        let synced = self.fs.open(&path, fs::OpenMode::ReadWrite).and_then(|handle| handle.sync_data());
        synced.map_err(|error| Error::io("fsync", path, error))
    }

    /// The snapshots that were unreadable since the last call.
    pub(crate) fn take_damaged(&mut self) -> Vec<RecoveryEvent> {
        std::mem::take(&mut self.damaged)
    }

    /// Offset of the newest snapshot file.
    pub fn latest_snapshot_offset(&self) -> Option<i64> {
        self.snapshots.last().copied()
    }

    /// Delete the snapshot at `offset`, if there is one.
    pub fn remove_snapshot(&mut self, offset: i64) -> Result<()> {
        if self.snapshots.remove(&offset) {
            let path = self.snapshot_path(offset);
            match self.fs.remove(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Rename the snapshot at `offset`, if there is one, so that it is removed with the segment of that base offset.
    /// Returns its new name.
    pub fn mark_snapshot_deleted(&mut self, offset: i64) -> Result<Option<PathBuf>> {
        if !self.snapshots.remove(&offset) {
            return Ok(None);
        }
        let path = self.snapshot_path(offset);
        let target = fs::with_suffix(&path, ".deleted");
        match self.fs.rename(&path, &target) {
            Ok(()) => Ok(Some(target)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("rename", path, error)),
        }
    }

    /// Delete the snapshots beyond `offset`.
    pub fn remove_snapshots_after(&mut self, offset: i64) -> Result<()> {
        let beyond: Vec<i64> = self.snapshots.range(offset.saturating_add(1)..).copied().collect();
        beyond.into_iter().try_for_each(|snapshot| self.remove_snapshot(snapshot))
    }

    /// Re-read the directory and delete snapshots that belong to no segment, but not the newest one when it lies
    /// beyond the last segment's base: a clean shutdown wrote it.
    pub fn remove_stray_snapshots(&mut self, segment_base_offsets: &[i64]) -> Result<()> {
        self.snapshots = list_snapshots(self.fs.as_ref(), &self.directory)?;
        let last_base = segment_base_offsets.last().copied();
        let stray: Vec<i64> =
            self.snapshots.iter().copied().filter(|offset| !segment_base_offsets.contains(offset)).collect();
        let newest = stray.last().copied().filter(|offset| last_base.is_none_or(|base| *offset >= base));
        for offset in stray {
            if Some(offset) != newest {
                self.remove_snapshot(offset)?;
            }
        }
        Ok(())
    }

    fn snapshot_path(&self, offset: i64) -> PathBuf {
        self.directory.join(format!("{offset:020}.snapshot"))
    }
}

fn list_snapshots(fs: &dyn FileSystem, directory: &Path) -> Result<BTreeSet<i64>> {
    let names = fs.list(directory).map_err(|error| Error::io("list", directory, error))?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(".snapshot")?.parse().ok()).collect())
}

#[cfg(test)]
mod tests;
