//! Appending as leader (offsets, epoch and time written in place) and as follower (taken as they are).
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use super::append_options::AppendOptions;
use super::producer_changes::{check_verified, ProducerChanges, ProducerCheck};
use super::{Inner, Log, LogConfig};
use crate::batch::{
    single_batch, validate_produce_batch, BatchHeader, BatchView, Batches, ProduceCheck, ProduceRules,
    RecordOrigin, TimestampType, HEADER_SIZE,
};
use crate::builder::{BatchBuilder, BatchOptions};
use crate::compression::{Bound, Codec};
use crate::legacy::is_legacy;
use crate::producer_state::{EndMarker, Origin};
use crate::segment::{end_marker, AbortedTransaction, AppendedBatch, RollParameters};
use crate::{Error, Result};

const CORRUPT_MESSAGE: i16 = 2;
const MESSAGE_TOO_LARGE: i16 = 10;
const RECORD_LIST_TOO_LARGE: i16 = 18;
const INVALID_RECORD: i16 = 87;
/// Scratch memory a thread keeps between appends; a larger one is given back.
const SCRATCH_KEPT_BYTES: usize = 4 << 20;
/// Batches with more records than this, in bytes uncompressed, are checked one at a time by the whole process: a
/// producer makes 1 GiB of 1 MiB, and threads that check such batches beside each other would exhaust the memory.
const CHECKED_ALONE_FROM_BYTES: usize = 64 << 20;

static CHECKED_ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// Offset of the first record; -1 when nothing was appended.
    pub first_offset: i64,
    /// Offset of the last record, inclusive.
    pub last_offset: i64,
    /// Time given to the records with LogAppendTime, else -1.
    pub log_append_time_ms: i64,
    /// First readable offset of the log.
    pub log_start_offset: i64,
    /// The batch had been appended before: nothing was written, the offsets are those of then.
    pub is_duplicate: bool,
    /// Records appended.
    pub record_count: i64,
    /// Bytes appended.
    pub size_bytes: u64,
    /// A new segment was begun.
    pub is_rolled: bool,
}

/// Batches that passed their checks and wait for their offsets and epoch.
#[derive(Debug)]
pub struct PreparedAppend<'a> {
    pub(super) batches: Vec<Prepared<'a>>,
    pub(super) config: Arc<LogConfig>,
    pub(super) options: AppendOptions,
}

impl PreparedAppend<'_> {
    /// Bytes of the records, uncompressed, that were checked.
    pub fn uncompressed_bytes(&self) -> usize {
        self.batches.iter().fold(0, |bytes, batch| bytes.saturating_add(batch.check.uncompressed_bytes))
    }
}

/// A batch that passed its checks: what is written and what is known of it.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    pub(super) header: [u8; HEADER_SIZE],
    pub(super) body: Body<'a>,
    pub(super) check: ProduceCheck,
    marker: Option<EndMarker>,
}

#[derive(Debug)]
pub(super) enum Body<'a> {
    Borrowed(&'a [u8]),
    Rebuilt(Vec<u8>),
}

impl Body<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Rebuilt(bytes) => bytes.get(HEADER_SIZE..).unwrap_or_default(),
        }
    }
}

fn rules(config: &LogConfig, options: &AppendOptions) -> ProduceRules {
    ProduceRules {
        origin: match options.origin {
            Origin::Client => RecordOrigin::Client,
            Origin::Coordinator | Origin::Replication => RecordOrigin::Coordinator,
            Origin::Raft => RecordOrigin::Raft,
        },
        timestamp_type: config.timestamp_type,
        now_ms: options.now_ms,
        timestamp_before_max_ms: config.timestamp_before_max_ms,
        timestamp_after_max_ms: config.timestamp_after_max_ms,
        is_compacted: config.cleanup_policy.compact,
        max_message_bytes: usize::try_from(config.max_message_bytes).unwrap_or(usize::MAX),
        bound: Bound::DEFAULT,
        uncompressed_bytes_max: options.uncompressed_bytes_max,
        gives_offset_deltas: false,
    }
}

fn with_scratch<T>(run: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        let result = run(scratch);
        if scratch.capacity() > SCRATCH_KEPT_BYTES {
            *scratch = Vec::new();
        }
        result
    })
}

