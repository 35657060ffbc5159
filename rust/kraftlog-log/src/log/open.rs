//! Opening a partition directory, with recovery after an unclean stop (Kafka's `LogLoader`).
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use super::leftovers::{base_offset_of, clean_up};
use super::{lock, Inner, Log, LogConfig, Segments};
use crate::batch::BatchView;
use crate::epoch_checkpoint::{EpochCheckpoint, EpochEntry};
use crate::fs::FileSystem;
use crate::producer_state::ProducerState;
use crate::recovery_event::{RecoveryEvent, RecoveryKind};
use crate::segment::{end_marker, note_producer, segment_path, Segment, LOG_SUFFIX};
use crate::{partition_metadata, Error, Result};

mod continuity;
mod recover;
mod report;

pub use recover::Recovery;

/// What a node knows of a log from its checkpoints.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// `recovery-point-offset-checkpoint`: all before it was flushed.
    pub recovery_point: i64,
    /// `log-start-offset-checkpoint`.
    pub log_start_offset: i64,
    /// `.kafka_cleanshutdown` was there: nothing is to be recovered.
    pub clean_shutdown: bool,
    /// Wall clock, milliseconds since the epoch.
    pub now_ms: i64,
}

/// A directory while it is being loaded.
struct Loader<'a> {
    fs: &'a Arc<dyn FileSystem>,
    path: &'a Path,
    config: &'a LogConfig,
    options: OpenOptions,
    recovery: &'a Recovery,
    segments: Segments,
    epochs: EpochCheckpoint,
    /// The oldest and the newest epoch in the checkpoint as it was found.
    first_epoch: Option<EpochEntry>,
    known_epoch: Option<EpochEntry>,
    /// Records before it were deleted: what is missing there is no damage.
    deleted_end: i64,
    /// What was cut, removed or built anew so far.
    events: Vec<RecoveryEvent>,
}

