//! One pass over a segment after an unclean stop: checks every batch and rebuilds the indexes that concern this
//! segment alone. What concerns the whole log (producers, epochs, transactions) is handed out as [`Fact`]s, so that
//! several segments can be checked at once and their facts applied in the order of the log.
use std::sync::atomic::{AtomicU64, Ordering};

use super::recover::{end_marker, BatchReader};
use super::{AbortedTransaction, AppendedBatch, Segment};
use crate::batch::{BatchHeader, BatchView, HEADER_SIZE, LOG_OVERHEAD};
use crate::epoch_checkpoint::EpochCheckpoint;
use crate::index::relative_offset;
use crate::producer_state::{EndMarker, ProducerState};
use crate::segment::recover::note_producer;
use crate::time_index::TimestampOffset;
use crate::{Error, Result};

/// How far a recovery is; shared with the code that shows it.
#[derive(Debug, Default)]
pub struct RecoveryProgress {
    segments_total: AtomicU64,
    segments_done: AtomicU64,
    bytes_total: AtomicU64,
    bytes_done: AtomicU64,
}

impl RecoveryProgress {
    /// Nothing begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Segments to be recovered, as far as it is known.
    pub fn segments_total(&self) -> u64 {
        self.segments_total.load(Ordering::Relaxed)
    }

    /// Segments recovered.
    pub fn segments_done(&self) -> u64 {
        self.segments_done.load(Ordering::Relaxed)
    }

    /// Bytes in the segments to be recovered.
    pub fn bytes_total(&self) -> u64 {
        self.bytes_total.load(Ordering::Relaxed)
    }

