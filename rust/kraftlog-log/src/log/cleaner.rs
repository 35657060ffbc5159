//! Log compaction: of each key the latest record stays (Kafka's `Cleaner`).
//!
//! A clean reads the dirty section once for the latest offset of each key, then copies all segments up to where that
//! reached, leaving out what is superseded, and puts the copies in their place. Appends and reads go on meanwhile; the
//! lock is held for the swap alone. A crash or an error at any point leaves each segment as it was or as it shall be.
//!
//! Other than Kafka, every checksum is checked: a damaged batch ends the clean instead of being copied.
//!
//! Memory: the offset map ([`CleanOptions::dedupe_buffer_bytes`]), a read buffer and the output of one chunk of input
//! ([`CleanOptions::io_buffer_bytes`] each; one larger batch makes them grow for its time), and one batch decompressed.
use std::sync::Arc;

use super::{lock, Log};
use crate::segment::Segment;
use crate::{Error, Result};

mod filter;
mod group;
mod key_hash;
mod keys;
mod offset_map;
mod pace;
mod reader;
mod rewrite;
mod transactions;

use filter::{marker_of, Filter, LastRecord, Rules};
use group::{group, Limits, Sizes};
use key_hash::KeyHasher;
use keys::for_each_group;
use offset_map::{OffsetMap, Put};
pub use pace::{CancelFlag, Throttle};
use reader::{ChunkBuffer, ChunkReader, Flow};
use transactions::Transactions;

use crate::compression::Bound;

/// What to clean, and with how much.
#[derive(Clone, Copy, Debug)]
pub struct CleanOptions<'a> {
    /// First offset that was not cleaned before: `next_dirty_offset` of the last clean, or the log start offset.
    pub first_dirty_offset: i64,
    /// Exclusive end: what holds this offset and all after it stays as it is. The high watermark or less; the active
    /// segment and open transactions are left alone in any case.
    pub first_uncleanable_offset: i64,
    /// `delete.retention.ms`: how long tombstones and lone markers stay once they were cleaned. Default one day.
    pub delete_retention_ms: i64,
    /// Wall clock, milliseconds since the epoch.
    pub now_ms: i64,
    /// `log.cleaner.dedupe.buffer.size` for this thread: 24 bytes a key. Default 128 MiB.
    pub dedupe_buffer_bytes: u64,
    /// `log.cleaner.io.buffer.load.factor`: how full the buffer may become. Default 0.9.
    pub load_factor: f64,
    /// Half of `log.cleaner.io.buffer.size` for this thread: bytes read at once. Default 256 KiB.
    pub io_buffer_bytes: usize,
    /// Ends the clean when it is set.
    pub cancel: Option<&'a CancelFlag>,
    /// Slows the clean down.
    pub throttle: Option<&'a Throttle>,
}

impl Default for CleanOptions<'_> {
    /// Everything that may be cleaned, with Kafka's defaults for one thread.
    fn default() -> Self {
        Self {
            first_dirty_offset: 0,
            first_uncleanable_offset: i64::MAX,
            delete_retention_ms: 86_400_000,
            now_ms: 0,
            dedupe_buffer_bytes: 128 << 20,
            load_factor: 0.9,
            io_buffer_bytes: 256 << 10,
            cancel: None,
            throttle: None,
        }
    }
}

/// How a clean ended, if not with an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleanOutcome {
    /// All up to `next_dirty_offset` is clean.
    #[default]
    Completed,
    /// [`CleanOptions::cancel`] was set. Segments that were swapped before stay so.
    Cancelled,
    /// Retention, a truncation or another clean took segments away meanwhile. As for [`Self::Cancelled`].
    Overtaken,
}

/// What a clean did. Messages are records, those of aborted transactions and markers included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CleanReport {
    /// How it ended.
    pub outcome: CleanOutcome,
    /// Where the next clean begins, exclusive end of this one; the first dirty offset unless completed.
    pub next_dirty_offset: i64,
    /// Bytes read for the map of keys.
    pub map_bytes_read: u64,
    /// Messages read for the map of keys.
    pub map_messages_read: u64,
    /// Different keys of the dirty section, as many as the buffer took.
    pub map_keys: u64,
    /// Share of the buffer that was used, 0 to 1.
    pub map_utilization: f64,
    /// The buffer was too small for the dirty section: more is left to be cleaned.
    pub map_is_full: bool,
    /// Bytes read to be copied.
    pub bytes_read: u64,
    /// Bytes that are left of them.
    pub bytes_written: u64,
    /// Messages read to be copied.
    pub messages_read: u64,
    /// Messages that are left.
    pub messages_retained: u64,
    /// Messages without a key, which are dropped.
    pub invalid_messages: u64,
    /// Batches that grew beyond `max.message.bytes`, as new deltas and another compression can make them.
    pub batches_grown: u64,
    /// Segments before.
    pub segments_read: u64,
    /// Segments after.
    pub segments_written: u64,
}