fn prepare<'a>(batch: &BatchView<'a>, config: &LogConfig, rules: &ProduceRules) -> Result<Prepared<'a>> {
    if rules.uncompressed_bytes_max <= CHECKED_ALONE_FROM_BYTES {
        return prepare_within(batch, config, rules);
    }
    let first = ProduceRules { uncompressed_bytes_max: CHECKED_ALONE_FROM_BYTES, ..*rules };
    match prepare_within(batch, config, &first) {
        Err(Error::OverBudget { .. }) => {
            let _alone = CHECKED_ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            prepare_within(batch, config, rules)
        }
        prepared => prepared,
    }
}

fn prepare_within<'a>(
    batch: &BatchView<'a>,
    config: &LogConfig,
    rules: &ProduceRules,
) -> Result<Prepared<'a>> {
    with_scratch(|scratch| {
        let codec = batch.codec().unwrap_or(Codec::None);
        let target = config
            .compression
            .filter(|target| *target != codec && !(codec == Codec::None && batch.is_control()));
        let rules = ProduceRules { gives_offset_deltas: target.is_some(), ..*rules };
        let check = validate_produce_batch(batch, &rules, scratch)?;
        let marker = if batch.is_control() && batch.has_producer_id() {
            end_marker(batch).map_err(|error| Error::rejected(INVALID_RECORD, error.to_string()))?
        } else {
            None
        };
        let (header, body) = match target {
            Some(target) => {
                let rebuilt = recompress(batch, target, config.compression_level, scratch)?;
                if rebuilt.len() as u64 > config.max_message_bytes {
                    let (size, limit) = (rebuilt.len(), config.max_message_bytes);
                    let reason =
                        format!("the recompressed batch has {size} bytes, max.message.bytes is {limit}");
                    return Err(Error::rejected(MESSAGE_TOO_LARGE, reason));
                }
                (rebuilt.first_chunk().copied(), Body::Rebuilt(rebuilt))
            }
            None => (batch.bytes().first_chunk().copied(), Body::Borrowed(batch.body())),
        };
        let header = header.ok_or_else(|| Error::rejected(CORRUPT_MESSAGE, "batch without a header"))?;
        Ok(Prepared { header, body, check, marker })
    })
}

/// The same records in the codec the topic asks for (Kafka's `LogValidator.buildRecordsAndAssignOffsets`).
fn recompress(
    batch: &BatchView<'_>,
    codec: Codec,
    level: Option<i32>,
    scratch: &mut Vec<u8>,
) -> Result<Vec<u8>> {
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        level,
        producer_id: batch.producer_id(),
        producer_epoch: batch.producer_epoch(),
        base_sequence: batch.base_sequence(),
        is_transactional: batch.is_transactional(),
        is_control: batch.is_control(),
        ..BatchOptions::default()
    })?;
    let mut headers = Vec::new();
    for record in batch.records(scratch)? {
        let record = record?;
        headers.clear();
        headers.extend(record.headers);
        builder.append(record.timestamp, record.key, record.value, &headers)?;
    }
    builder.finish()
}

impl Log {
    /// Append batches of a producer, a coordinator or the metadata quorum's leader: they get the next offsets and the
    /// leader's epoch; the caller's buffer stays as it is.
    ///
    /// # Errors
    /// [`Error::Rejected`] with the code the producer gets; nothing was appended. An I/O error poisons the log.
    pub fn append_as_leader(
        &self,
        records: &[u8],
        leader_epoch: i32,
        now_ms: i64,
        origin: Origin,
    ) -> Result<AppendInfo> {
        let options = AppendOptions::new(leader_epoch, now_ms, origin);
        self.append_as_leader_with(records, AppendOptions { transaction_version: Some(0), ..options })
    }

    /// Like [`Self::append_as_leader`], with what only transactions need to say.
    pub fn append_as_leader_with(&self, records: &[u8], options: AppendOptions) -> Result<AppendInfo> {
        self.commit_append(self.prepare_append(records, options)?, options.leader_epoch)
    }

