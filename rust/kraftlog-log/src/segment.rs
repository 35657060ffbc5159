//! One segment: `.log` with its `.index`, `.timeindex` and `.txnindex`, after Kafka's `LogSegment`.
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::batch::BatchHeader;
use crate::fs::{FileHandle, FileSystem, LazyFile};
use crate::index::{relative_offset, OffsetIndex, OffsetPosition};
use crate::time_index::{TimeIndex, TimestampOffset};
use crate::{Error, Result};

mod check;
mod header_scan;
mod recover;
mod roll;
mod search;
mod transaction_index;

pub use check::RecoveryProgress;
pub(crate) use check::{Checked, Fact};
pub use header_scan::{FoundBatch, HeaderScan};
pub(crate) use recover::{end_marker, note_producer};
pub use recover::{recover_file, SegmentRecovery};
pub use roll::RollParameters;
pub use search::FoundTimestamp;
pub use transaction_index::{AbortedTransaction, TransactionIndex};

/// Suffixes of the files of a segment.
pub const LOG_SUFFIX: &str = "log";
/// See [`LOG_SUFFIX`].
pub const INDEX_SUFFIX: &str = "index";
/// See [`LOG_SUFFIX`].
pub const TIME_INDEX_SUFFIX: &str = "timeindex";
/// See [`LOG_SUFFIX`].
pub const TRANSACTION_INDEX_SUFFIX: &str = "txnindex";
/// Appended to files that are out of use and wait to be removed.
pub const DELETED_SUFFIX: &str = ".deleted";
/// Appended to the files of a segment that is being written to replace others.
pub const CLEANED_SUFFIX: &str = ".cleaned";
/// Appended to the files of a segment that is complete and about to replace others.
pub const SWAP_SUFFIX: &str = ".swap";

/// `<directory>/<base_offset in 20 digits>.<suffix>`.
pub fn segment_path(directory: &Path, base_offset: i64, suffix: &str) -> PathBuf {
    directory.join(format!("{base_offset:020}.{suffix}"))
}

/// What a segment takes from the configuration of its log.
#[derive(Clone, Copy, Debug)]
pub struct SegmentConfig {
    /// Bytes of log between two index entries (`index.interval.bytes`).
    pub index_interval_bytes: u64,
    /// Largest size of an index file (`segment.index.bytes`).
    pub segment_index_bytes: u64,
    /// Taken off `segment.ms` for this segment.
    pub roll_jitter_ms: i64,
    /// A new `.log` gets this length at once and is cut to what it holds when it is closed; 0 lets it grow.
    pub preallocate_bytes: u64,
}

/// What the index needs to know of an appended batch.
#[derive(Clone, Copy, Debug)]
pub struct AppendedBatch {
    /// Last offset, inclusive.
    pub last_offset: i64,
    /// Largest timestamp.
    pub max_timestamp: i64,
    /// Bytes with the header.
    pub size_bytes: usize,
}