/// What decides whether a segment that is not active is cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanableSegment {
    /// First offset it may hold.
    pub base_offset: i64,
    /// Bytes in the `.log`.
    pub size_bytes: u64,
    /// Largest timestamp, or when the file was last written if it has none; `i64::MIN` when it was not asked for.
    pub largest_timestamp: i64,
    /// Largest timestamp of the first batch; `None` for no batch, or when it was not asked for.
    pub first_timestamp: Option<i64>,
}

/// Why the work stops early.
#[derive(Debug)]
enum Halt {
    Ended(CleanOutcome),
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// One clean of one log.
struct Job<'a> {
    log: &'a Log,
    /// Of the log when the clean began.
    truncations: u64,
    options: &'a CleanOptions<'a>,
}

impl Log {
    /// Compact the log; see the module. One clean at a time for a log: of two that meet one is overtaken.
    ///
    /// # Errors
    /// [`Error::Corrupt`] names the damaged batch: the log cannot be cleaned until that is gone, but is otherwise
    /// usable. [`Error::Invalid`] when the buffer has no room for a key. An I/O error while a segment is copied leaves
    /// the log as it was; one while it is swapped poisons it.
    pub fn clean(&self, options: &CleanOptions<'_>) -> Result<CleanReport> {
        let job = Job { log: self, truncations: self.truncations()?, options };
        let mut report =
            CleanReport { next_dirty_offset: options.first_dirty_offset, ..CleanReport::default() };
        match job.run(&mut report) {
            Ok(()) => Ok(report),
            Err(Halt::Ended(outcome)) => {
                report.outcome = outcome;
                report.next_dirty_offset = options.first_dirty_offset;
                Ok(report)
            }
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    /// All segments but the active one. Timestamps are read for those that reach `start_offset` or beyond.
    pub fn cleanable_segments(&self, start_offset: i64) -> Result<Vec<CleanableSegment>> {
        let segments = self.segment_handles()?;
        let mut found = Vec::with_capacity(segments.len());
        for pair in segments.windows(2) {
            let [segment, next] = pair else { continue };
            let is_asked_for = next.base_offset() > start_offset;
            found.push(CleanableSegment {
                base_offset: segment.base_offset(),
                size_bytes: segment.size_bytes(),
                largest_timestamp: if is_asked_for { segment.largest_timestamp()? } else { i64::MIN },
                first_timestamp: if is_asked_for { segment.first_timestamp()? } else { None },
            });
        }
        Ok(found)
    }

    fn last_records(&self) -> std::collections::HashMap<i64, LastRecord> {
        let inner = lock(&self.inner);
        let last = |entry: &crate::producer_state::ProducerEntry| LastRecord {
            data_offset: entry.batches.last().map(|batch| batch.last_offset),
            epoch: entry.producer_epoch,
        };
        inner.producers.entries().map(|entry| (entry.producer_id, last(entry))).collect()
    }
}

impl Job<'_> {
    /// Stop here if that was asked for.
    fn check(&self) -> Result<(), Halt> {
        if self.options.cancel.is_some_and(CancelFlag::is_cancelled) {
            return Err(Halt::Ended(CleanOutcome::Cancelled));
        }
        Ok(())
    }

    fn pay(&self, bytes: u64) {
        if let Some(throttle) = self.options.throttle {
            throttle.pay(bytes, self.options.cancel);
        }
    }

    fn run(&self, report: &mut CleanReport) -> Result<(), Halt> {
        let (segments, end_offset) = self.cleanable()?;
        let start_offset = self.options.first_dirty_offset;
        let dirty_from =
            segments.partition_point(|segment| segment.base_offset() <= start_offset).saturating_sub(1);
        let dirty = segments.get(dirty_from..).unwrap_or_default();
        if dirty.is_empty() || end_offset <= start_offset {
            return Ok(());
        }
        let keys_max = u64::try_from(end_offset - start_offset).unwrap_or(0);
        let map = OffsetMap::new(self.options.dedupe_buffer_bytes, self.options.load_factor, keys_max);
        let mut map = map.ok_or_else(|| {
            let bytes = self.options.dedupe_buffer_bytes;
            Error::Invalid(format!("a dedupe buffer of {bytes} bytes has no room for one key"))
        })?;
        let hasher = KeyHasher::random();
        let mut buffer = ChunkBuffer::new(self.options.io_buffer_bytes);
        self.build_map(dirty, end_offset, &hasher, &mut map, &mut buffer, report)?;
        report.map_keys = map.count() as u64;
        report.map_utilization = map.utilization();
        let mapped_end = (map.latest_offset() + 1).max(start_offset);
        let config = self.log.config();
        let newest_clean =
            segments.partition_point(|segment| segment.base_offset() < start_offset).checked_sub(1);
        let legacy_horizon_ms = match newest_clean.and_then(|index| segments.get(index)) {
            Some(segment) => segment.modified_ms()?.saturating_sub(self.options.delete_retention_ms),
            None => 0,
        };
        let mut rules = Rules {
            map: &map,
            hasher,
            now_ms: self.options.now_ms,
            delete_retention_ms: self.options.delete_retention_ms,
            legacy_horizon_ms,
            keeps_legacy_tombstones: true,
            max_message_bytes: config.max_message_bytes,
            round_end_offset: end_offset,
            last_records: std::collections::HashMap::new(),
        };
        let mapped = segments.partition_point(|segment| segment.base_offset() < mapped_end);
        let mut rest = segments.get(..mapped).unwrap_or_default();
        let sizes = rest.iter().map(Sizes::of).collect::<Result<Vec<_>>>()?;
        let limits = Limits { segment_bytes: config.segment_bytes, index_bytes: config.segment_index_bytes };
        let mut transactions = Transactions::default();
        for count in group(&sizes, limits, end_offset) {
            let (sources, after) = rest.split_at_checked(count).unwrap_or_default();
            rest = after;
            rules.last_records = self.log.last_records();
            self.clean_group(sources, &mut rules, &mut transactions, &mut buffer, report)?;
        }
        report.next_dirty_offset = mapped_end;
        Ok(())
    }

    /// Segments that may be cleaned, and where they end: the base offset of the first that may not.
    fn cleanable(&self) -> Result<(Vec<Arc<Segment>>, i64)> {
        let unstable = self.log.first_unstable_offset().unwrap_or(i64::MAX);
        let inner = self.log.lock_inner()?;
        let active = inner.active()?.base_offset();
        let bound = self.options.first_uncleanable_offset.min(unstable).min(active);
        let end = inner.segments.range(..=bound).next_back().or_else(|| inner.segments.first_key_value());
        let end_offset = end.map_or(active, |(base_offset, _)| *base_offset);
        Ok((inner.segments.range(..end_offset).map(|(_, segment)| Arc::clone(segment)).collect(), end_offset))
    }

    /// Note the latest offset of each key of the dirty segments, until the map is full.
    fn build_map(
        &self,
        dirty: &[Arc<Segment>],
        end_offset: i64,
        hasher: &KeyHasher,
        map: &mut OffsetMap,
        buffer: &mut ChunkBuffer,
        report: &mut CleanReport,
    ) -> Result<(), Halt> {
        let start_offset = self.options.first_dirty_offset;
        let mut transactions = Transactions::default();
        transactions.add_aborted(&self.log.aborted_transactions(start_offset, end_offset)?);
        let mut builder = MapBuilder { start_offset, hasher, map, transactions, scratch: Vec::new(), report };
        for (index, segment) in dirty.iter().enumerate() {
            let position = segment.lookup(start_offset.max(segment.base_offset()))?.position;
            let mut reader = ChunkReader::new(segment, position, buffer)?;
            while let Some(chunk) = reader.next_chunk(self)? {
                let visited = chunk.for_each_batch(|batch| builder.add(batch))?;
                builder.report.map_bytes_read += visited.size_bytes;
                if visited.flow == Flow::Stop {
                    builder.report.map_is_full = true;
                    return Ok(());
                }
                reader.consume(visited.size_bytes);
            }
            // Offsets that compaction left no batch for are done with, too.
            let next = dirty.get(index + 1).map_or(end_offset, |next| next.base_offset());
            builder.map.set_latest_offset(next - 1);
        }
        Ok(())
    }

    /// Copy what stays of a few segments into one, and put that in their place.
    fn clean_group(
        &self,
        sources: &[Arc<Segment>],
        rules: &mut Rules<'_>,
        transactions: &mut Transactions,
        buffer: &mut ChunkBuffer,
        report: &mut CleanReport,
    ) -> Result<(), Halt> {
        let (Some(first), Some(last)) = (sources.first(), sources.last()) else { return Ok(()) };
        let cleaned = self.log.create_cleaned(first.base_offset(), self.options.now_ms)?;
        let written =
            self.copy_group(sources, &cleaned, rules, transactions, buffer, report).and_then(|()| {
                // Durable before the lock is taken: the swap then has nothing left to write.
                cleaned.finish()?;
                cleaned.sync_log()?;
                cleaned.sync_indexes()?;
                // Retention of segments without timestamps goes by it.
                cleaned.set_modified_ms(last.modified_ms()?)?;
                self.check()
            });
        if let Err(halt) = written {
            // What failed is worth more than what this may add; opening the log removes the files as well.
            let _ = self.log.discard_cleaned(&cleaned);
            return Err(halt);
        }
        let now_ms = self.options.now_ms;
        if !self.log.replace_segments_since(vec![cleaned], sources, now_ms, Some(self.truncations))? {
            return Err(Halt::Ended(CleanOutcome::Overtaken));
        }
        report.segments_read += sources.len() as u64;
        report.segments_written += 1;
        Ok(())
    }

    fn copy_group(
        &self,
        sources: &[Arc<Segment>],
        cleaned: &Segment,
        rules: &mut Rules<'_>,
        transactions: &mut Transactions,
        buffer: &mut ChunkBuffer,
        report: &mut CleanReport,
    ) -> Result<(), Halt> {
        let mut filter = Filter::default();
        for (index, source) in sources.iter().enumerate() {
            let end_offset = match sources.get(index + 1) {
                Some(next) => next.base_offset(),
                None => source.read_next_offset()?,
            };
            transactions.add_aborted(&self.log.aborted_transactions(source.base_offset(), end_offset)?);
            rules.keeps_legacy_tombstones = source.modified_ms()? > rules.legacy_horizon_ms;
            let mut reader = ChunkReader::new(source, 0, buffer)?;
            while let Some(chunk) = reader.next_chunk(self)? {
                filter.clear();
                let visited = chunk.for_each_batch(|batch| {
                    filter.add(batch, rules, transactions, report)?;
                    Ok(Flow::Continue)
                })?;
                let written = write(cleaned, &filter, chunk.bytes)?;
                for aborted in filter.take_aborted() {
                    cleaned.append_aborted(aborted)?;
                }
                self.pay(written);
                filter.shrink(self.options.io_buffer_bytes.saturating_mul(2));
                reader.consume(visited.size_bytes);
            }
        }
        Ok(())
    }
}

/// Append what the filter left of a chunk. Returns its bytes.
fn write(cleaned: &Segment, filter: &Filter, chunk: &[u8]) -> Result<u64> {
    let parts: Vec<&[u8]> = filter.parts(chunk).collect();
    if !parts.is_empty() {
        cleaned.append(&parts, filter.batches())?;
    }
    Ok(parts.iter().map(|part| part.len() as u64).sum())
}

/// Feeds batches to the map of keys.
struct MapBuilder<'a> {
    start_offset: i64,
    hasher: &'a KeyHasher,
    map: &'a mut OffsetMap,
    transactions: Transactions,
    scratch: Vec<u8>,
    report: &'a mut CleanReport,
}

