//! What a leader checks of a batch before it appends it, after Kafka's `LogValidator` and
//! `UnifiedLog.analyzeAndValidateRecords`.
//!
//! Stricter than Kafka: offset deltas must be 0, 1, 2, .. unless the batch is built anew (Kafka fails to rewrite
//! compressed batches where they are not, and lets uncompressed ones pass, so that offsets collide); a producer id
//! needs an epoch, and a transactional batch a producer id. A body that does not decompress, and an unknown codec,
//! are refused with a code of their own (Kafka: UNKNOWN_SERVER_ERROR). Held against Kafka's LogValidator by
//! `tests/interop/test_produce_checks.py`.
use super::{
    next_batch_shallow, set_base_offset, set_max_timestamp, set_partition_leader_epoch, BatchView, Source,
    TimestampType, HEADER_SIZE, MAGIC, NO_TIMESTAMP,
};
use crate::compression::{self, Bound, Codec, CodecError};
use crate::record::RecordIter;
use crate::{Error, Result};

const CORRUPT_MESSAGE: i16 = 2;
const MESSAGE_TOO_LARGE: i16 = 10;
const INVALID_TIMESTAMP: i16 = 32;
const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
const INVALID_RECORD: i16 = 87;

/// Refused records that are named to the producer; the answer to a bad batch stays small.
const RECORD_ERRORS_MAX: usize = 1000;

/// Who built the batch, as in Kafka's `AppendOrigin`: clients are trusted least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordOrigin {
    /// A produce request: one batch, no control records, base offset 0.
    #[default]
    Client,
    /// A group or transaction coordinator of this node.
    Coordinator,
    /// The leader of a metadata quorum.
    Raft,
}

/// What a topic and the moment ask of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProduceRules {
    /// Who built the batch.
    pub origin: RecordOrigin,
    /// `message.timestamp.type` of the topic.
    pub timestamp_type: TimestampType,
    /// Wall clock, milliseconds since the epoch.
    pub now_ms: i64,
    /// `message.timestamp.before.max.ms`: how far a record's timestamp may lie in the past.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far a record's timestamp may lie in the future.
    pub timestamp_after_max_ms: i64,
    /// True when `cleanup.policy` has compact: every record needs a key.
    pub is_compacted: bool,
    /// `max.message.bytes`: largest batch, header included, in bytes.
    pub max_message_bytes: usize,
    /// How far a compressed batch may grow.
    pub bound: Bound,
    /// Bytes of records, uncompressed, that the caller has time to check.
    pub uncompressed_bytes_max: usize,
    /// The records will be given new offset deltas, as the batch is built anew: those they have do not matter.
    pub gives_offset_deltas: bool,
}

impl Default for ProduceRules {
    /// The rules of a topic with Kafka's defaults, at time 0.
    fn default() -> Self {
        Self {
            origin: RecordOrigin::Client,
            timestamp_type: TimestampType::CreateTime,
            now_ms: 0,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            is_compacted: false,
            max_message_bytes: 1_048_588,
            bound: Bound::DEFAULT,
            uncompressed_bytes_max: usize::MAX,
            gives_offset_deltas: false,
        }
    }
}

/// What was found in a batch that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProduceCheck {
    /// Largest timestamp of the records, -1 when none has one; now, for LogAppendTime.
    pub max_timestamp: i64,
    /// Offset delta of the first record with that timestamp; of the last record for LogAppendTime.
    pub max_timestamp_offset_delta: i32,
    /// Records, at least one.
    pub record_count: i32,
    /// Bytes of the records uncompressed, without the batch header.
    pub uncompressed_bytes: usize,
}

impl ProduceCheck {
    /// Writes what the leader decides into the header: offset, epoch, timestamp type and largest timestamp.
    /// The checksum is computed anew only if a timestamp field changes. `body` is what follows the header.
    pub fn assign(
        &self,
        header: &mut [u8; HEADER_SIZE],
        body: &[u8],
        timestamp_type: TimestampType,
        base_offset: i64,
        leader_epoch: i32,
    ) {
        set_base_offset(header, base_offset);
        set_partition_leader_epoch(header, leader_epoch);
        set_max_timestamp(header, body, timestamp_type, self.max_timestamp);
    }
}