impl AppendedBatch {
    /// The facts of a header with its final offset and timestamp.
    pub fn of(header: &BatchHeader<'_>) -> Self {
        Self {
            last_offset: header.last_offset(),
            max_timestamp: header.max_timestamp(),
            size_bytes: header.size_bytes(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct SegmentState {
    pub(crate) offset_index: OffsetIndex,
    pub(crate) time_index: TimeIndex,
    pub(crate) transactions: TransactionIndex,
    /// Largest timestamp so far; `None` until the time index was asked.
    max_timestamp: Option<TimestampOffset>,
    bytes_since_index_entry: u64,
    /// Timestamp of the first batch, for rolling by time; `None` until read.
    first_timestamp: Option<i64>,
    created_ms: i64,
}

/// A segment. Reads need no lock of the log: sizes are atomic, indexes behind a mutex of their own.
#[derive(Debug)]
pub struct Segment {
    fs: Arc<dyn FileSystem>,
    directory: PathBuf,
    base_offset: i64,
    config: SegmentConfig,
    log: LazyFile,
    size_bytes: AtomicU64,
    state: Mutex<SegmentState>,
}

impl Segment {
    /// New, empty files; leftovers of the same name are emptied.
    pub fn create(
        fs: &Arc<dyn FileSystem>,
        directory: &Path,
        base_offset: i64,
        config: SegmentConfig,
        now_ms: i64,
    ) -> Result<Self> {
        Self::create_suffixed(fs, directory, base_offset, config, now_ms, "")
    }

    /// Like [`Self::create`]; the file names end in `suffix` until [`Self::change_suffix`].
    pub(crate) fn create_suffixed(
        fs: &Arc<dyn FileSystem>,
        directory: &Path,
        base_offset: i64,
        config: SegmentConfig,
        now_ms: i64,
        suffix: &str,
    ) -> Result<Self> {
        let path = |kind| segment_path(directory, base_offset, kind);
        let name = |kind| crate::fs::with_suffix(&path(kind), suffix);
        let offset_index =
            OffsetIndex::create_named(Arc::clone(fs), path(INDEX_SUFFIX), name(INDEX_SUFFIX), base_offset)?;
        let time_index = TimeIndex::create_named(
            Arc::clone(fs),
            path(TIME_INDEX_SUFFIX),
            name(TIME_INDEX_SUFFIX),
            base_offset,
        )?;
        let mut transactions = TransactionIndex::new(Arc::clone(fs), name(TRANSACTION_INDEX_SUFFIX));
        transactions.reset()?;
        let log = LazyFile::create_named(Arc::clone(fs), path(LOG_SUFFIX), name(LOG_SUFFIX))?;
        if config.preallocate_bytes > 0 {
            log.truncate(config.preallocate_bytes)?;
        }
        Ok(Self {
            fs: Arc::clone(fs),
            directory: directory.to_owned(),
            base_offset,
            config,
            log,
            size_bytes: AtomicU64::new(0),
            state: Mutex::new(SegmentState {
                offset_index,
                time_index,
                transactions,
                max_timestamp: Some(TimestampOffset { timestamp: -1, offset: base_offset }),
                bytes_since_index_entry: 0,
                first_timestamp: None,
                created_ms: now_ms,
            }),
        })
    }

    /// Files that exist. Index files that are missing are created empty: the caller must then [`Self::recover`].
    ///
    /// Returns the segment and the suffixes of the index files that were missing.
    pub fn open(
        fs: &Arc<dyn FileSystem>,
        directory: &Path,
        base_offset: i64,
        config: SegmentConfig,
        now_ms: i64,
    ) -> Result<(Self, Vec<&'static str>)> {
        let path = |suffix| segment_path(directory, base_offset, suffix);
        let exists = |path: &Path| fs.exists(path).map_err(|error| Error::io("stat", path, error));
        let log_path = path(LOG_SUFFIX);
        let size_bytes =
            fs.metadata(&log_path).map_err(|error| Error::io("stat", log_path.as_path(), error))?.size_bytes;
        let has_offset_index = exists(&path(INDEX_SUFFIX))?;
        let has_time_index = exists(&path(TIME_INDEX_SUFFIX))?;
        let offset_index = if has_offset_index {
            OffsetIndex::open(Arc::clone(fs), path(INDEX_SUFFIX), base_offset)
        } else {
            OffsetIndex::create(Arc::clone(fs), path(INDEX_SUFFIX), base_offset)?
        };
        let time_index = if has_time_index {
            TimeIndex::open(Arc::clone(fs), path(TIME_INDEX_SUFFIX), base_offset)
        } else {
            TimeIndex::create(Arc::clone(fs), path(TIME_INDEX_SUFFIX), base_offset)?
        };
        let segment = Self {
            fs: Arc::clone(fs),
            directory: directory.to_owned(),
            base_offset,
            config,
            log: LazyFile::new(Arc::clone(fs), log_path),
            size_bytes: AtomicU64::new(size_bytes),
            state: Mutex::new(SegmentState {
                offset_index,
                time_index,
                transactions: TransactionIndex::new(Arc::clone(fs), path(TRANSACTION_INDEX_SUFFIX)),
                max_timestamp: None,
                bytes_since_index_entry: 0,
                first_timestamp: None,
                created_ms: now_ms,
            }),
        };
        let missing = [(has_offset_index, INDEX_SUFFIX), (has_time_index, TIME_INDEX_SUFFIX)];
        Ok((
            segment,
            missing.into_iter().filter(|(is_there, _)| !is_there).map(|(_, suffix)| suffix).collect(),
        ))
    }

    /// First offset the segment may hold; its name.
    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// Bytes in the `.log`.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// Path of the `.log`.
    pub fn path(&self) -> &Path {
        self.log.path()
    }

    /// The open `.log`.
    pub fn file(&self) -> Result<Arc<dyn FileHandle>> {
        self.log.get()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SegmentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the `.log` was last written, milliseconds since the epoch.
    pub fn modified_ms(&self) -> Result<i64> {
        let metadata =
            self.fs.metadata(self.path()).map_err(|error| Error::io("stat", self.path(), error))?;
        Ok(metadata.modified_ms)
    }

    /// Let the `.log` look last written at this time, milliseconds since the epoch.
    pub fn set_modified_ms(&self, modified_ms: i64) -> Result<()> {
        self.log
            .get()?
            .set_modified_ms(modified_ms)
            .map_err(|error| Error::io("set the time of", self.path(), error))
    }

    /// Number of entries in the offset index and in the time index.
    pub fn index_entry_counts(&self) -> Result<(usize, usize)> {
        let mut state = self.state();
        Ok((state.offset_index.count()?, state.time_index.count()?))
    }

    /// Largest timestamp so far and the last offset of the batch that has it; `(-1, base_offset)` for none.
    pub fn max_timestamp(&self) -> Result<TimestampOffset> {
        self.state().max_timestamp()
    }

    /// Largest timestamp, or for a segment without timestamps when its file was last written.
    pub fn largest_timestamp(&self) -> Result<i64> {
        match self.max_timestamp()?.timestamp {
            timestamp if timestamp >= 0 => Ok(timestamp),
            _ => self.modified_ms(),
        }
    }

    /// Write batches at the end and keep the indexes; a failure leaves the segment as it was, but the file may have
    /// bytes beyond [`Self::size_bytes`].
    pub fn append(&self, parts: &[&[u8]], batches: &[AppendedBatch]) -> Result<()> {
        let mut position = self.size_bytes();
        for batch in batches {
            relative_offset(self.base_offset, batch.last_offset)?;
        }
        let mut state = self.state();
        // Files are opened before the write: nothing fails for want of a descriptor after it.
        state.max_timestamp()?;
        state.transactions.entries()?;
        self.log.write_all_at(parts, position)?;
        for batch in batches {
            state.note(self.config.index_interval_bytes, position, batch)?;
            position += batch.size_bytes as u64;
        }
        self.size_bytes.store(position, Ordering::Release);
        Ok(())
    }

    /// Write bytes at the end that are not batches: what a torn segment ends with.
    pub(crate) fn append_unchecked(&self, bytes: &[u8]) -> Result<()> {
        let position = self.size_bytes();
        self.log.write_all_at(&[bytes], position)?;
        self.size_bytes.store(position + bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    /// Largest timestamp of the first batch; `None` when there is no batch.
    pub fn first_timestamp(&self) -> Result<Option<i64>> {
        if let Some(timestamp) = self.state().first_timestamp {
            return Ok(Some(timestamp));
        }
        let Some(batch) = self.scan(0)?.next_batch()? else { return Ok(None) };
        let timestamp = batch.header().max_timestamp();
        self.state().first_timestamp = Some(timestamp);
        Ok(Some(timestamp))
    }

    /// Batch headers from `position` to the end.
    pub fn scan(&self, position: u64) -> Result<HeaderScan> {
        Ok(HeaderScan::new(self.log.get()?, self.path(), position, self.size_bytes()))
    }

    /// Drop all batches that end at or after `offset`. Returns the first offset dropped, or `offset`.
    pub fn truncate_to(&self, offset: i64, now_ms: i64) -> Result<i64> {
        let found = match self.find_batch(offset)? {
            Some(batch) => Some((self.first_offset(&batch)?, batch)),
            None => None,
        };
        let mut state = self.state();
        // As in an append: what can fail for want of a descriptor comes first, and can be done again.
        let had_timestamp = state.max_timestamp()?.timestamp >= 0;
        self.log.get()?;
        state.offset_index.truncate_to(offset)?;
        state.time_index.truncate_to(offset)?;
        state.transactions.truncate_to(offset)?;
        let mut end_offset = offset;
        if let Some((first_offset, batch)) = found {
            self.log.truncate(batch.position)?;
            self.size_bytes.store(batch.position, Ordering::Release);
            end_offset = end_offset.min(first_offset);
        }
        if self.size_bytes() == 0 {
            state.created_ms = now_ms;
            state.first_timestamp = None;
        }
        state.bytes_since_index_entry = 0;
        drop(state);
        if had_timestamp {
            let largest = self.read_largest_timestamp()?;
            self.state().max_timestamp = Some(largest);
        }
        Ok(end_offset)
    }

    /// The largest timestamp as the time index and the batches after its last entry tell it.
    fn read_largest_timestamp(&self) -> Result<TimestampOffset> {
        let (mut largest, position) = {
            let mut state = self.state();
            let last = state.time_index.last()?;
            (last, state.offset_index.lookup(last.offset)?.position)
        };
        let mut scan = self.scan(position)?;
        while let Some(batch) = scan.next_batch()? {
            let header = batch.header();
            if header.max_timestamp() > largest.timestamp {
                largest = TimestampOffset { timestamp: header.max_timestamp(), offset: header.last_offset() };
            }
        }
        Ok(largest)
    }

    /// The offset after the last batch, found from the last index entry on. Fails when the tail is not made of whole
    /// batches.
    pub fn read_next_offset(&self) -> Result<i64> {
        Ok(self.read_end()?.0)
    }

    /// The offset after the last batch, and that batch's leader epoch (-1 for none).
    pub(crate) fn read_end(&self) -> Result<(i64, i32)> {
        let start = {
            let mut state = self.state();
            state.offset_index.last()?.map_or(0, |entry| entry.position)
        };
        let mut end = (self.base_offset, -1);
        let mut scan = self.scan(start)?;
        while let Some(batch) = scan.next_batch()? {
            end = (batch.header().next_offset(), batch.header().partition_leader_epoch());
        }
        if scan.position() != self.size_bytes() {
            return Err(Error::corrupt(scan.position(), -1, "bytes that are not a whole batch")
                .located(self.path().display().to_string(), 0));
        }
        Ok(end)
    }

    /// No more appends will come: complete and trim the indexes (`onBecomeInactiveSegment`).
    pub fn become_inactive(&self) -> Result<()> {
        self.finish()?;
        let mut state = self.state();
        state.offset_index.file().release()?;
        state.time_index.file().release()
    }

    /// Write what the indexes hold back and cut preallocated tails.
    pub fn finish(&self) -> Result<()> {
        let mut state = self.state();
        if self.config.preallocate_bytes > 0 && self.log.size_bytes()? > self.size_bytes() {
            self.log.truncate(self.size_bytes())?;
        }
        if let Some(largest) = state.max_timestamp {
            state.time_index.maybe_append(largest)?;
        }
        state.transactions.write_pending()?;
        state.offset_index.file().trim()?;
        state.time_index.file().trim()
    }

    /// Make the `.log` durable.
    pub fn sync_log(&self) -> Result<()> {
        self.log.sync()
    }

    /// Write the index entries that are held back, for readers of the files meanwhile.
    pub fn write_pending_indexes(&self) -> Result<()> {
        let mut state = self.state();
        state.offset_index.file().write_pending()?;
        state.time_index.file().write_pending()?;
        state.transactions.write_pending()
    }

    /// Make the index files durable.
    pub fn sync_indexes(&self) -> Result<()> {
        let mut state = self.state();
        state.offset_index.file().sync()?;
        state.time_index.file().sync()?;
        state.transactions.sync()
    }

    /// Let go of descriptors and index memory.
    pub fn release(&self) -> Result<()> {
        let mut state = self.state();
        state.offset_index.file().release()?;
        state.time_index.file().release()?;
        self.log.close();
        Ok(())
    }

    /// Whether the `.txnindex` is readable and speaks of this segment (`TransactionIndex.sanityCheck`).
    pub(crate) fn has_sound_transactions(&self) -> Result<bool> {
        match self.state().transactions.entries() {
            Ok(entries) => Ok(entries.iter().all(|aborted| aborted.last_offset >= self.base_offset)),
            Err(Error::Invalid(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the last entries of both indexes can be those of a segment that ends before `next_offset`
    /// (`sanityCheck` of Kafka's indexes, and that they point into the file).
    pub(crate) fn has_sound_indexes(&self, next_offset: i64) -> Result<bool> {
        let size = self.size_bytes();
        let mut state = self.state();
        let within = |offset: i64| offset >= self.base_offset && offset < next_offset;
        let is_offset_index_sound =
            state.offset_index.last()?.is_none_or(|last| within(last.offset) && last.position < size);
        let is_time_index_sound = state.time_index.count()? == 0 || {
            let (first, last) = (state.time_index.entry(0)?, state.time_index.last()?);
            within(last.offset) && first.timestamp <= last.timestamp
        };
        Ok(is_offset_index_sound && is_time_index_sound)
    }

    /// Note an aborted transaction.
    pub fn append_aborted(&self, aborted: AbortedTransaction) -> Result<()> {
        self.state().transactions.append(aborted)
    }

    /// Rename all files so that they are out of use; a holder of the segment keeps reading. Returns the new names.
    pub fn mark_deleted(&self) -> Result<Vec<PathBuf>> {
        self.change_suffix(DELETED_SUFFIX)
    }

    /// Let the names of all files end in `suffix`, after `.log` and so on. Returns the new names of those that exist.
    pub(crate) fn change_suffix(&self, suffix: &str) -> Result<Vec<PathBuf>> {
        let name =
            |kind| crate::fs::with_suffix(&segment_path(&self.directory, self.base_offset, kind), suffix);
        let mut state = self.state();
        let mut renamed = Vec::new();
        for (name, is_there) in [
            (name(LOG_SUFFIX), self.log.rename(name(LOG_SUFFIX))?),
            (name(INDEX_SUFFIX), state.offset_index.file().rename(name(INDEX_SUFFIX))?),
            (name(TIME_INDEX_SUFFIX), state.time_index.file().rename(name(TIME_INDEX_SUFFIX))?),
            (name(TRANSACTION_INDEX_SUFFIX), state.transactions.rename(name(TRANSACTION_INDEX_SUFFIX))?),
        ] {
            if is_there {
                renamed.push(name);
            }
        }
        Ok(renamed)
    }

    /// The last index entry at or before `offset`.
    pub fn lookup(&self, offset: i64) -> Result<OffsetPosition> {
        self.state().offset_index.lookup(offset)
    }

    /// All entries of the offset index.
    pub fn offset_entries(&self) -> Result<Vec<OffsetPosition>> {
        let mut state = self.state();
        (0..state.offset_index.count()?).map(|index| state.offset_index.entry(index)).collect()
    }

    /// All entries of the time index.
    pub fn time_entries(&self) -> Result<Vec<TimestampOffset>> {
        let mut state = self.state();
        (0..state.time_index.count()?).map(|index| state.time_index.entry(index)).collect()
    }
}

impl SegmentState {
    fn max_timestamp(&mut self) -> Result<TimestampOffset> {
        match self.max_timestamp {
            Some(largest) => Ok(largest),
            None => {
                let last = self.time_index.last()?;
                self.max_timestamp = Some(last);
                Ok(last)
            }
        }
    }

    fn index(&mut self, last_offset: i64, position: u64, largest: TimestampOffset) -> Result<()> {
        self.offset_index.append(last_offset, position)?;
        self.time_index.maybe_append(largest)
    }

    /// Keep the indexes for a batch written at `position` (`LogSegment.append`).
    fn note(&mut self, interval_bytes: u64, position: u64, batch: &AppendedBatch) -> Result<()> {
        if position == 0 {
            self.first_timestamp = Some(batch.max_timestamp);
        }
        let mut largest = self.max_timestamp()?;
        if batch.max_timestamp > largest.timestamp {
            largest = TimestampOffset { timestamp: batch.max_timestamp, offset: batch.last_offset };
            self.max_timestamp = Some(largest);
        }
        if self.bytes_since_index_entry > interval_bytes {
            match self.index(batch.last_offset, position, largest) {
                Ok(()) => self.bytes_since_index_entry = 0,
                // The batch is written; the next one gets the entry.
                Err(error) if error.is_out_of_descriptors() => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes_since_index_entry += batch.size_bytes as u64;
        Ok(())
    }
}