impl MapBuilder<'_> {
    fn add(&mut self, batch: &crate::batch::BatchView<'_>) -> Result<Flow> {
        if batch.is_control() {
            let marker = marker_of(batch, &mut self.scratch)?;
            self.transactions.on_control(batch, marker);
            self.report.map_messages_read += 1;
        } else if self.transactions.on_data(batch) {
            self.report.map_messages_read += i64::from(batch.record_count()).max(0) as u64;
        } else if self.add_keys(batch)? == Flow::Stop {
            return Ok(Flow::Stop);
        }
        if batch.last_offset() >= self.start_offset {
            self.map.set_latest_offset(batch.last_offset());
        }
        Ok(Flow::Continue)
    }

    fn add_keys(&mut self, batch: &crate::batch::BatchView<'_>) -> Result<Flow> {
        let Self { start_offset, hasher, map, scratch, report, .. } = self;
        let body = batch.uncompressed_body(Bound::default(), scratch)?;
        let mut flow = Flow::Continue;
        for_each_group(batch, body, hasher, None, |group| {
            if flow == Flow::Stop {
                return Ok(());
            }
            map.warm(group.iter().filter_map(|record| record.hash));
            for record in group {
                let hash = record.hash.filter(|_| record.offset >= *start_offset);
                if hash.is_some_and(|hash| map.put(hash, record.offset) == Put::Full) {
                    flow = Flow::Stop;
                    return Ok(());
                }
                report.map_messages_read += 1;
            }
            Ok(())
        })?;
        Ok(flow)
    }
}

#[cfg(test)]
mod tests;
