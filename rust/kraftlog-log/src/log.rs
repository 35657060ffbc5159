//! One partition directory: an ordered list of segments with leader epochs and producer state, after Kafka's
//! `UnifiedLog`, `LocalLog` and `LogLoader`.
//!
//! Appends are serialised by one mutex; reads hold it only to pick their segments; fsync runs outside of it. After a
//! failed write or fsync the log is poisoned: every later call says so, as a retried fsync lies.
use std::collections::BTreeMap;
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use crate::epoch_checkpoint::{EpochCheckpoint, EpochEntry};
use crate::fs::FileSystem;
use crate::producer_state::{ProducerEntry, ProducerState, Verification};
use crate::recovery_event::RecoveryEvent;
use crate::segment::Segment;
use crate::{partition_metadata, Error, Result};

mod append;
mod append_options;
mod append_together;
mod cleaner;
mod config;
mod flush;
mod leftovers;
mod open;
mod producer_changes;
mod read;
mod relocation;
mod replace;
mod retention;
mod truncate;

pub use append::{AppendInfo, PreparedAppend};
pub use append_options::AppendOptions;
pub use cleaner::{CancelFlag, CleanOptions, CleanOutcome, CleanReport, CleanableSegment, Throttle};
pub use config::{CleanupPolicy, LogConfig};
pub use open::{OpenOptions, Recovery};
pub use read::FileSlice;

pub(crate) type Segments = BTreeMap<i64, Arc<Segment>>;

/// State behind the append lock.
#[derive(Debug)]
struct Inner {
    segments: Segments,
    log_start_offset: i64,
    log_end_offset: i64,
    recovery_point: i64,
    epochs: EpochCheckpoint,
    producers: ProducerState,
    topic_id: Option<[u8; 16]>,
    /// Renamed files and when they may be removed, milliseconds since the epoch.
    deleted: Vec<(i64, Vec<PathBuf>)>,
    /// Names were created since the directory was last synced.
    is_directory_dirty: bool,
    /// The directory itself is new: its parent is to be synced too.
    is_directory_new: bool,
    is_closed: bool,
    /// Truncations so far: a copy made before one must not replace what it cut.
    truncations: u64,
    /// A truncation that ran out of descriptors: the next call that takes the lock goes on with it.
    unfinished: Option<truncate::Unfinished>,
}

/// A log. Every method may be called from any thread.
#[derive(Debug)]
pub struct Log {
    fs: Arc<dyn FileSystem>,
    /// Changes under the lock of `inner`, when the log moves to another directory.
    path: RwLock<PathBuf>,
    config: RwLock<Arc<LogConfig>>,
    inner: Mutex<Inner>,
    /// Held while fsync or a truncation runs, so that one covers what the other leaves.
    flushing: Mutex<()>,
    poison: OnceLock<String>,
    recovery_events: Vec<RecoveryEvent>,
    log_end_offset: AtomicI64,
    log_start_offset: AtomicI64,
    /// As [`Self::first_unstable_offset`] returns it, `i64::MAX` for none.
    first_unstable_offset: AtomicI64,
}

/// A segment as [`Log::segments`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// First offset it may hold.
    pub base_offset: i64,
    /// Bytes in the `.log`.
    pub size_bytes: u64,
    /// Largest timestamp, -1 for none.
    pub max_timestamp: i64,
    /// The `.log`.
    pub path: PathBuf,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn active(&self) -> Result<&Arc<Segment>> {
        self.segments
            .last_key_value()
            .map(|(_, segment)| segment)
            .ok_or_else(|| Error::Invalid("no segment".to_owned()))
    }
}

impl Log {
    /// The partition directory.
    pub fn path(&self) -> PathBuf {
        self.path.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn origin(&self) -> String {
        self.path().display().to_string()
    }

    /// What opening the log cut, removed or built anew; empty for a sound directory.
    pub fn recovery_events(&self) -> &[RecoveryEvent] {
        &self.recovery_events
    }

    /// The first failure, when the log takes no more calls.
    pub fn poisoned(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    fn check(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned { origin: self.origin(), reason: reason.clone() }),
        }
    }

