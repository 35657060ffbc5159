//! Recovery after an unclean stop: segments are checked on several threads, what they say is applied in order.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;

use super::{rebuild, Loader};
use crate::index::relative_offset;
use crate::log::replace::replace;
use crate::log::{lock, Segments};
use crate::producer_state::ProducerState;
use crate::segment::{
    segment_path, AbortedTransaction, AppendedBatch, Checked, Fact, RecoveryProgress, Segment, CLEANED_SUFFIX,
};
use crate::{Error, Result};

/// How the segments after the recovery point are checked.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// Threads that check segments of one log; at least one.
    pub threads: usize,
    /// Told how far it is.
    pub progress: Arc<RecoveryProgress>,
}

impl Default for Recovery {
    fn default() -> Self {
        Self { threads: 1, progress: Arc::new(RecoveryProgress::new()) }
    }
}

/// Facts sent at once, and how many such messages wait for a segment whose turn has not come: they bound the memory.
const FACTS_PER_MESSAGE: usize = 512;
const MESSAGES_WAITING: usize = 128;
/// A hole with more offsets than this is none that lost writes to one segment leave.
const LOST_RECORDS_MAX: i64 = i32::MAX as i64 / 2;
/// Bytes copied at once when a segment is split.
const COPY_BYTES: usize = 1 << 20;

enum Message {
    Facts(Vec<Fact>),
    End(Result<Checked>),
}

/// Why the recovery of a run of segments ended.
enum Outcome {
    Finished,
    /// This one is to be split before it is tried again.
    Overflow(Arc<Segment>),
}

/// What was going on is not wanted any more.
fn abandoned() -> Error {
    Error::Invalid("abandoned".to_owned())
}

