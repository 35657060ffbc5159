//! What is kept of a batch, and the bytes that it becomes (Kafka's `Cleaner.cleanInto` and
//! `MemoryRecords.filterTo`).
use std::collections::HashMap;
use std::ops::Range;

use super::key_hash::KeyHasher;
use super::keys::for_each_group;
use super::offset_map::OffsetMap;
use super::rewrite::{self, Kept};
use super::transactions::{Marker, Transactions};
use super::CleanReport;
use crate::batch::{BatchHeader, BatchView, HEADER_SIZE, MAGIC};
use crate::compression::Bound;
use crate::record::RecordIter;
use crate::segment::{AbortedTransaction, AppendedBatch};
use crate::Result;

/// Where the state of an active producer hangs.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastRecord {
    /// Offset of its last data; `None` when all that is known came from a marker.
    pub(super) data_offset: Option<i64>,
    pub(super) epoch: i16,
}

/// What a clean decides by.
pub(super) struct Rules<'a> {
    pub(super) map: &'a OffsetMap,
    pub(super) hasher: KeyHasher,
    pub(super) now_ms: i64,
    pub(super) delete_retention_ms: i64,
    /// Tombstones of the formats before record batches have no horizon: they stay in segments last written after this.
    pub(super) legacy_horizon_ms: i64,
    /// What that means for the segment at hand.
    pub(super) keeps_legacy_tombstones: bool,
    pub(super) max_message_bytes: u64,
    /// Exclusive end of the round: its last batch is kept, if only as a header, so that the offset is not lost.
    pub(super) round_end_offset: i64,
    pub(super) last_records: HashMap<i64, LastRecord>,
}

/// What becomes of a batch of which no record is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenEmpty {
    Drop,
    KeepHeader,
}

struct Verdict {
    /// No record is to be kept.
    discards_all: bool,
    /// A marker whose transaction has no data any more: its time begins to run.
    is_lone_marker: bool,
    when_empty: WhenEmpty,
}

impl Rules<'_> {
    fn judge(&self, batch: &BatchHeader<'_>, may_go: bool) -> Verdict {
        let is_due = || batch.delete_horizon_ms().is_some_and(|horizon| horizon <= self.now_ms);
        let keeps_header = self.is_last_of_producer(batch) || batch.next_offset() == self.round_end_offset;
        Verdict {
            discards_all: may_go && (!batch.is_control() || is_due()),
            is_lone_marker: may_go && batch.is_control(),
            when_empty: if keeps_header { WhenEmpty::KeepHeader } else { WhenEmpty::Drop },
        }
    }

    /// The batch holds the last sequence of an active producer, or of one known by a marker alone, its epoch.
    fn is_last_of_producer(&self, batch: &BatchHeader<'_>) -> bool {
        if !batch.has_producer_id() {
            return false;
        }
        self.last_records.get(&batch.producer_id()).is_some_and(|last| match last.data_offset {
            Some(offset) => batch.last_offset() == offset,
            None => batch.is_control() && batch.producer_epoch() == last.epoch,
        })
    }
}

/// A run of output: as it stands in the input, or built anew.
#[derive(Clone, Debug)]
enum Piece {
    Source(Range<usize>),
    Built(Range<usize>),
}

/// Filters batches one by one; what is to be written collects here until the chunk is done.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pieces: Vec<Piece>,
    built: Vec<u8>,
    batches: Vec<AppendedBatch>,
    aborted: Vec<AbortedTransaction>,
    kept: Kept,
    plain: Vec<u8>,
    scratch: Vec<u8>,
}