    /// The state, unless the log is poisoned or closed. A truncation that was begun is finished first.
    fn lock_inner(&self) -> Result<MutexGuard<'_, Inner>> {
        self.check()?;
        let mut inner = lock(&self.inner);
        if inner.is_closed {
            return Err(Error::Invalid(format!("log {} is closed", self.origin())));
        }
        self.finish_truncation(&mut inner)?;
        Ok(inner)
    }

    /// Remember the first failed write or fsync; the caller passes the error on.
    fn poison_with(&self, error: Error) -> Error {
        if matches!(error, Error::Io { .. }) {
            self.poison.get_or_init(|| error.to_string());
        }
        error
    }

    /// Like [`Self::poison_with`] for a caller whose work can be tried again when a file could not be opened for want of
    /// a descriptor.
    fn poison_unless_refused(&self, error: Error) -> Error {
        if error.is_out_of_descriptors() {
            return error;
        }
        self.poison_with(error)
    }

    fn publish(&self, inner: &Inner) {
        self.log_end_offset.store(inner.log_end_offset, Ordering::Release);
        self.log_start_offset.store(inner.log_start_offset, Ordering::Release);
        self.publish_first_unstable(inner);
    }

    fn publish_first_unstable(&self, inner: &Inner) {
        let unstable = inner.producers.first_unstable_offset();
        let published = unstable.map_or(i64::MAX, |offset| offset.max(inner.log_start_offset));
        self.first_unstable_offset.store(published, Ordering::Release);
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<LogConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Use another configuration from the next append on; index intervals change with the next segment.
    pub fn update_config(&self, config: LogConfig) {
        lock(&self.inner).producers.set_expiration_ms(config.producer_id_expiration_ms);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// First readable offset.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset.load(Ordering::Acquire)
    }

    /// Offset the next record gets.
    pub fn log_end_offset(&self) -> i64 {
        self.log_end_offset.load(Ordering::Acquire)
    }

    /// All before this offset survives a crash (exclusive).
    pub fn recovery_point(&self) -> i64 {
        lock(&self.inner).recovery_point
    }

    /// Bytes in all segments.
    pub fn size_bytes(&self) -> u64 {
        lock(&self.inner).segments.values().map(|segment| segment.size_bytes()).sum()
    }

    /// Number of segments, at least one.
    pub fn segment_count(&self) -> usize {
        lock(&self.inner).segments.len()
    }

    /// Base offset of the segment that appends go to.
    pub fn active_segment_base_offset(&self) -> i64 {
        lock(&self.inner).segments.last_key_value().map_or(-1, |(base_offset, _)| *base_offset)
    }

    /// All segments in order.
    pub fn segments(&self) -> Result<Vec<SegmentInfo>> {
        let segments: Vec<_> = lock(&self.inner).segments.values().cloned().collect();
        segments
            .iter()
            .map(|segment| {
                Ok(SegmentInfo {
                    base_offset: segment.base_offset(),
                    size_bytes: segment.size_bytes(),
                    max_timestamp: segment.max_timestamp()?.timestamp,
                    path: segment.path().to_owned(),
                })
            })
            .collect()
    }

    /// The topic id in `partition.metadata`.
    pub fn topic_id(&self) -> Option<[u8; 16]> {
        lock(&self.inner).topic_id
    }

    /// Write `partition.metadata`, durably; nothing happens when it has this id already.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it has another id.
    pub fn write_partition_metadata(&self, topic_id: [u8; 16]) -> Result<()> {
        let mut inner = self.lock_inner()?;
        match inner.topic_id {
            Some(present) if present == topic_id => Ok(()),
            Some(_) => Err(Error::Invalid(format!("{}: belongs to another topic id", self.origin()))),
            None => {
                partition_metadata::write(self.fs.as_ref(), &self.path(), topic_id)
                    .map_err(|error| self.poison_unless_refused(error))?;
                inner.topic_id = Some(topic_id);
                Ok(())
            }
        }
    }

    /// The newest leader epoch.
    pub fn latest_epoch(&self) -> Option<i32> {
        lock(&self.inner).epochs.latest().map(|entry| entry.epoch)
    }

    /// All leader epochs with their first offsets.
    pub fn epoch_entries(&self) -> Vec<EpochEntry> {
        lock(&self.inner).epochs.entries().to_vec()
    }

    /// The epoch that wrote `offset`.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        lock(&self.inner).epochs.epoch_for_offset(offset)
    }

    /// The largest epoch <= `epoch` and where it ends, exclusive; `(-1, -1)` when unknown (KIP-320).
    pub fn end_offset_for_epoch(&self, epoch: i32) -> (i32, i64) {
        let inner = lock(&self.inner);
        inner.epochs.end_offset_for(epoch, inner.log_end_offset)
    }

    /// Note that `epoch` begins at `start_offset`, durably.
    ///
    /// # Errors
    /// [`Error::Invalid`] when one of them is negative.
    pub fn assign_epoch_start(&self, epoch: i32, start_offset: i64) -> Result<()> {
        if epoch < 0 || start_offset < 0 {
            return Err(Error::Invalid(format!("epoch {epoch} cannot begin at offset {start_offset}")));
        }
        let mut inner = self.lock_inner()?;
        inner.epochs.assign(epoch, start_offset);
        inner.epochs.flush().map_err(|error| self.poison_unless_refused(error))
    }

    /// As [`ProducerState::begin_verification`].
    ///
    /// # Errors
    /// As there, or the log is closed or poisoned.
    pub fn begin_verification(
        &self,
        producer_id: i64,
        epoch: i16,
        asked: Verification,
        now_ms: i64,
    ) -> Result<Option<u64>> {
        self.lock_inner()?.producers.begin_verification(producer_id, epoch, asked, now_ms)
    }

    /// Whether a producer has an open transaction in this epoch.
    pub fn has_ongoing_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        lock(&self.inner).producers.has_ongoing_transaction(producer_id, epoch)
    }

    /// Known producers.
    pub fn active_producers(&self) -> Vec<ProducerEntry> {
        lock(&self.inner).producers.entries().copied().collect()
    }

    /// First offset of a transaction that is open, or whose end is not below the high watermark.
    pub fn first_unstable_offset(&self) -> Option<i64> {
        match self.first_unstable_offset.load(Ordering::Acquire) {
            i64::MAX => None,
            offset => Some(offset),
        }
    }

    /// Transactions that ended below `high_watermark` are decided for good.
    pub fn update_high_watermark(&self, high_watermark: i64) {
        let mut inner = lock(&self.inner);
        inner.producers.on_high_watermark(high_watermark);
        self.publish_first_unstable(&inner);
    }

    /// Forget producers that were idle for `producer_id_expiration_ms`.
    pub fn remove_expired_producers(&self, now_ms: i64) {
        lock(&self.inner).producers.remove_expired(now_ms);
    }

    /// Close the active segment and begin one at the log end offset. Returns its base offset.
    pub fn roll(&self, now_ms: i64) -> Result<i64> {
        let mut inner = self.lock_inner()?;
        let base_offset = inner.log_end_offset;
        self.roll_at(&mut inner, base_offset, now_ms).map_err(|error| self.poison_unless_refused(error))?;
        Ok(base_offset)
    }

    fn roll_at(&self, inner: &mut Inner, base_offset: i64, now_ms: i64) -> Result<()> {
        let base_offset = base_offset.max(inner.log_end_offset);
        let config = self.config();
        let active = Arc::clone(inner.active()?);
        if active.base_offset() == base_offset {
            if active.size_bytes() > 0 {
                return Err(Error::Invalid(format!(
                    "{}: a segment with base offset {base_offset} exists and is not empty",
                    self.origin()
                )));
            }
        } else {
            active.finish()?;
            if inner.recovery_point >= inner.log_end_offset {
                // Nothing is left to flush, so no later flush will look at this segment, and recovery would begin
                // after it: its indexes have to be durable before its successor exists.
                active.sync_indexes()?;
            }
            active.become_inactive()?;
        }
        let path = self.path();
        let segment_config = config.segment_config(&path, base_offset);
        let segment = Segment::create(&self.fs, &path, base_offset, segment_config, now_ms)?;
        inner.segments.insert(base_offset, Arc::new(segment));
        inner.is_directory_dirty = true;
        inner.producers.set_end_offset(base_offset);
        inner.producers.take_snapshot()
    }

    /// Write a producer snapshot at the log end offset, unless there is one.
    pub fn take_producer_snapshot(&self) -> Result<()> {
        let mut inner = self.lock_inner()?;
        inner.producers.take_snapshot().map_err(|error| self.poison_unless_refused(error))
    }
}

#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod descriptors;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
