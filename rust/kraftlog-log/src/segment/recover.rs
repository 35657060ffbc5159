//! Rebuilding a segment from its `.log` alone after an unclean stop (`LogSegment.recover`).
use std::path::Path;
use std::sync::Arc;

use super::check::{Checked, RecoveryProgress};
use super::{Segment, SegmentConfig};
use crate::batch::{next_batch_shallow, BatchHeader, BatchView, Source, LOG_OVERHEAD};
use crate::compression::Bound;
use crate::epoch_checkpoint::{EpochCheckpoint, EpochEntry};
use crate::fs::{FileHandle, FileSystem, RealFileSystem};
use crate::index::OffsetPosition;
use crate::producer_state::{EndMarker, Origin, ProducerState};
use crate::record::RecordIter;
use crate::segment::AbortedTransaction;
use crate::time_index::TimestampOffset;
use crate::varint::{read_varint, VarintError};
use crate::{Error, Result};

const CHUNK_BYTES: usize = 1 << 20;

/// Reads a file in large pieces and hands out whole batches.
pub(crate) struct BatchReader {
    file: Arc<dyn FileHandle>,
    buffer: Vec<u8>,
    buffer_position: u64,
    position: u64,
    end_position: u64,
}

impl BatchReader {
    pub(crate) fn new(file: Arc<dyn FileHandle>, position: u64, end_position: u64) -> Self {
        Self { file, buffer: Vec::new(), buffer_position: position, position, end_position }
    }

    /// The next whole batch; `None` at the end or before a truncated one; `Corrupt` for a bad length or format.
    pub(crate) fn next_batch(&mut self) -> Result<Option<BatchView<'_>>> {
        let mut wanted = CHUNK_BYTES;
        loop {
            let start = usize::try_from(self.position - self.buffer_position).unwrap_or(usize::MAX);
            let held = self.buffer.len().saturating_sub(start);
            let at_end = self.position + held as u64 >= self.end_position;
            let is_whole = match next_batch_shallow(Source::File, &self.buffer, start) {
                Ok(Some(_)) => true,
                Ok(None) => false,
                // A length or magic that is wrong stays wrong, however much more is read.
                Err(error) => return Err(error),
            };
            if is_whole {
                break;
            }
            if at_end {
                return Ok(None);
            }
            let remaining = usize::try_from(self.end_position - self.position).unwrap_or(usize::MAX);
            if held >= wanted {
                wanted = self.announced_size(start).unwrap_or(wanted).max(wanted * 2);
            }
            self.buffer.resize(wanted.min(remaining), 0);
            self.file
                .read_exact_at(&mut self.buffer, self.position)
                .map_err(|error| Error::io("read", "log", error))?;
            self.buffer_position = self.position;
        }
        let start = usize::try_from(self.position - self.buffer_position).unwrap_or(usize::MAX);
        let batch = next_batch_shallow(Source::File, &self.buffer, start)?;
        if let Some(batch) = &batch {
            self.position += batch.bytes().len() as u64;
        }
        Ok(batch)
    }

    fn announced_size(&self, start: usize) -> Option<usize> {
        let length = self.buffer.get(start..)?.get(8..LOG_OVERHEAD)?.first_chunk::<4>()?;
        Some(LOG_OVERHEAD + usize::try_from(i32::from_be_bytes(*length)).ok()?)
    }
}

/// Update producers and transactions for a batch that is in the log; `marker` reads the record of a control batch.
/// Tells the transaction that ends, and the last stable offset after it.
pub(crate) fn note_producer(
    producers: &mut ProducerState,
    header: &BatchHeader<'_>,
    marker: impl FnOnce() -> Result<Option<EndMarker>>,
) -> Result<Option<AbortedTransaction>> {
    let mut completed = None;
    if header.has_producer_id() {
        let mut update = producers.prepare(header.producer_id(), Origin::Replication);
        if header.is_control() {
            if let Some(marker) = marker()? {
                completed = update.append_marker(header.producer_epoch(), header.base_offset(), marker, 0)?;
                producers.apply(&update);
            }
        } else {
            update.append_data(header, header.base_offset())?;
            producers.apply(&update);
        }
    }
    producers.set_end_offset(header.next_offset());
    let Some(completed) = completed else { return Ok(None) };
    let last_stable_offset = producers.last_stable_offset(&completed);
    producers.complete(&completed)?;
    Ok(completed.is_aborted.then_some(AbortedTransaction {
        producer_id: completed.producer_id,
        first_offset: completed.first_offset,
        last_offset: completed.last_offset,
        last_stable_offset,
    }))
}