impl Filter {
    /// Decide on one batch of a chunk.
    pub(super) fn add(
        &mut self,
        batch: &BatchView<'_>,
        rules: &Rules<'_>,
        transactions: &mut Transactions,
        report: &mut CleanReport,
    ) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let added = self.add_with(batch, rules, transactions, report, &mut scratch);
        self.scratch = scratch;
        added
    }

    fn add_with(
        &mut self,
        batch: &BatchView<'_>,
        rules: &Rules<'_>,
        transactions: &mut Transactions,
        report: &mut CleanReport,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let may_go = if batch.is_control() {
            let (may_go, aborted) = transactions.on_control(batch, marker_of(batch, scratch)?);
            self.aborted.extend(aborted);
            may_go
        } else {
            transactions.on_data(batch)
        };
        let verdict = rules.judge(batch, may_go);
        report.bytes_read += batch.bytes().len() as u64;
        if verdict.discards_all {
            report.messages_read += i64::from(batch.record_count()).max(0) as u64;
            if verdict.when_empty == WhenEmpty::KeepHeader {
                self.keep_header(batch, report);
            }
            return Ok(());
        }
        let body = batch.uncompressed_body(Bound::default(), scratch)?;
        self.select(batch, body, rules, report)?;
        if self.kept.count == 0 {
            if verdict.when_empty == WhenEmpty::KeepHeader {
                self.keep_header(batch, report);
            }
            return Ok(());
        }
        report.messages_retained += u64::from(self.kept.count);
        let needs_horizon =
            (self.kept.has_tombstones || verdict.is_lone_marker) && batch.delete_horizon_ms().is_none();
        if self.kept.is_all(batch) && !needs_horizon {
            self.keep_whole(batch, report);
            return Ok(());
        }
        let horizon = if needs_horizon {
            Some(rules.now_ms.saturating_add(rules.delete_retention_ms))
        } else {
            batch.delete_horizon_ms()
        };
        let start = self.built.len();
        rewrite::rebuild(batch, body, &self.kept, horizon, &mut self.plain, &mut self.built)?;
        self.note_built(start);
        let size = (self.built.len() - start) as u64;
        report.bytes_written += size;
        report.batches_grown +=
            u64::from(size > batch.bytes().len() as u64 && size > rules.max_message_bytes);
        Ok(())
    }

    /// Find out which records are kept.
    fn select(
        &mut self,
        batch: &BatchView<'_>,
        body: &[u8],
        rules: &Rules<'_>,
        report: &mut CleanReport,
    ) -> Result<()> {
        let kept = &mut self.kept;
        kept.clear();
        let keeps_tombstones = if batch.magic() >= MAGIC {
            batch.delete_horizon_ms().is_none_or(|horizon| rules.now_ms < horizon)
        } else {
            rules.keeps_legacy_tombstones
        };
        let is_control = batch.is_control();
        let map = rules.map;
        let mut start = 0;
        for_each_group(batch, body, &rules.hasher, (!is_control).then_some(map), |group| {
            report.messages_read += group.len() as u64;
            for record in group {
                let keeps = if is_control || record.offset > map.latest_offset() {
                    true
                } else if let Some(hash) = record.hash {
                    record.offset >= map.get(hash) && (record.has_value || keeps_tombstones)
                } else {
                    report.invalid_messages += 1;
                    false
                };
                if keeps {
                    kept.push(start..record.end, record);
                }
                start = record.end;
            }
            Ok(())
        })
    }

    fn keep_whole(&mut self, batch: &BatchView<'_>, report: &mut CleanReport) {
        let start = usize::try_from(batch.position()).unwrap_or(usize::MAX);
        let range = start..start + batch.bytes().len();
        match self.pieces.last_mut() {
            Some(Piece::Source(last)) if last.end == range.start => last.end = range.end,
            _ => self.pieces.push(Piece::Source(range)),
        }
        self.batches.push(AppendedBatch::of(batch));
        report.bytes_written += batch.bytes().len() as u64;
    }

    fn keep_header(&mut self, batch: &BatchView<'_>, report: &mut CleanReport) {
        let start = self.built.len();
        self.built.extend_from_slice(&rewrite::empty_header(batch));
        self.note_built(start);
        report.bytes_written += HEADER_SIZE as u64;
    }

    fn note_built(&mut self, start: usize) {
        let end = self.built.len();
        match self.pieces.last_mut() {
            Some(Piece::Built(last)) if last.end == start => last.end = end,
            _ => self.pieces.push(Piece::Built(start..end)),
        }
        if let Some(header) = self.built.get(start..).and_then(<[u8]>::first_chunk) {
            self.batches.push(AppendedBatch::of(&BatchHeader::new(header)));
        }
    }

    /// Bytes to be written, in order, for a chunk of these bytes.
    pub(super) fn parts<'a>(&'a self, chunk: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.pieces.iter().map(move |piece| match piece {
            Piece::Source(range) => chunk.get(range.clone()).unwrap_or_default(),
            Piece::Built(range) => self.built.get(range.clone()).unwrap_or_default(),
        })
    }

    /// The batches that [`Self::parts`] holds.
    pub(super) fn batches(&self) -> &[AppendedBatch] {
        &self.batches
    }

    /// Aborted transactions of which data was kept or seen, for the index of the cleaned segment.
    pub(super) fn take_aborted(&mut self) -> impl Iterator<Item = AbortedTransaction> + '_ {
        self.aborted.drain(..)
    }

    /// Forget what was written.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.built.clear();
        self.batches.clear();
    }

    /// Give back memory that one large batch took.
    pub(super) fn shrink(&mut self, bytes: usize) {
        for buffer in [&mut self.built, &mut self.plain, &mut self.scratch] {
            if buffer.capacity() > bytes {
                *buffer = Vec::new();
            }
        }
    }
}

/// What a control batch says, from its first record.
pub(super) fn marker_of(batch: &BatchView<'_>, scratch: &mut Vec<u8>) -> Result<Marker> {
    let body = batch.uncompressed_body(Bound::default(), scratch)?;
    let Some(record) = RecordIter::new(batch, body)?.next() else { return Ok(Marker::Gone) };
    Marker::parse(record?.key).ok_or_else(|| batch.corrupt("a control record without version and type"))
}