impl Log {
    /// [`Self::open_with`] on one thread, told to nobody.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        path: &Path,
        config: LogConfig,
        options: OpenOptions,
    ) -> Result<Self> {
        Self::open_with(fs, path, config, options, &Recovery::default())
    }

    /// Open a directory, creating it when absent. Without a clean shutdown the segments from the recovery point on
    /// are checked batch by batch; the log ends before the first damaged one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where Kafka would fail or drop a whole segment: offsets that overflow or do not rise, markers
    /// that cannot be read. [`Error::Invalid`] for files that are not what their names say.
    pub fn open_with(
        fs: Arc<dyn FileSystem>,
        path: &Path,
        config: LogConfig,
        options: OpenOptions,
        recovery: &Recovery,
    ) -> Result<Self> {
        config.validate()?;
        let is_new = !fs.exists(path).map_err(|error| Error::io("stat", path, error))?;
        if is_new {
            fs.create_dir(path).map_err(|error| Error::io("create directory", path, error))?;
        }
        clean_up(&fs, path)?;
        let epochs = EpochCheckpoint::open(Arc::clone(&fs), path)?;
        let mut loader = Loader {
            fs: &fs,
            path,
            config: &config,
            options,
            recovery,
            segments: Segments::new(),
            first_epoch: epochs.entries().first().copied(),
            known_epoch: epochs.latest(),
            deleted_end: options.log_start_offset,
            epochs,
            events: Vec::new(),
        };
        loader.load_segments()?;
        if !options.clean_shutdown {
            let first = loader.log_start_by_epochs(None)?;
            loader.deleted_end = first.map_or(options.log_start_offset, |first| first.start_offset);
        }
        let recovery_point = match options.clean_shutdown {
            true => i64::MAX,
            false => loader.recover_unflushed()?,
        };
        let had_segments = !loader.segments.is_empty();
        let log_end_offset = loader.find_end()?;
        let kept = match options.clean_shutdown {
            true => None,
            false => loader.keep_log_start(log_end_offset)?,
        };
        let has_wrong_epochs = loader.check_continuity(log_end_offset)?;
        loader.complete_epochs(has_wrong_epochs)?;
        let options = loader.options;
        let log_start_offset = loader
            .segments
            .first_key_value()
            .map_or(options.log_start_offset, |(base_offset, _)| options.log_start_offset.max(*base_offset));
        let Loader { segments, mut epochs, mut events, .. } = loader;
        epochs.truncate_from_end(log_end_offset);
        // Where nothing is left, it alone says so until the next checkpoint.
        if let Some(kept) = kept.filter(|_| epochs.entries().is_empty()) {
            epochs.assign(kept.epoch, kept.start_offset);
        }
        epochs.truncate_from_start(options.log_start_offset);
        epochs.flush()?;
        let mut producers = ProducerState::open(Arc::clone(&fs), path, config.producer_id_expiration_ms)?;
        producers.remove_stray_snapshots(&segments.keys().copied().collect::<Vec<_>>())?;
        let missing = rebuild(
            &mut producers,
            &segments,
            log_start_offset,
            log_end_offset,
            options.clean_shutdown,
            options.now_ms,
        )?;
        let unreadable = producers.take_damaged();
        // The recovery of a segment takes the snapshots after it away.
        let is_sound = events.iter().all(|event| event.kind == RecoveryKind::LogStartKept);
        if let Some(kind) = missing.filter(|_| is_sound && unreadable.is_empty()) {
            let path = segment_path(path, log_end_offset, "snapshot");
            events.push(RecoveryEvent::rebuilt(kind, path, "the file is missing"));
        }
        events.extend(unreadable);
        let recovery_point = recovery_point.min(log_end_offset);
        let topic_id = partition_metadata::read(fs.as_ref(), path)?;
        // An idle log holds no descriptors.
        segments.values().try_for_each(|segment| segment.release())?;
        let log = Self {
            path: RwLock::new(path.to_owned()),
            config: RwLock::new(Arc::new(config)),
            inner: Mutex::new(Inner {
                segments,
                log_start_offset,
                log_end_offset,
                recovery_point,
                epochs,
                producers,
                topic_id,
                deleted: Vec::new(),
                is_directory_dirty: is_new || !had_segments || !options.clean_shutdown,
                // A run that was killed may have created the directory without making its name durable.
                is_directory_new: is_new || !options.clean_shutdown,
                is_closed: false,
                truncations: 0,
                unfinished: None,
            }),
            flushing: Mutex::new(()),
            poison: OnceLock::new(),
            recovery_events: events,
            log_end_offset: AtomicI64::new(log_end_offset),
            log_start_offset: AtomicI64::new(log_start_offset),
            first_unstable_offset: AtomicI64::new(i64::MAX),
            fs,
        };
        log.publish_first_unstable(&lock(&log.inner));
        Ok(log)
    }

    /// Bring the producer state to `end_offset` after a truncation.
    pub(super) fn rebuild_producers(
        &self,
        inner: &mut Inner,
        end_offset: i64,
        clean_shutdown: bool,
        now_ms: i64,
    ) -> Result<()> {
        let Inner { producers, segments, log_start_offset, .. } = inner;
        rebuild(producers, segments, *log_start_offset, end_offset, clean_shutdown, now_ms).map(|_| ())
    }
}

