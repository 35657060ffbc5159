//! One `.log` file: its batches one after the other, and what the checks of other files need to know of them.
use super::indexes::IndexCheck;
use super::producers::Producers;
use super::walk::{reason_of, Item, Walk};
use super::{Finding, Severity, VerifyProgress};
use crate::batch::{BatchView, TimestampType, MAGIC};
use crate::producer_state::ProducerEntry;
use crate::scan::SegmentFile;
use crate::segment::AbortedTransaction;
use crate::Error;
use std::path::Path;

/// Findings of one file that are listed; the others are counted.
const FINDINGS_MAX: usize = 1000;

/// Where whole batches end, when that is not the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    Whole,
    /// Bytes of a batch that is cut short.
    Torn,
    Zeros,
}

/// Batches of one leader epoch that follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochRun {
    /// Of their headers, which the checksum does not cover; -1 for none.
    pub(crate) epoch: i32,
    /// Base offset of the first batch.
    pub(crate) first_offset: i64,
    /// Base offset of the last batch.
    pub(crate) last_offset: i64,
}

/// What is known of a segment after it was read.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFacts {
    pub(crate) file: SegmentFile,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    pub(crate) first_offset: Option<i64>,
    /// Offset after the last sound batch; the base offset without one.
    pub(crate) next_offset: i64,
    /// Position of the first damage, and the offset that records are missing from.
    pub(crate) damaged_at: Option<(u64, i64)>,
    pub(crate) tail: Tail,
    /// Offsets are missing inside, as compaction leaves it.
    pub(crate) is_compacted: bool,
    /// Epochs as they change, with the base offset of the first batch of each.
    pub(crate) epochs: Vec<(i32, i64)>,
    /// Each row of batches with the same leader epoch.
    pub(crate) epoch_runs: Vec<EpochRun>,
    pub(crate) aborted: Vec<AbortedTransaction>,
    /// Producers after the last batch; None when a batch contradicted the state.
    pub(crate) producers: Option<Vec<ProducerEntry>>,
    /// The state before was known, so that the one after is too.
    pub(crate) is_state_complete: bool,
    pub(crate) findings: Vec<Finding>,
}

/// A file while it is read.
struct Reading<'a> {
    facts: SegmentFacts,
    path: &'a Path,
    is_deep: bool,
    scratch: Vec<u8>,
    omitted: u64,
    indexes: IndexCheck,
    producers: &'a mut Producers,
    producers_failed: bool,
    /// Damage since the last sound batch: offsets missing before the next are lost.
    damage_since: Option<(u64, u64)>,
    is_gap_known: bool,
}

/// Reads `file` to its end, whatever it holds.
pub(crate) fn check(
    file: &SegmentFile,
    is_deep: bool,
    producers: &mut Producers,
    progress: &VerifyProgress,
) -> SegmentFacts {
    let facts = SegmentFacts {
        file: file.clone(),
        batches: 0,
        records: 0,
        first_offset: None,
        next_offset: file.base_offset,
        damaged_at: None,
        tail: Tail::Whole,
        is_compacted: false,
        epochs: Vec::new(),
        epoch_runs: Vec::new(),
        aborted: Vec::new(),
        producers: None,
        is_state_complete: producers.is_complete,
        findings: Vec::new(),
    };
    let mut reading = Reading {
        facts,
        path: &file.path,
        is_deep,
        scratch: Vec::new(),
        omitted: 0,
        indexes: IndexCheck::open(file),
        producers,
        producers_failed: false,
        damage_since: None,
        is_gap_known: false,
    };
    if let Err(error) = reading.run(progress) {
        let effect = "nothing behind it was checked";
        reading
            .add(Finding::new(Severity::Error, "unreadable", &file.path, error.to_string()).effect(effect));
        reading.facts.damaged_at.get_or_insert((0, file.base_offset));
    }
    reading.end()
}