/// The marker a control batch holds; `None` when compaction left the batch empty.
///
/// # Errors
/// [`Error::Corrupt`] where Kafka has an InvalidRecordException, [`Error::Invalid`] where it has another exception, as
/// its IllegalArgumentException for an unknown codec (`CompressionType.forId`) or a length of more than five bytes
/// (`ByteUtils.readVarint`), or its KafkaException for what does not decompress: recovery cuts the log at the first and fails at the second.
pub(crate) fn end_marker(batch: &BatchView<'_>) -> Result<Option<EndMarker>> {
    let mut scratch = Vec::new();
    // Not `records`: recovery does not look at the magic byte, which the checksum does not cover.
    if batch.record_count() == 0 {
        return Ok(None);
    }
    let body = batch
        .uncompressed_body(Bound::default(), &mut scratch)
        .map_err(|error| Error::Invalid(format!("a transaction marker that does not decompress: {error}")))?;
    if matches!(read_varint(body), Err(VarintError::TooLong)) {
        return Err(Error::Invalid("the length of a transaction marker has too many bytes".to_owned()));
    }
    let Some(record) = RecordIter::new(batch, body)?.next() else { return Ok(None) };
    let record = record?;
    EndMarker::parse(record.key, record.value, record.timestamp).map(Some)
}

impl Segment {
    /// Rebuild the indexes, the producer state and the epochs from the batches, and cut the file before the first
    /// that is torn or damaged. Returns the bytes cut.
    ///
    /// # Errors
    /// Where Kafka's recovery throws instead of cutting (offsets that overflow or do not rise, a marker that cannot
    /// be read, a transaction that contradicts the state), an [`Error::Corrupt`] naming the batch; the file is as it
    /// was, its indexes are empty.
    pub fn recover(&self, producers: &mut ProducerState, epochs: &mut EpochCheckpoint) -> Result<u64> {
        let mut facts = Vec::new();
        let checked = self.check(&RecoveryProgress::new(), &mut |fact| {
            facts.push(fact);
            Ok(())
        })?;
        let Checked::Valid { end_position, next_offset, .. } = checked else {
            return Err(Error::corrupt(0, self.base_offset, "an offset does not fit the segment's indexes")
                .located(self.path().display().to_string(), 0));
        };
        let mut aborted = Vec::new();
        for fact in &facts {
            aborted.extend(self.apply(fact, producers, epochs)?);
        }
        producers.set_end_offset(next_offset);
        self.finish_recovery(end_position, &aborted)
    }
}

/// What [`recover_file`] found.
#[derive(Clone, Debug)]
pub struct SegmentRecovery {
    /// Bytes cut from the end.
    pub truncated_bytes: u64,
    /// Bytes that remain.
    pub size_bytes: u64,
    /// Offset after the last batch.
    pub next_offset: i64,
    /// The offset index written.
    pub offset_index: Vec<OffsetPosition>,
    /// The time index written.
    pub time_index: Vec<TimestampOffset>,
    /// Leader epochs found in the batches.
    pub epochs: Vec<EpochEntry>,
    /// Producers found in the batches.
    pub producer_count: usize,
}

/// Recover one `.log` on its own, as if the partition held nothing else; rewrites its index files.
pub fn recover_file(path: &Path, index_interval_bytes: u64) -> Result<SegmentRecovery> {
    let fs: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let base_offset = name
        .parse()
        .map_err(|_| Error::Invalid(format!("{}: the name is not a base offset", path.display())))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let config = SegmentConfig {
        index_interval_bytes,
        segment_index_bytes: 10 << 20,
        roll_jitter_ms: 0,
        preallocate_bytes: 0,
    };
    let (segment, _) = Segment::open(&fs, directory, base_offset, config, 0)?;
    let mut producers = ProducerState::open(Arc::clone(&fs), directory, i64::MAX)?;
    let mut epochs = EpochCheckpoint::detached(Arc::clone(&fs), directory);
    let truncated_bytes = segment.recover(&mut producers, &mut epochs)?;
    Ok(SegmentRecovery {
        truncated_bytes,
        size_bytes: segment.size_bytes(),
        next_offset: segment.read_next_offset()?,
        offset_index: segment.offset_entries()?,
        time_index: segment.time_entries()?,
        epochs: epochs.entries().to_vec(),
        producer_count: producers.count(),
    })
}