    /// Check and, if the topic asks for it, recompress what a leader is about to append. Takes no lock, so that a long
    /// check holds nobody up; [`Self::commit_append`] gives offsets and the epoch. `options.leader_epoch` is not used.
    ///
    /// # Errors
    /// [`Error::Rejected`] with the code the producer gets; [`Error::OverBudget`] for more uncompressed bytes than
    /// `options` allow.
    pub fn prepare_append<'a>(
        &self,
        records: &'a [u8],
        options: AppendOptions,
    ) -> Result<PreparedAppend<'a>> {
        self.check()?;
        let config = self.config();
        let rules = rules(&config, &options);
        let mut prepared = Vec::with_capacity(1);
        if options.origin == Origin::Client {
            prepared.push(prepare(&single_batch(records)?, &config, &rules)?);
        } else {
            let mut batches = Batches::new(records);
            for batch in &mut batches {
                prepared.push(prepare(&batch?, &config, &rules)?);
            }
            if prepared.is_empty() || batches.position() != records.len() {
                return Err(Error::rejected(INVALID_RECORD, "records that are not whole batches"));
            }
        }
        Ok(PreparedAppend { batches: prepared, config, options })
    }

    /// Append what [`Self::prepare_append`] checked, in the epoch that the caller leads now.
    ///
    /// # Errors
    /// [`Error::Rejected`] with the code the producer gets; nothing was appended. An I/O error poisons the log.
    pub fn commit_append(&self, prepared: PreparedAppend<'_>, leader_epoch: i32) -> Result<AppendInfo> {
        let PreparedAppend { batches: mut prepared, config, options } = prepared;
        let now_ms = options.now_ms;
        let options = AppendOptions { leader_epoch, ..options };
        if options.origin == Origin::Raft {
            // A quorum's leader builds its batches itself: with another epoch they are of another leadership.
            for batch in &prepared {
                let found = BatchHeader::new(&batch.header).partition_leader_epoch();
                if found != leader_epoch {
                    let reason =
                        format!("a batch of leader epoch {found} from the leader of epoch {leader_epoch}");
                    return Err(Error::rejected(INVALID_RECORD, reason));
                }
            }
        }
        let mut inner = self.lock_inner()?;
        let first_offset = inner.log_end_offset;
        let mut next_offset = first_offset;
        for batch in &mut prepared {
            batch.check.assign(
                &mut batch.header,
                batch.body.bytes(),
                config.timestamp_type,
                next_offset,
                leader_epoch,
            );
            next_offset += i64::from(batch.check.record_count);
        }
        let log_append_time_ms =
            if config.timestamp_type == TimestampType::LogAppendTime { now_ms } else { -1 };
        let changes = match self.check_producers(&inner, &prepared, &options)? {
            ProducerCheck::Duplicate(first_offset, last_offset, timestamp) => {
                return Ok(AppendInfo {
                    first_offset,
                    last_offset,
                    log_append_time_ms: timestamp,
                    log_start_offset: inner.log_start_offset,
                    is_duplicate: true,
                    record_count: 0,
                    size_bytes: 0,
                    is_rolled: false,
                });
            }
            ProducerCheck::Accepted(changes) => changes,
        };
        let mut parts: Vec<&[u8]> = Vec::with_capacity(prepared.len() * 2);
        let mut appended = Vec::with_capacity(prepared.len());
        for batch in &prepared {
            parts.extend([&batch.header[..], batch.body.bytes()]);
            appended.push(Appended::of(&BatchHeader::new(&batch.header)));
        }
        let rolled = self.write(&mut inner, &config, &parts, &appended, now_ms)?;
        self.finish_append(&mut inner, next_offset, &changes)?;
        Ok(AppendInfo {
            first_offset,
            last_offset: next_offset - 1,
            log_append_time_ms,
            log_start_offset: inner.log_start_offset,
            is_duplicate: false,
            record_count: next_offset - first_offset,
            size_bytes: parts.iter().map(|part| part.len() as u64).sum(),
            is_rolled: rolled,
        })
    }

    fn check_producers(
        &self,
        inner: &Inner,
        prepared: &[Prepared<'_>],
        options: &AppendOptions,
    ) -> Result<ProducerCheck> {
        let mut changes = ProducerChanges::default();
        for batch in prepared {
            let header = BatchHeader::new(&batch.header);
            if !header.has_producer_id() {
                continue;
            }
            if options.origin == Origin::Client {
                let entry = inner.producers.entry(header.producer_id());
                let duplicate = entry.and_then(|entry| {
                    entry.find_duplicate(
                        header.producer_epoch(),
                        header.base_sequence(),
                        header.last_sequence(),
                    )
                });
                if duplicate.is_none() && header.is_transactional() {
                    check_verified(inner, &header, options)?;
                }
                if let Some(duplicate) = duplicate {
                    return Ok(ProducerCheck::Duplicate(
                        duplicate.first_offset(),
                        duplicate.last_offset,
                        duplicate.timestamp,
                    ));
                }
            }
            changes.add(inner, &header, batch.marker, options)?;
        }
        Ok(ProducerCheck::Accepted(changes))
    }

    /// Append batches fetched from the leader; offsets and epochs stay as they are. Batches of an epoch above
    /// `leader_epoch` and all after them are left out (KAFKA-18723).
    ///
    /// # Errors
    /// [`Error::Corrupt`]: a CRC differs or the offsets do not rise; [`Error::OffsetOutOfRange`]: the first offset
    /// lies before the log end offset. Nothing was appended. An I/O error poisons the log.
    pub fn append_as_follower(&self, records: &[u8], leader_epoch: i32, now_ms: i64) -> Result<AppendInfo> {
        self.check()?;
        let config = self.config();
        let mut batches = Vec::new();
        let mut last_offset = -1;
        for batch in Batches::new(records) {
            let batch = batch?;
            if batch.partition_leader_epoch() > leader_epoch {
                break;
            }
            if batch.last_offset() <= last_offset || batch.last_offset() < batch.base_offset() {
                return Err(batch.corrupt(format!("last offset {} after {last_offset}", batch.last_offset())));
            }
            batch.validate_crc()?;
            last_offset = batch.last_offset();
            batches.push(batch);
        }
        let mut inner = self.lock_inner()?;
        let Some(first) = batches.first() else {
            return Ok(AppendInfo {
                first_offset: -1,
                last_offset: -1,
                log_append_time_ms: -1,
                log_start_offset: inner.log_start_offset,
                is_duplicate: false,
                record_count: 0,
                size_bytes: 0,
                is_rolled: false,
            });
        };
        // The offset a batch of the old formats is stored under is its last; Kafka looks at that.
        let stored_offset = if is_legacy(first.magic()) { first.last_offset() } else { first.base_offset() };
        if stored_offset < inner.log_end_offset {
            return Err(Error::OffsetOutOfRange {
                origin: self.origin(),
                offset: first.base_offset(),
                log_start_offset: inner.log_start_offset,
                log_end_offset: inner.log_end_offset,
            });
        }
        let first_offset = first.base_offset();
        let mut is_rolled = false;
        let mut record_count = 0;
        let mut size_bytes = 0;
        // What a leader has taken is not checked.
        let options = AppendOptions {
            transaction_version: Some(0),
            ..AppendOptions::new(leader_epoch, now_ms, Origin::Replication)
        };
        for group in groups(&batches, config.segment_bytes) {
            let mut changes = ProducerChanges::default();
            let mut parts = Vec::with_capacity(group.len());
            let mut appended = Vec::with_capacity(group.len());
            for batch in group {
                let marker =
                    if batch.is_control() && batch.has_producer_id() { end_marker(batch)? } else { None };
                if batch.has_producer_id() {
                    changes.add(&inner, batch, marker, &options)?;
                }
                parts.push(batch.bytes());
                appended.push(Appended::of(batch));
                record_count += i64::from(batch.record_count());
                size_bytes += batch.bytes().len() as u64;
            }
            is_rolled |= self.write(&mut inner, &config, &parts, &appended, now_ms)?;
            let next_offset = group.last().map_or(inner.log_end_offset, |batch| batch.next_offset());
            self.finish_append(&mut inner, next_offset, &changes)?;
        }
        Ok(AppendInfo {
            first_offset,
            last_offset,
            log_append_time_ms: -1,
            log_start_offset: inner.log_start_offset,
            is_duplicate: false,
            record_count,
            size_bytes,
            is_rolled,
        })
    }

    /// Write to the active segment, after a new one was begun if the old is full. Any I/O error poisons the log, but
    /// for want of a descriptor: then nothing was appended and the same append may be tried again.
    pub(super) fn write(
        &self,
        inner: &mut Inner,
        config: &LogConfig,
        parts: &[&[u8]],
        appended: &[Appended],
        now_ms: i64,
    ) -> Result<bool> {
        let append_bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if append_bytes > config.segment_bytes {
            return Err(Error::rejected(
                RECORD_LIST_TOO_LARGE,
                format!("{append_bytes} bytes in one append, segment.bytes is {}", config.segment_bytes),
            ));
        }
        let (Some(first), Some(last)) = (appended.first(), appended.last()) else { return Ok(false) };
        let write = |inner: &mut Inner| {
            for batch in appended {
                if batch.is_legacy {
                    // Without an epoch in the batches nothing that is known of epochs holds any more.
                    inner.epochs.clear();
                } else {
                    inner.epochs.assign(batch.leader_epoch, batch.base_offset);
                }
            }
            inner.epochs.flush()?;
            let roll = RollParameters {
                segment_bytes: config.segment_bytes,
                segment_ms: config.segment_ms,
                append_bytes,
                max_timestamp: appended.iter().map(|batch| batch.facts.max_timestamp).max().unwrap_or(-1),
                last_offset: last.facts.last_offset,
                now_ms,
            };
            let is_rolled = inner.active()?.should_roll(&roll)?;
            if is_rolled {
                self.roll_at(inner, first.base_offset, now_ms)?;
            }
            let active = Arc::clone(inner.active()?);
            match appended {
                [one] => active.append(parts, &[one.facts])?,
                many => {
                    let facts: Vec<_> = many.iter().map(|batch| batch.facts).collect();
                    active.append(parts, &facts)?;
                }
            }
            Ok(is_rolled)
        };
        write(inner).map_err(|error| self.poison_unless_refused(error))
    }

    /// The bytes are written: move the end and take over what they say of producers.
    pub(super) fn finish_append(
        &self,
        inner: &mut Inner,
        next_offset: i64,
        changes: &ProducerChanges,
    ) -> Result<()> {
        inner.log_end_offset = next_offset;
        for update in &changes.updates {
            inner.producers.apply(update);
        }
        for (producer_id, marker_epoch) in &changes.ended_verifications {
            match marker_epoch {
                Some(epoch) => inner.producers.end_verification_by_marker(*producer_id, *epoch),
                None => inner.producers.end_verification(*producer_id),
            }
        }
        for completed in &changes.completed {
            let last_stable_offset = inner.producers.last_stable_offset(completed);
            if completed.is_aborted {
                inner
                    .active()?
                    .append_aborted(AbortedTransaction {
                        producer_id: completed.producer_id,
                        first_offset: completed.first_offset,
                        last_offset: completed.last_offset,
                        last_stable_offset,
                    })
                    .map_err(|error| self.poison_with(error))?;
            }
            inner.producers.complete(completed)?;
        }
        inner.producers.set_end_offset(next_offset);
        self.publish(inner);
        Ok(())
    }
}

/// An appended batch with what the epoch cache and the indexes need.
#[derive(Clone, Copy)]
pub(super) struct Appended {
    base_offset: i64,
    leader_epoch: i32,
    is_legacy: bool,
    pub(super) facts: AppendedBatch,
}

impl Appended {
    pub(super) fn of(header: &BatchHeader<'_>) -> Self {
        Self {
            base_offset: header.base_offset(),
            leader_epoch: header.partition_leader_epoch(),
            is_legacy: is_legacy(header.magic()),
            facts: AppendedBatch::of(header),
        }
    }
}

/// Runs of batches that fit a segment together.
fn groups<'b, 'a>(batches: &'b [BatchView<'a>], segment_bytes: u64) -> Vec<&'b [BatchView<'a>]> {
    let mut groups = Vec::new();
    let mut start = 0;
    let mut size = 0;
    for (index, batch) in batches.iter().enumerate() {
        let batch_bytes = batch.bytes().len() as u64;
        if index > start && size + batch_bytes > segment_bytes {
            groups.extend(batches.get(start..index));
            start = index;
            size = 0;
        }
        size += batch_bytes;
    }
    groups.extend(batches.get(start..));
    groups
}