    /// Bytes checked.
    pub fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }

    pub(crate) fn expect(&self, segments: u64, bytes: u64) {
        self.segments_total.fetch_add(segments, Ordering::Relaxed);
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn segment_done(&self) {
        self.segments_done.fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing remains: what lies behind a damaged batch is not read.
    pub(crate) fn finish(&self) {
        self.segments_done.store(self.segments_total(), Ordering::Relaxed);
        self.bytes_done.store(self.bytes_total(), Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A batch that changes more than its own segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fact {
    position: u64,
    base_offset: i64,
    leader_epoch: i32,
    /// Header of a batch with a producer, and the marker if it ends a transaction.
    producer: Option<([u8; HEADER_SIZE], Option<EndMarker>)>,
}

/// What [`Segment::check`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// Whole and sound batches end at this position; what follows is to be cut.
    Valid {
        /// Byte position.
        end_position: u64,
        /// Offset after the last batch; the base offset of an empty segment.
        next_offset: i64,
        /// No offset is missing before `next_offset`: compaction did not touch the segment.
        is_dense: bool,
        /// A batch before `end_position` that no log should go on behind: its position, base offset, and why.
        unfit: Option<(u64, i64, &'static str)>,
        /// Why the batches end at `end_position`, when that is not the end of the file.
        damage: &'static str,
    },
    /// An offset is too large for the segment's indexes: it is to be split.
    Overflow,
}

impl Segment {
    /// Check all batches, rebuild both indexes in memory and hand out what the log has to know. Nothing is cut yet.
    ///
    /// # Errors
    /// Where Kafka's recovery throws instead of cutting, an [`Error::Corrupt`] naming the batch, and what `sink` says.
    pub(crate) fn check(
        &self,
        progress: &RecoveryProgress,
        sink: &mut dyn FnMut(Fact) -> Result<()>,
    ) -> Result<Checked> {
        let size = self.size_bytes();
        let mut state = self.state();
        state.offset_index.file().reset()?;
        state.time_index.file().reset()?;
        state.transactions.reset()?;
        state.max_timestamp = Some(TimestampOffset { timestamp: -1, offset: self.base_offset });
        state.first_timestamp = None;
        let mut reader = BatchReader::new(self.log.get()?, 0, size);
        let (mut valid, mut last_indexed, mut reported) = (0, 0, 0);
        let mut next_offset = self.base_offset;
        let mut last_epoch = -1;
        let mut is_dense = true;
        let mut unfit = None;
        let mut damage = "an incomplete batch";
        loop {
            let batch = match reader.next_batch() {
                Ok(Some(batch)) if batch.validate_crc().is_ok() => batch,
                Ok(Some(_)) => {
                    damage = "a batch whose checksum differs";
                    break;
                }
                Ok(None) => break,
                Err(Error::Corrupt { .. }) => {
                    damage = "bytes that are not a batch";
                    break;
                }
                Err(error) => return Err(error),
            };
            if batch.base_offset() < next_offset && lacks_first_bytes(valid, batch.bytes(), next_offset) {
                damage = "a batch whose first bytes were not written";
                break;
            }
            let fail = |error: Error| self.corrupt(valid, batch.base_offset(), error);
            if let Err(error) = relative_offset(self.base_offset, batch.last_offset()) {
                if batch.last_offset() > self.base_offset {
                    return Ok(Checked::Overflow);
                }
                return Err(fail(error));
            }
            if batch.last_offset() < next_offset && unfit.is_none() {
                // Kafka finds this only where both offsets come into the index: perhaps at a later start.
                unfit =
                    Some((valid, batch.base_offset(), "its last offset does not rise above the one before"));
            }
            let appended = AppendedBatch::of(&batch);
            state.bytes_since_index_entry = valid - last_indexed;
            let indexed_before = state.offset_index.count()?;
            state.note(self.config.index_interval_bytes, valid, &appended).map_err(fail)?;
            if state.offset_index.count()? > indexed_before {
                last_indexed = valid;
            }
            let position = valid;
            valid += appended.size_bytes as u64;
            is_dense &= batch.base_offset() == next_offset;
            next_offset = batch.next_offset();
            if valid - reported >= PROGRESS_BYTES {
                progress.advance(valid - reported);
                reported = valid;
            }
            match fact(&batch, position, last_epoch) {
                Ok(None) => {}
                Ok(Some(fact)) => {
                    last_epoch = batch.partition_leader_epoch();
                    sink(fact)?;
                }
                // Kafka counts the batch as read before it looks at the marker, and cuts after it.
                Err(Error::Corrupt { .. }) => {
                    unfit = Some((position, batch.base_offset(), "a transaction marker that cannot be read"));
                    break;
                }
                Err(error) => return Err(self.corrupt(position, batch.base_offset(), error)),
            }
        }
        state.bytes_since_index_entry = 0;
        progress.advance(size - reported);
        Ok(Checked::Valid { end_position: valid, next_offset, is_dense, unfit, damage })
    }

    /// Take over what a batch of this segment says of producers and epochs. Tells the transaction it aborts.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a transaction that contradicts the state.
    pub(crate) fn apply(
        &self,
        fact: &Fact,
        producers: &mut ProducerState,
        epochs: &mut EpochCheckpoint,
    ) -> Result<Option<AbortedTransaction>> {
        if fact.leader_epoch >= 0 && epochs.latest().is_none_or(|latest| fact.leader_epoch > latest.epoch) {
            epochs.assign(fact.leader_epoch, fact.base_offset);
        }
        let Some((header, marker)) = &fact.producer else { return Ok(None) };
        note_producer(producers, &BatchHeader::new(header), || Ok(*marker))
            .map_err(|error| self.corrupt(fact.position, fact.base_offset, error))
    }

    /// Cut the file after the last sound batch, durably, and write the indexes. Returns the bytes cut.
    pub(crate) fn finish_recovery(&self, end_position: u64, aborted: &[AbortedTransaction]) -> Result<u64> {
        let cut = self.size_bytes().saturating_sub(end_position);
        if cut > 0 {
            self.log.truncate(end_position)?;
            // What is cut must not come back behind records that a later segment holds by then.
            self.log.sync()?;
            self.size_bytes.store(end_position, Ordering::Release);
        }
        let mut state = self.state();
        for one in aborted {
            state.transactions.append(*one)?;
        }
        drop(state);
        self.finish()?;
        Ok(cut)
    }

    fn corrupt(&self, position: u64, base_offset: i64, error: Error) -> Error {
        let reason = match error {
            Error::Corrupt { reason, .. } | Error::Rejected { reason, .. } | Error::Invalid(reason) => reason,
            Error::Io { .. } => return error,
            other => other.to_string(),
        };
        Error::corrupt(position, base_offset, reason).located(self.path().display().to_string(), 0)
    }
}

/// Disks write sectors: in a power failure each of them is kept or lost.
const SECTOR_BYTES: u64 = 512;

/// Whether a batch at this position would follow `next_offset`, had its first bytes not been lost with the end of a
/// sector. They are zero then, and no checksum covers them.
fn lacks_first_bytes(position: u64, bytes: &[u8], next_offset: i64) -> bool {
    let lost = usize::try_from(SECTOR_BYTES - position % SECTOR_BYTES).unwrap_or(usize::MAX);
    let expected = next_offset.to_be_bytes();
    let is_lost = |lost: usize| bytes.get(..lost).is_some_and(|first| first.iter().all(|byte| *byte == 0));
    lost < LOG_OVERHEAD
        && is_lost(lost)
        && (lost..expected.len()).all(|place| bytes.get(place) == expected.get(place))
}

/// Bytes between two reports of progress.
const PROGRESS_BYTES: u64 = 1 << 20;

fn fact(batch: &BatchView<'_>, position: u64, last_epoch: i32) -> Result<Option<Fact>> {
    let leader_epoch = batch.partition_leader_epoch();
    if !batch.has_producer_id() && leader_epoch == last_epoch {
        return Ok(None);
    }
    let producer = if batch.has_producer_id() {
        let marker = if batch.is_control() { end_marker(batch)? } else { None };
        batch.bytes().first_chunk().map(|header| (*header, marker))
    } else {
        None
    };
    Ok(Some(Fact { position, base_offset: batch.base_offset(), leader_epoch, producer }))
}