/// The one batch that a produce request has for a partition (version 3 and later).
///
/// # Errors
/// [`Error::Rejected`] with INVALID_RECORD for no batch, several, or a message of format v0 or v1; with
/// CORRUPT_MESSAGE for an unknown magic or a length that no batch has.
pub fn single_batch(records: &[u8]) -> Result<BatchView<'_>> {
    let batch = match next_batch_shallow(Source::Memory, records, 0) {
        Ok(Some(batch)) => batch,
        Ok(None) => {
            return Err(Error::rejected(
                INVALID_RECORD,
                "a produce request has exactly one record batch a partition, not none",
            ))
        }
        Err(Error::Corrupt { reason, .. }) => return Err(Error::rejected(CORRUPT_MESSAGE, reason)),
        Err(other) => return Err(other),
    };
    if batch.magic() != MAGIC {
        return Err(Error::rejected(
            INVALID_RECORD,
            format!("magic {} where a produce request needs {MAGIC}", batch.magic()),
        ));
    }
    // What is left when it is no whole batch is dropped, as Kafka trims it.
    match next_batch_shallow(Source::Memory, records, batch.bytes().len()) {
        Ok(None) => {}
        Ok(Some(_)) => {
            return Err(Error::rejected(
                INVALID_RECORD,
                "a produce request has exactly one record batch a partition, not more",
            ))
        }
        Err(Error::Corrupt { reason, .. }) => return Err(Error::rejected(CORRUPT_MESSAGE, reason)),
        Err(other) => return Err(other),
    }
    Ok(batch)
}

/// Checks header, checksum and every record of a batch that a leader is about to append. Uncompressed
/// records are walked in place; compressed ones are decompressed into `scratch`.
///
/// # Errors
/// [`Error::Rejected`] with the code that the producer gets, and the refused records if any. [`Error::OverBudget`] for a
/// compressed batch with more than `rules.uncompressed_bytes_max`.
pub fn validate_produce_batch(
    batch: &BatchView<'_>,
    rules: &ProduceRules,
    scratch: &mut Vec<u8>,
) -> Result<ProduceCheck> {
    let size = batch.bytes().len();
    if size > rules.max_message_bytes {
        return Err(Error::rejected(
            MESSAGE_TOO_LARGE,
            format!("the record batch has {size} bytes, max.message.bytes is {}", rules.max_message_bytes),
        ));
    }
    check_header(batch, rules)?;
    let computed = batch.computed_crc();
    if computed != batch.crc() {
        return Err(Error::rejected(
            CORRUPT_MESSAGE,
            format!("CRC {:#010x} stored, {computed:#010x} computed", batch.crc()),
        ));
    }
    let body = uncompressed_body(batch, rules, scratch)?;
    let mut check = check_records(batch, rules, body)?;
    if rules.timestamp_type == TimestampType::LogAppendTime {
        check.max_timestamp = rules.now_ms;
        check.max_timestamp_offset_delta = batch.last_offset_delta();
    }
    Ok(check)
}

fn uncompressed_body<'s, 'a: 's>(
    batch: &BatchView<'a>,
    rules: &ProduceRules,
    scratch: &'s mut Vec<u8>,
) -> Result<&'s [u8]> {
    let codec = batch.codec().map_err(|id| {
        Error::rejected(UNSUPPORTED_COMPRESSION_TYPE, format!("unknown compression codec {id}"))
    })?;
    if codec == Codec::None {
        return Ok(batch.body());
    }
    if let Some(reason) = compression::kafka_refusal(codec, batch.body()) {
        return Err(Error::rejected(INVALID_RECORD, reason));
    }
    let limit = rules.uncompressed_bytes_max;
    let bound = Bound { max_bytes: rules.bound.max_bytes.min(limit), ..rules.bound };
    match compression::decompress(codec, batch.body(), bound, scratch) {
        Ok(()) => Ok(scratch),
        Err(CodecError::OverBound { compressed, limit: reached, .. })
            if reached < rules.bound.limit(compressed) =>
        {
            Err(Error::OverBudget { limit })
        }
        Err(error) => Err(Error::rejected(INVALID_RECORD, error.to_string())),
    }
}

fn check_header(batch: &BatchView<'_>, rules: &ProduceRules) -> Result<()> {
    let count = batch.record_count();
    let reason = if batch.magic() != MAGIC {
        format!("magic {} where a produce request needs 2", batch.magic())
    } else if count <= 0 {
        format!("record count {count}")
    } else if batch.last_offset_delta() != count - 1 {
        format!("last offset delta {} in a batch of {count} records", batch.last_offset_delta())
    } else if rules.origin != RecordOrigin::Client {
        return Ok(());
    } else if batch.is_control() {
        "clients may not write control records".to_owned()
    } else if batch.has_producer_id() && batch.base_sequence() < 0 {
        format!("base sequence {} with producer id {}", batch.base_sequence(), batch.producer_id())
    } else if batch.has_producer_id() && batch.producer_epoch() < 0 {
        format!("producer epoch {} with producer id {}", batch.producer_epoch(), batch.producer_id())
    } else if batch.is_transactional() && !batch.has_producer_id() {
        "a transactional batch without a producer id".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::rejected(INVALID_RECORD, reason))
}