impl Loader<'_> {
    /// Check what is not known to be durable; the log ends before the first damaged batch. Returns the offset up to
    /// which all is durable.
    pub(super) fn recover_unflushed(&mut self) -> Result<i64> {
        let point = self.options.recovery_point;
        let first = self.segments.range(..=point).next_back().map_or(i64::MIN, |(base, _)| *base);
        self.recover_from(first)?;
        let end = self.segments.last_key_value().map(|(_, last)| last.read_next_offset()).transpose()?;
        if end.is_some_and(|end| end < point) {
            // The checkpoint is from before a truncation. What was written since may be torn in any segment, and is
            // to be flushed from the first one on, the indexes rebuilt here with it.
            self.recover_from(i64::MIN)?;
            return Ok(self.segments.first_key_value().map_or(0, |(base_offset, _)| *base_offset));
        }
        Ok(point)
    }

    fn recover_from(&mut self, mut first: i64) -> Result<()> {
        let progress = Arc::clone(&self.recovery.progress);
        let bytes = self.segments.range(first..).map(|(_, segment)| segment.size_bytes()).sum();
        progress.expect(self.segments.range(first..).count() as u64, bytes);
        loop {
            let unflushed: Vec<_> =
                self.segments.range(first..).map(|(_, segment)| Arc::clone(segment)).collect();
            match self.recover_all(&unflushed)? {
                Outcome::Finished => break,
                Outcome::Overflow(segment) => {
                    first = segment.base_offset();
                    self.split(&segment)?;
                }
            }
        }
        progress.finish();
        Ok(())
    }

    /// Recover one segment with the producer state as it was at its beginning; a segment that has to be split becomes
    /// several.
    pub(super) fn recover(&mut self, segment: &Arc<Segment>) -> Result<()> {
        self.recovery.progress.expect(1, segment.size_bytes());
        let later = self.segments.split_off(&(segment.base_offset() + 1));
        self.segments.insert(segment.base_offset(), Arc::clone(segment));
        let mut segments = vec![Arc::clone(segment)];
        while let Outcome::Overflow(segment) = self.recover_all(&segments)? {
            self.split(&segment)?;
            segments = self.segments.range(segment.base_offset()..).map(|(_, one)| Arc::clone(one)).collect();
        }
        self.segments.extend(later);
        Ok(())
    }

    fn recover_all(&mut self, segments: &[Arc<Segment>]) -> Result<Outcome> {
        let Some(first) = segments.first() else { return Ok(Outcome::Finished) };
        let mut producers =
            ProducerState::open(Arc::clone(self.fs), self.path, self.config.producer_id_expiration_ms)?;
        let before: Segments =
            self.segments.range(..first.base_offset()).map(|(base, one)| (*base, Arc::clone(one))).collect();
        // Segments may be deleted without the checkpoint saying so. A snapshot from before them, with their batches
        // missing behind it, would have transactions open that are over.
        let first_base = self.segments.first_key_value().map_or(i64::MIN, |(base_offset, _)| *base_offset);
        let (start, now_ms) = (self.options.log_start_offset.max(first_base), self.options.now_ms);
        let found = rebuild(&mut producers, &before, start, first.base_offset(), false, now_ms);
        self.events.extend(producers.take_damaged());
        found?;
        let threads = self.recovery.threads.min(segments.len());
        if threads > 1 {
            self.recover_on_threads(segments, threads, &mut producers)
        } else {
            self.recover_in_turn(segments, &mut producers)
        }
    }

    fn recover_in_turn(
        &mut self,
        segments: &[Arc<Segment>],
        producers: &mut ProducerState,
    ) -> Result<Outcome> {
        let progress = Arc::clone(&self.recovery.progress);
        for segment in segments {
            begin(segment, producers)?;
            let mut aborted = Vec::new();
            let epochs = &mut self.epochs;
            let checked = segment.check(&progress, &mut |fact| {
                aborted.extend(segment.apply(&fact, producers, epochs)?);
                Ok(())
            })?;
            if let Some(outcome) = self.end(segment, checked, &aborted, producers)? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Finished)
    }

    fn recover_on_threads(
        &mut self,
        segments: &[Arc<Segment>],
        threads: usize,
        producers: &mut ProducerState,
    ) -> Result<Outcome> {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            segments.iter().map(|_| sync_channel::<Message>(MESSAGES_WAITING)).unzip();
        let senders: Vec<_> = senders.into_iter().map(|one| std::sync::Mutex::new(Some(one))).collect();
        let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let progress = Arc::clone(&self.recovery.progress);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(segment), Some(sender)) = (segments.get(index), senders.get(index)) else {
                        break;
                    };
                    // Taken, so that the receiver sees the end should this thread stop.
                    let Some(sender) = lock(sender).take() else { break };
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    check_and_send(segment, &sender, &is_over, &progress);
                });
            }
            let outcome = self.apply_in_order(segments, receivers, producers);
            // Receivers are gone by now: a worker that still sends fails and stops.
            is_over.store(true, Ordering::Relaxed);
            outcome
        })
    }

    fn apply_in_order(
        &mut self,
        segments: &[Arc<Segment>],
        receivers: Vec<Receiver<Message>>,
        producers: &mut ProducerState,
    ) -> Result<Outcome> {
        for (segment, receiver) in segments.iter().zip(receivers) {
            begin(segment, producers)?;
            let mut aborted = Vec::new();
            let checked = loop {
                match receiver.recv().map_err(|_| abandoned())? {
                    Message::End(checked) => break checked?,
                    Message::Facts(facts) => {
                        for fact in &facts {
                            aborted.extend(segment.apply(fact, producers, &mut self.epochs)?);
                        }
                    }
                }
            };
            if let Some(outcome) = self.end(segment, checked, &aborted, producers)? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Finished)
    }

    /// Write what was rebuilt and cut what is damaged. Tells when the segments after it are not to be looked at.
    fn end(
        &mut self,
        segment: &Arc<Segment>,
        checked: Checked,
        aborted: &[AbortedTransaction],
        producers: &mut ProducerState,
    ) -> Result<Option<Outcome>> {
        let Checked::Valid { end_position, next_offset, is_dense, unfit, damage } = checked else {
            return Ok(Some(Outcome::Overflow(Arc::clone(segment))));
        };
        // What is appended behind such a batch would be cut, or not be found, at the next unclean start.
        if let Some((position, base_offset, reason)) = unfit {
            return Err(Error::corrupt(position, base_offset, reason)
                .located(segment.path().display().to_string(), 0));
        }
        let cut = segment.size_bytes() - end_position.min(segment.size_bytes());
        let is_over = self.misses_records(segment, next_offset, cut, is_dense);
        if is_over {
            // Before the damage is cut: without it nothing would tell that what follows a hole is not the log.
            let name = segment.path().display();
            let reason = match cut {
                0 => format!("the records from offset {next_offset} of {name} on are missing before it"),
                _ => format!("{name} before it is damaged at position {end_position}"),
            };
            self.remove_after(segment.base_offset(), &reason)?;
            self.fs
                .sync_dir(self.path)
                .map_err(|error| Error::io("fsync directory", self.path.to_owned(), error))?;
        }
        if cut > 0 {
            self.note_cut(segment, end_position, next_offset, damage)?;
        }
        segment.finish_recovery(end_position, aborted)?;
        producers.set_end_offset(next_offset);
        producers.take_snapshot()?;
        self.recovery.progress.segment_done();
        Ok(is_over.then_some(Outcome::Finished))
    }

    /// True when records are missing between this segment and the next, so that what follows is not the log any more:
    /// its end was damaged, or its last writes were lost while the next one's name was kept. Kafka keeps that second
    /// hole, and drops what follows also where the bytes cut off held no record. Holes that compaction may have made
    /// are judged by damage alone: where the policy is compaction, where it has left holes in this segment, and where
    /// the hole is larger than what one segment can lose. A hole in what was deleted is none: a crash may take back the
    /// deletion of some segments and keep that of those behind them.
    fn misses_records(&self, segment: &Segment, next_offset: i64, cut: u64, is_dense: bool) -> bool {
        let next = self.segments.range(segment.base_offset().saturating_add(1)..).next();
        let next = next.filter(|(next_base, _)| **next_base > self.deleted_end);
        let Some(gap) = next.map(|(next_base, _)| next_base - next_offset).filter(|gap| *gap > 0) else {
            return false;
        };
        let may_be_lost = is_dense && !self.config.cleanup_policy.compact && gap <= LOST_RECORDS_MAX;
        cut > 0 || may_be_lost
    }

    /// Put several segments in the place of one whose offsets are too far apart for its indexes, as releases before
    /// Kafka 2.0 could write it (`LocalLog.splitOverflowedSegment`, KAFKA-6264). A torn end stays the end of the last.
    fn split(&mut self, segment: &Arc<Segment>) -> Result<()> {
        let now_ms = self.options.now_ms;
        let mut new: Vec<Arc<Segment>> = Vec::new();
        let mut position = 0;
        let mut scan = segment.scan(0)?;
        while let Some(batch) = scan.next_batch().or_else(|error| match error {
            Error::Corrupt { .. } => Ok(None),
            other => Err(other),
        })? {
            let header = batch.header();
            let (base_offset, last_offset) = (segment.first_offset(&batch)?, header.last_offset());
            let fits = new.last().is_some_and(|one| relative_offset(one.base_offset(), last_offset).is_ok());
            if !fits {
                relative_offset(base_offset, last_offset).map_err(|error| {
                    Error::corrupt(batch.position, base_offset, error.to_string())
                        .located(segment.path().display().to_string(), 0)
                })?;
                let config = self.config.segment_config(self.path, base_offset);
                let config = crate::segment::SegmentConfig { preallocate_bytes: 0, ..config };
                let one = Segment::create_suffixed(
                    self.fs,
                    self.path,
                    base_offset,
                    config,
                    now_ms,
                    CLEANED_SUFFIX,
                )?;
                new.push(Arc::new(one));
            }
            if let Some(last) = new.last() {
                last.append(&[&segment.read_batch(&batch)?], &[AppendedBatch::of(&header)])?;
            }
            position = batch.end_position();
        }
        if let Some(last) = new.last() {
            self.copy_end(segment, position, last)?;
        }
        let replaced =
            replace(self.fs.as_ref(), self.path, &mut self.segments, &new, &[segment.base_offset()])?;
        let snapshots = replaced.gone.iter().map(|base| segment_path(self.path, *base, "snapshot"));
        self.remove_files(replaced.files.into_iter().chain(snapshots))
    }

    /// Copy the bytes from `position` on that are not whole batches.
    fn copy_end(&self, from: &Segment, mut position: u64, to: &Segment) -> Result<()> {
        let file = from.file()?;
        while position < from.size_bytes() {
            let left = usize::try_from(from.size_bytes() - position).unwrap_or(COPY_BYTES);
            let mut bytes = vec![0; COPY_BYTES.min(left)];
            file.read_exact_at(&mut bytes, position)
                .map_err(|error| Error::io("read", from.path().to_owned(), error))?;
            to.append_unchecked(&bytes)?;
            position += bytes.len() as u64;
        }
        Ok(())
    }
}

/// The producer state is that of the segment's beginning: keep it, so that nothing before is read again.
fn begin(segment: &Segment, producers: &mut ProducerState) -> Result<()> {
    producers.set_end_offset(segment.base_offset());
    producers.take_snapshot()
}

/// Check a segment on a thread of its own.
fn check_and_send(
    segment: &Segment,
    sender: &SyncSender<Message>,
    is_over: &AtomicBool,
    progress: &RecoveryProgress,
) {
    let mut facts = Vec::new();
    let checked = segment.check(progress, &mut |fact| {
        facts.push(fact);
        if facts.len() < FACTS_PER_MESSAGE {
            return Ok(());
        }
        let full = std::mem::replace(&mut facts, Vec::with_capacity(FACTS_PER_MESSAGE));
        if is_over.load(Ordering::Relaxed) || sender.send(Message::Facts(full)).is_err() {
            return Err(abandoned());
        }
        Ok(())
    });
    // Nobody listens when the recovery is over; that is no error.
    drop(sender.send(Message::Facts(facts)));
    drop(sender.send(Message::End(checked)));
}