impl Loader<'_> {
    fn load_segments(&mut self) -> Result<()> {
        let mut names = self.fs.list(self.path).map_err(|error| Error::io("list", self.path, error))?;
        names.sort_unstable();
        let first_unflushed = self.first_unflushed(&names);
        for name in &names {
            let Some(base_offset) = base_offset_of(name) else { continue };
            let is_index = [".index", ".timeindex", ".txnindex"].iter().any(|suffix| name.ends_with(suffix));
            if is_index && names.binary_search(&format!("{base_offset:020}.{LOG_SUFFIX}")).is_err() {
                let orphan = self.path.join(name);
                self.fs.remove(&orphan).map_err(|error| Error::io("remove", orphan.as_path(), error))?;
                self.events.push(RecoveryEvent::rebuilt(
                    RecoveryKind::OrphanRemoved,
                    orphan,
                    "an index without its segment",
                ));
            }
            if *name != format!("{base_offset:020}.{LOG_SUFFIX}") {
                continue;
            }
            let (segment, missing) = Segment::open(
                self.fs,
                self.path,
                base_offset,
                self.config.segment_config(self.path, base_offset),
                self.options.now_ms,
            )?;
            let has_sound_transactions = segment.has_sound_transactions()?;
            self.note_indexes(base_offset, &missing, has_sound_transactions);
            let is_sane = missing.is_empty() && has_sound_transactions;
            let segment = Arc::new(segment);
            if is_sane || first_unflushed.is_some_and(|first| base_offset >= first) {
                self.segments.insert(base_offset, segment);
            } else {
                self.recover(&segment)?;
                // It may lie before the recovery point, where the next start will not look.
                if let Some(recovered) = self.segments.get(&base_offset) {
                    recovered.sync_indexes()?;
                }
            }
        }
        Ok(())
    }

    /// The segment from which on all will be checked, those with broken indexes among them. To check one of them alone
    /// would need the producers of segments before it that may be damaged.
    fn first_unflushed(&self, names: &[String]) -> Option<i64> {
        if self.options.clean_shutdown {
            return None;
        }
        let logs = names.iter().filter(|name| name.ends_with(&format!(".{LOG_SUFFIX}")));
        let bases = logs.filter_map(|name| base_offset_of(name));
        Some(bases.filter(|base| *base <= self.options.recovery_point).max().unwrap_or(i64::MIN))
    }

    /// What follows a damaged batch is not the log any more. The last go first, so that a crash leaves no hole.
    fn remove_after(&mut self, base_offset: i64, reason: &str) -> Result<()> {
        for (base_offset, segment) in
            self.segments.split_off(&(base_offset.saturating_add(1))).into_iter().rev()
        {
            self.note_removed(&segment, reason);
            let snapshot = segment_path(self.path, base_offset, "snapshot");
            self.remove_files(segment.mark_deleted()?.into_iter().chain([snapshot]))?;
        }
        Ok(())
    }

    fn remove_files(&self, paths: impl IntoIterator<Item = PathBuf>) -> Result<()> {
        for path in paths {
            match self.fs.remove(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Find the epochs in the batches that the checkpoint does not have: it was lost or damaged, or a crash took its
    /// last change (KAFKA-16541). One look at the last batch tells whether anything is missing. Of a file that is `wrong`
    /// nothing is kept.
    fn complete_epochs(&mut self, wrong: Option<String>) -> Result<()> {
        if let Some(reason) = wrong {
            let path = self.path.join(crate::epoch_checkpoint::FILE_NAME);
            self.events.push(RecoveryEvent::rebuilt(RecoveryKind::EpochsRebuilt, path, reason));
            return self.read_epochs(None);
        }
        let with_batches = || self.segments.values().rev().filter(|segment| segment.size_bytes() > 0);
        let Some(last) = with_batches().next() else { return Ok(()) };
        let (_, last_epoch) = last.read_end()?;
        let is_complete = last_epoch < 0 || self.known_epoch.is_some_and(|known| known.epoch >= last_epoch);
        if is_complete && !self.epochs.is_unreadable() {
            return Ok(());
        }
        if last_epoch >= 0 {
            let reason = match (self.epochs.is_unreadable(), self.known_epoch) {
                (true, _) => "the file is missing or damaged".to_owned(),
                (false, Some(known)) => {
                    format!("it ends with epoch {}, the log with {last_epoch}", known.epoch)
                }
                (false, None) => format!("it has no epoch, the log ends with {last_epoch}"),
            };
            let path = self.path.join(crate::epoch_checkpoint::FILE_NAME);
            self.events.push(RecoveryEvent::rebuilt(RecoveryKind::EpochsRebuilt, path, reason));
        }
        self.read_epochs(self.known_epoch)
    }

    /// What was deleted before an unclean end stays deleted.
    fn keep_log_start(&mut self, log_end_offset: i64) -> Result<Option<EpochEntry>> {
        let start = self.options.log_start_offset;
        let Some(first) = self.log_start_by_epochs(Some(log_end_offset))? else { return Ok(None) };
        let path = self.path.join(crate::epoch_checkpoint::FILE_NAME);
        let reason =
            format!("records before offset {} were deleted, the checkpoint says {start}", first.start_offset);
        let event = RecoveryEvent::rebuilt(RecoveryKind::LogStartKept, path, reason);
        self.events.push(RecoveryEvent { offset: first.start_offset, ..event });
        self.options.log_start_offset = first.start_offset;
        Ok(Some(first))
    }

    /// The oldest epoch, if the log has started where it begins. The epochs are made durable with each move of the log
    /// start, the checkpoint of log starts only from time to time: there are batches before that epoch which have one,
    /// and it is the epoch of the batch there, or nothing is left behind it.
    fn log_start_by_epochs(&self, log_end_offset: Option<i64>) -> Result<Option<EpochEntry>> {
        let start = self.options.log_start_offset;
        let Some(first) = self.first_epoch.filter(|first| first.start_offset > start) else {
            return Ok(None);
        };
        let has_before = self
            .epoch_at(start)?
            .is_some_and(|(offset, epoch)| offset < first.start_offset && (0..=first.epoch).contains(&epoch));
        if !has_before {
            return Ok(None);
        }
        let is_there = match self.epoch_at(first.start_offset)? {
            Some((_, epoch)) => epoch == first.epoch,
            None => {
                let is_end = log_end_offset.is_none_or(|end| end == first.start_offset);
                is_end && self.known_epoch == Some(first)
            }
        };
        Ok(is_there.then_some(first))
    }

    /// Base offset and leader epoch of the first batch that reaches to `offset` or begins behind it; none if its checksum
    /// is wrong. Indexes, which may not be recovered yet, are not used.
    fn epoch_at(&self, offset: i64) -> Result<Option<(i64, i32)>> {
        let first =
            self.segments.range(..=offset).next_back().map_or(i64::MIN, |(base_offset, _)| *base_offset);
        for (_, segment) in self.segments.range(first..) {
            let mut scan = segment.scan(0)?;
            // Damage is the business of the recovery, or of who reads there.
            let mut next_batch = || {
                scan.next_batch().or_else(|error| match error {
                    Error::Corrupt { .. } => Ok(None),
                    other => Err(other),
                })
            };
            while let Some(batch) = next_batch()? {
                let header = batch.header();
                if header.last_offset() < offset {
                    continue;
                }
                let found = (header.base_offset(), header.partition_leader_epoch());
                let bytes = segment.read_batch(&batch)?;
                let is_whole = BatchView::parse(&bytes).and_then(|batch| batch.validate_crc()).is_ok();
                return Ok(is_whole.then_some(found));
            }
        }
        Ok(None)
    }

    /// Take the epochs behind `known` from the batches.
    fn read_epochs(&mut self, known: Option<EpochEntry>) -> Result<()> {
        // What recovery noted may not be all: begin behind what the file had.
        match known {
            Some(known) => self.epochs.truncate_from_end(known.start_offset.saturating_add(1)),
            None => self.epochs.restart(),
        }
        let start = known.map_or(i64::MIN, |known| known.start_offset);
        let first =
            self.segments.range(..=start).next_back().map_or(i64::MIN, |(base_offset, _)| *base_offset);
        for (_, segment) in self.segments.range(first..) {
            let Some(begin) = segment.find_batch(start)? else { continue };
            let mut scan = segment.scan(begin.position)?;
            while let Some(batch) = scan.next_batch()? {
                let epoch = batch.header().partition_leader_epoch();
                if epoch >= 0 && self.epochs.latest().is_none_or(|latest| epoch > latest.epoch) {
                    self.epochs.assign(epoch, batch.header().base_offset());
                }
            }
        }
        Ok(())
    }

    /// The log end offset; makes sure that there is a segment to append to.
    fn find_end(&mut self) -> Result<i64> {
        if let Some((_, last)) = self.segments.last_key_value() {
            let last = Arc::clone(last);
            let trusted = match last.read_next_offset() {
                Err(Error::Corrupt { .. }) => None,
                end => Some(end?),
            };
            let end = match trusted {
                Some(end) if last.has_sound_indexes(end)? => end,
                _ => {
                    let noted = self.events.len();
                    // The node stopped cleanly, yet the tail is torn, or an index that is going to be appended to
                    // contradicts it: trust the batches, not the marker.
                    self.recover(&last)?;
                    if self.events.len() == noted {
                        let path = segment_path(self.path, last.base_offset(), "index");
                        let reason = "the indexes contradict the segment";
                        self.events.push(RecoveryEvent::rebuilt(RecoveryKind::IndexRebuilt, path, reason));
                    }
                    let last = self.segments.last_key_value().map_or(last, |(_, last)| Arc::clone(last));
                    last.read_next_offset()?
                }
            };
            if end >= self.options.log_start_offset {
                return Ok(end);
            }
            // Segments were lost behind our back: what is left lies before the log start offset.
            let reason =
                format!("it ends at offset {end}, before the log start {}", self.options.log_start_offset);
            self.remove_after(i64::MIN, &reason)?;
            self.epochs.clear();
        }
        let start = self.options.log_start_offset;
        let segment = Segment::create(
            self.fs,
            self.path,
            start,
            self.config.segment_config(self.path, start),
            self.options.now_ms,
        )?;
        self.segments.insert(start, Arc::new(segment));
        Ok(start)
    }
}

/// Bring `producers` to `end_offset`: the newest snapshot, then the batches after it (`UnifiedLog.rebuildProducerState`).
/// Returns what the lack of a snapshot at `end_offset` meant, when a clean stop had to leave one.
fn rebuild(
    producers: &mut ProducerState,
    segments: &Segments,
    log_start_offset: i64,
    end_offset: i64,
    clean_shutdown: bool,
    now_ms: i64,
) -> Result<Option<RecoveryKind>> {
    let mut last_bases: Vec<i64> = segments.keys().rev().take(2).copied().collect();
    last_bases.reverse();
    if producers.latest_snapshot_offset().is_none() && clean_shutdown {
        // Written by a version without snapshots: begin with empty ones rather than scan everything.
        for offset in last_bases.into_iter().chain([end_offset]) {
            producers.set_end_offset(offset);
            producers.take_snapshot()?;
        }
        return Ok((end_offset > log_start_offset).then_some(RecoveryKind::ProducersForgotten));
    }
    let mut missing = None;
    let was_empty = producers.is_empty() && producers.end_offset() >= end_offset;
    producers.truncate_and_reload(log_start_offset, end_offset, now_ms)?;
    if end_offset > producers.end_offset() && !was_empty {
        let from = producers.end_offset();
        // A clean stop writes a snapshot there.
        missing = clean_shutdown.then_some(RecoveryKind::ProducersRebuilt);
        let first = segments.range(..=from).next_back().map_or(i64::MIN, |(base_offset, _)| *base_offset);
        for (base_offset, segment) in segments.range(first..end_offset.max(first)) {
            let start = producers.end_offset().max(*base_offset).max(log_start_offset);
            producers.set_end_offset(start);
            if last_bases.contains(base_offset) {
                producers.take_snapshot()?;
            }
            replay(producers, segment, start, end_offset)?;
        }
    }
    producers.set_end_offset(end_offset);
    producers.take_snapshot()?;
    Ok(missing)
}

fn replay(producers: &mut ProducerState, segment: &Segment, start: i64, end_offset: i64) -> Result<()> {
    let Some(first) = segment.find_batch(start)? else { return Ok(()) };
    let mut scan = segment.scan(first.position)?;
    while let Some(batch) = scan.next_batch()? {
        let header = batch.header();
        if header.last_offset() >= end_offset {
            break;
        }
        note_producer(producers, &header, || {
            let bytes = segment.read_batch(&batch)?;
            end_marker(&BatchView::parse(&bytes)?)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