impl Reading<'_> {
    fn add(&mut self, finding: Finding) {
        if self.facts.findings.len() < FINDINGS_MAX {
            self.facts.findings.push(finding);
        } else {
            self.omitted += 1;
        }
    }

    fn error(
        &mut self,
        kind: &'static str,
        batch: &BatchView<'_>,
        position: u64,
        what: String,
        effect: &str,
    ) {
        let finding = Finding::new(Severity::Error, kind, self.path, what);
        self.add(finding.at(position).offset(batch.base_offset()).effect(effect));
    }

    fn warn(&mut self, kind: &'static str, batch: &BatchView<'_>, position: u64, what: String, effect: &str) {
        let finding = Finding::new(Severity::Warning, kind, self.path, what);
        self.add(finding.at(position).offset(batch.base_offset()).effect(effect));
    }

    fn run(&mut self, progress: &VerifyProgress) -> crate::Result<()> {
        let mut walk = Walk::open(self.path, self.facts.file.base_offset, i64::MAX)?;
        let mut reported = 0;
        loop {
            let item = walk.next_item(self.facts.next_offset)?;
            progress.advance(walk.position() - reported);
            reported = walk.position();
            match item {
                Item::End => return Ok(()),
                Item::Batch => {
                    let (position, batch) = walk.batch()?;
                    self.batch(position, &batch);
                }
                Item::Misplaced { reason } => {
                    let (position, batch) = walk.batch()?;
                    self.misplaced(position, &batch, reason);
                }
                Item::Damage { position, size, kind, base_offset, reason } => {
                    self.facts.damaged_at.get_or_insert((position, self.facts.next_offset));
                    let since = self.damage_since.get_or_insert((position, 0));
                    since.1 += size;
                    let finding = Finding::new(Severity::Error, kind, self.path, reason).at(position);
                    let finding = if base_offset >= 0 { finding.offset(base_offset) } else { finding };
                    self.add(finding.effect(format!(
                        "{size} bytes are unreadable; a node that recovers this segment cuts the log at {position}"
                    )));
                }
                Item::Torn { position, size } => {
                    self.facts.tail = Tail::Torn;
                    self.facts.damaged_at.get_or_insert((position, self.facts.next_offset));
                    let what = format!("{size} bytes at the end are no whole batch");
                    let finding = Finding::new(Severity::Error, "torn-tail", self.path, what);
                    let finding = finding.at(position).offset(self.facts.next_offset);
                    self.add(finding.effect("records of the batch that was being written are lost"));
                }
                Item::Zeros { position, size } => {
                    self.facts.tail = Tail::Zeros;
                    self.facts.damaged_at.get_or_insert((position, self.facts.next_offset));
                    let what = format!("{size} bytes of zeros at the end");
                    let finding = Finding::new(Severity::Error, "zero-tail", self.path, what);
                    let effect = "the file was given its size in advance, or a write never reached the disk";
                    self.add(finding.at(position).offset(self.facts.next_offset).effect(effect));
                }
            }
            if progress.is_cancelled() {
                return Ok(());
            }
        }
    }

    fn batch(&mut self, position: u64, batch: &BatchView<'_>) {
        self.offsets(position, batch);
        self.facts.batches += 1;
        self.facts.first_offset.get_or_insert(batch.base_offset());
        self.facts.records += u64::try_from(batch.record_count()).unwrap_or(0);
        let spans = i64::from(batch.last_offset_delta()).saturating_add(1);
        self.facts.is_compacted |= i64::from(batch.record_count()) < spans && batch.magic() == MAGIC;
        let epoch = batch.partition_leader_epoch();
        if batch.magic() == MAGIC {
            match self.facts.epoch_runs.last_mut().filter(|run| run.epoch == epoch) {
                Some(run) => run.last_offset = batch.base_offset(),
                None => self.facts.epoch_runs.push(EpochRun {
                    epoch,
                    first_offset: batch.base_offset(),
                    last_offset: batch.base_offset(),
                }),
            }
        }
        let latest = self.facts.epochs.last().map(|(epoch, _)| *epoch);
        if let Some(latest) = latest.filter(|latest| epoch >= 0 && epoch < *latest) {
            let what = format!("leader epoch {epoch} after {latest}");
            let effect = "followers may truncate at the wrong place";
            self.warn("epoch-order", batch, position, what, effect);
        } else if epoch >= 0 && latest != Some(epoch) {
            self.facts.epochs.push((epoch, batch.base_offset()));
        }
        if batch.magic() > MAGIC {
            let what = format!("magic {} is unknown", batch.magic());
            self.error("batch-magic", batch, position, what, "no reader takes its records");
        } else if self.is_deep {
            self.records(position, batch);
        } else if batch.record_count() < 0 || batch.codec().is_err() {
            let what = format!("record count {}, codec {:?}", batch.record_count(), batch.codec());
            self.error("records", batch, position, what, "no reader takes its records");
        }
        self.indexes.batch(position, batch);
        self.state(position, batch);
        self.facts.next_offset = batch.next_offset().max(self.facts.next_offset);
    }

    /// A sound batch whose base offset is wrong: what follows goes on from the batch before.
    fn misplaced(&mut self, position: u64, batch: &BatchView<'_>, reason: String) {
        let known = self.facts.findings.len() as u64 + self.omitted;
        self.offsets(position, batch);
        self.facts.batches += 1;
        self.facts.records += u64::try_from(batch.record_count()).unwrap_or(0);
        let finding_count = self.facts.findings.len() as u64 + self.omitted;
        if finding_count == known {
            let effect = "its records have wrong offsets, and readers do not find those behind it";
            self.error("offset-order", batch, position, reason, effect);
        }
        if self.is_deep && batch.magic() <= MAGIC {
            self.records(position, batch);
        }
        self.indexes.batch(position, batch);
    }

    fn offsets(&mut self, position: u64, batch: &BatchView<'_>) {
        let (first, last, expected) = (batch.base_offset(), batch.last_offset(), self.facts.next_offset);
        if let Some((damage, size)) = self.damage_since.take() {
            if first > expected {
                self.is_gap_known = true;
                let what = format!("records are lost in {size} damaged bytes");
                let finding = Finding::new(Severity::Error, "records-lost", self.path, what).at(damage);
                self.add(finding.offsets(expected, first - 1).effect("salvage keeps what follows"));
            }
        } else if first > expected && self.facts.batches > 0 {
            self.facts.is_compacted = true;
        }
        if first < self.facts.file.base_offset {
            let what =
                format!("base offset {first} below the {} of the file's name", self.facts.file.base_offset);
            self.error("offset-order", batch, position, what, "reads at these offsets do not find it");
        } else if first < expected {
            let what = format!("base offset {first} where {expected} or more has to follow");
            self.error("offset-order", batch, position, what, "offsets would be given twice");
        } else if last < first {
            let what = format!("last offset {last} before the first, {first}");
            self.error(
                "offset-order",
                batch,
                position,
                what,
                "a node that recovers this segment stops or cuts here",
            );
        } else if last - self.facts.file.base_offset > i64::from(i32::MAX) {
            let what = format!(
                "last offset {last} does not fit a segment with base {}",
                self.facts.file.base_offset
            );
            self.error("offset-overflow", batch, position, what, "a node does not start with this segment");
        }
    }

    fn records(&mut self, position: u64, batch: &BatchView<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut largest = i64::MIN;
        let mut previous = -1;
        let mut odd = None;
        let outcome = batch.records(&mut scratch).and_then(|records| {
            records.try_for_each_record(|record| {
                largest = largest.max(record.timestamp);
                if record.offset_delta <= previous || record.offset_delta > batch.last_offset_delta() {
                    odd.get_or_insert(record.offset_delta);
                }
                previous = record.offset_delta;
                Ok(())
            })
        });
        self.scratch = scratch;
        if let Err(error) = outcome {
            let effect = "consumers fail at this batch; Kafka's recovery keeps it, as its checksum is right";
            self.error("records", batch, position, reason_of(error), effect);
            return;
        }
        if let Some(delta) = odd {
            let what =
                format!("offset delta {delta} is out of order, or above {}", batch.last_offset_delta());
            self.warn("record-offsets", batch, position, what, "consumers may see an offset twice or never");
        }
        let stored = batch.max_timestamp();
        let is_create_time = batch.timestamp_type() == TimestampType::CreateTime;
        if is_create_time && largest != i64::MIN && largest.max(-1) != stored && batch.magic() == MAGIC {
            let what = format!("largest timestamp {stored} stored, {largest} in the records");
            self.warn(
                "max-timestamp",
                batch,
                position,
                what,
                "lookups and retention by time go by the stored one",
            );
        }
    }

    fn state(&mut self, position: u64, batch: &BatchView<'_>) {
        if self.producers_failed || batch.magic() != MAGIC {
            return;
        }
        match self.producers.note(batch) {
            Ok(Some(aborted)) => self.facts.aborted.push(aborted),
            Ok(None) => {}
            Err(error) => {
                self.producers_failed = true;
                let kind = if batch.is_control() { "control-record" } else { "transaction" };
                let effect = match &error {
                    Error::Corrupt { .. } => {
                        "Kafka cuts the log behind the batch when it recovers this segment, kraftlog does not open it"
                    }
                    _ => "a node that recovers this segment does not start",
                };
                self.error(kind, batch, position, reason_of(error), effect);
            }
        }
    }

    fn end(mut self) -> SegmentFacts {
        if let Some((damage, size)) = self.damage_since.take() {
            if !self.is_gap_known {
                let what = format!("nothing sound follows the {size} damaged bytes");
                let finding = Finding::new(Severity::Error, "records-lost", self.path, what).at(damage);
                self.add(
                    finding.offset(self.facts.next_offset).effect("records from this offset on are lost"),
                );
            }
        }
        let mut facts = self.facts;
        let is_last_whole = facts.damaged_at.is_none();
        facts.findings.extend(self.indexes.finish(&facts.file, is_last_whole));
        if self.omitted > 0 {
            let what = format!("{} more findings in this file are not listed", self.omitted);
            facts.findings.push(Finding::new(Severity::Error, "more", self.path, what));
        }
        facts.producers = (!self.producers_failed).then(|| self.producers.entries());
        if self.producers_failed || facts.damaged_at.is_some() {
            self.producers.is_complete = false;
        }
        facts.is_state_complete &= !self.producers_failed && facts.damaged_at.is_none();
        facts
    }
}