fn check_records(batch: &BatchView<'_>, rules: &ProduceRules, body: &[u8]) -> Result<ProduceCheck> {
    let mut check = ProduceCheck {
        max_timestamp: NO_TIMESTAMP,
        max_timestamp_offset_delta: -1,
        record_count: 0,
        uncompressed_bytes: body.len(),
    };
    let limits = TimestampLimits::new(batch, rules);
    let mut refused = Refused::default();
    let records = RecordIter::new(batch, body).map_err(into_invalid_record)?;
    let walked = records.try_for_each_record(|record| {
        if record.offset_delta != check.record_count && !rules.gives_offset_deltas {
            return Err(offset_delta_refusal(check.record_count, record.offset_delta));
        }
        if rules.is_compacted && record.key.is_none() {
            refused.add(INVALID_RECORD, check.record_count, || {
                "a compacted topic takes no record without a key".to_owned()
            });
        } else if !limits.allow(record.timestamp) {
            refused.add(INVALID_TIMESTAMP, check.record_count, || limits.refusal(record.timestamp));
        } else if record.timestamp > check.max_timestamp {
            check.max_timestamp = record.timestamp;
            check.max_timestamp_offset_delta = check.record_count;
        }
        check.record_count += 1;
        Ok(())
    });
    walked.map_err(into_invalid_record)?;
    refused.into_result().map(|()| check)
}

/// The timestamps a record may have.
struct TimestampLimits {
    /// Timestamps are the producer's: they are compared with the clock.
    is_create_time: bool,
    /// The producer set LogAppendTime, which is the broker's to set.
    claims_append_time: bool,
    now_ms: i64,
    before_max_ms: i64,
    after_max_ms: i64,
}

impl TimestampLimits {
    fn new(batch: &BatchView<'_>, rules: &ProduceRules) -> Self {
        Self {
            is_create_time: rules.timestamp_type == TimestampType::CreateTime,
            claims_append_time: batch.timestamp_type() == TimestampType::LogAppendTime,
            now_ms: rules.now_ms,
            before_max_ms: rules.timestamp_before_max_ms,
            after_max_ms: rules.timestamp_after_max_ms,
        }
    }

    #[inline]
    fn allow(&self, timestamp: i64) -> bool {
        if self.is_create_time && timestamp != NO_TIMESTAMP {
            // Wraps as Java's long does: what lies 2^63 ms in the past counts as the future.
            let age = self.now_ms.wrapping_sub(timestamp);
            age <= self.before_max_ms && age.wrapping_neg() <= self.after_max_ms
        } else {
            !self.claims_append_time
        }
    }

    fn refusal(&self, timestamp: i64) -> String {
        if self.claims_append_time && !self.is_create_time {
            return "a producer may not set the timestamp type LogAppendTime".to_owned();
        }
        format!(
            "timestamp {timestamp} is outside [{}, {}]",
            self.now_ms.saturating_sub(self.before_max_ms),
            self.now_ms.saturating_add(self.after_max_ms)
        )
    }
}

/// Records refused one by one: the batch is refused as a whole, with up to [`RECORD_ERRORS_MAX`] of them named.
#[derive(Default)]
struct Refused {
    code: i16,
    count: usize,
    records: Vec<(i32, String)>,
}

impl Refused {
    #[cold]
    fn add(&mut self, code: i16, index: i32, reason: impl FnOnce() -> String) {
        // A single bad timestamp makes it an INVALID_TIMESTAMP, as in LogValidator.processRecordErrors.
        if self.code != INVALID_TIMESTAMP {
            self.code = code;
        }
        self.count += 1;
        if self.records.len() < RECORD_ERRORS_MAX {
            self.records.push((index, reason()));
        }
    }

    fn into_result(self) -> Result<()> {
        let Some((index, first)) = self.records.first() else {
            return Ok(());
        };
        let reason = format!("{} of the batch's records refused; record {index}: {first}", self.count);
        Err(Error::Rejected { code: self.code, reason, record_errors: self.records })
    }
}

#[cold]
fn offset_delta_refusal(index: i32, offset_delta: i32) -> Error {
    Error::rejected(INVALID_RECORD, format!("record {index} has offset delta {offset_delta}"))
}

#[cold]
fn into_invalid_record(error: Error) -> Error {
    match error {
        Error::Corrupt { reason, .. } => Error::rejected(INVALID_RECORD, reason),
        other => other,
    }
}
