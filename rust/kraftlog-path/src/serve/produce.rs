//! Produce: plan, append, and answer when the client wants it.
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kraftlog_log::batch::{attributes, BatchHeader, HEADER_SIZE, MAGIC};
use kraftlog_log::log::{AppendOptions, PreparedAppend};
use kraftlog_log::producer_state::Origin;
use kraftlog_log::Error;

use super::{DataService, ServiceShared};
use crate::core::NO_LEADER;
use crate::error_code;
use crate::exchange::{Answered, Outcome, Output, Peer, RequestId};
use crate::partition::{AckToken, AppendError, Appended, Partition, PartitionKey};
use crate::wire::produce::{self, PartitionResponse};
use crate::wire::{NotPlain, Parsed, Topic};

mod together;

pub(super) use together::ProduceRun;

/// A larger compressed batch holds the thread with its check: Python gives it to another one.
const COMPRESSED_BYTES_END: usize = 256 * 1024;
/// Bytes of all batches of a request that are checked on the thread.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Bytes of all compressed batches of a request that are checked on the thread.
const COMPRESSED_BYTES_MAX: usize = 1 << 20;

/// Bytes of records of a request, uncompressed, that the thread checks: about 20 ms. 64 KiB of gzip hold 64 MiB.
const UNCOMPRESSED_BYTES_MAX: usize = 8 << 20;

/// A partition of a request that is plain so far.
#[derive(Debug)]
pub(super) struct PlannedAppend {
    partition: Arc<Partition>,
    /// Where its batch lies in the frame.
    records: Range<usize>,
    /// It names another topic than the entry before.
    begins_topic: bool,
}

/// What became of one partition.
#[derive(Debug)]
struct ProduceResult {
    partition: Arc<Partition>,
    begins_topic: bool,
    base_offset: i64,
    /// Exclusive; what has to be committed.
    end_offset: i64,
    log_append_time_ms: i64,
    log_start_offset: i64,
    /// Its acknowledgement is still to come.
    is_waiting: bool,
    failure: Option<Box<Failure>>,
}

#[derive(Debug, Default)]
struct Failure {
    error_code: i16,
    message: Option<String>,
    record_errors: Vec<(i32, String)>,
}

impl ProduceResult {
    fn appended(planned: &PlannedAppend, appended: &Appended, acks: i16) -> Self {
        let info = &appended.info;
        Self {
            partition: Arc::clone(&planned.partition),
            begins_topic: planned.begins_topic,
            base_offset: info.first_offset,
            end_offset: info.last_offset + 1,
            log_append_time_ms: info.log_append_time_ms,
            log_start_offset: info.log_start_offset,
            is_waiting: acks == -1 && !appended.is_committed,
            failure: None,
        }
    }

    fn failed(planned: &PlannedAppend, error: AppendError) -> Self {
        let failure = failure_of(error);
        let names_records =
            failure.error_code == error_code::INVALID_TIMESTAMP || !failure.record_errors.is_empty();
        Self {
            partition: Arc::clone(&planned.partition),
            begins_topic: planned.begins_topic,
            base_offset: -1,
            end_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: if names_records { planned.partition.log().log_start_offset() } else { -1 },
            is_waiting: false,
            failure: Some(Box::new(failure)),
        }
    }

    /// The records are in the log and may be committed later: their offset stays in the answer.
    fn fail(&mut self, error_code: i16) {
        self.failure = Some(Box::new(Failure { error_code, ..Failure::default() }));
    }

    /// Id and epoch of the leader, if the client asked the wrong broker and another one leads.
    fn current_leader(&self, version: i16) -> Option<(i32, i32)> {
        let failure = self.failure.as_deref()?;
        let (leader_epoch, leader_id) = self.partition.role();
        let is_named = version >= produce::NAMES_LEADERS_FROM
            && failure.error_code == error_code::NOT_LEADER_OR_FOLLOWER
            && leader_id != NO_LEADER;
        is_named.then_some((leader_id, leader_epoch))
    }

    fn topic(&self, version: i16) -> Topic<'_> {
        if produce::has_topic_ids(version) {
            Topic::Id(&self.partition.key().topic_id)
        } else {
            Topic::Name(self.partition.topic())
        }
    }
}

fn failure_of(error: AppendError) -> Failure {
    let error_code = error.error_code();
    let (message, record_errors) = match error {
        AppendError::Refused(_) => (None, Vec::new()),
        AppendError::Log(Error::Rejected { reason, record_errors, .. }) => (Some(reason), record_errors),
        // As Python writes an OSError that has a number.
        AppendError::Log(error @ Error::Io { .. }) => (Some(os_error_text(&error)), Vec::new()),
        AppendError::Log(error @ (Error::Corrupt { .. } | Error::Poisoned { .. })) => {
            (Some(error.to_string()), Vec::new())
        }
        AppendError::Log(_) => (None, Vec::new()),
    };
    Failure { error_code, message, record_errors }
}

fn os_error_text(error: &Error) -> String {
    match error {
        Error::Io { source, .. } if source.kind() != std::io::ErrorKind::NotFound => {
            match source.raw_os_error() {
                Some(errno) => format!("[Errno {errno}] {error}"),
                None => error.to_string(),
            }
        }
        _ => error.to_string(),
    }
}

/// A request that waits for acknowledgements.
#[derive(Debug)]
pub(super) struct ProduceWait {
    pub(super) request: RequestId,
    listener: u16,
    correlation_id: i32,
    version: i16,
    results: Vec<ProduceResult>,
    waiting_count: usize,
}

impl ProduceWait {
    /// A partition's acknowledgement; true when it was the last.
    pub(super) fn acknowledged(&mut self, position: u32, error_code: i16) -> bool {
        if let Some(result) = self.results.get_mut(position as usize).filter(|result| result.is_waiting) {
            result.is_waiting = false;
            if error_code != error_code::NONE {
                result.fail(error_code);
            }
            self.waiting_count -= 1;
        }
        self.waiting_count == 0
    }

    /// The client's time is over: what is not committed gets REQUEST_TIMED_OUT.
    pub(super) fn time_out(&mut self) {
        for result in self.results.iter_mut().filter(|result| result.is_waiting) {
            if result.partition.high_watermark() < result.end_offset {
                result.fail(error_code::REQUEST_TIMED_OUT);
            }
        }
    }

    pub(super) fn into_answered(self, shared: &ServiceShared) -> Answered {
        let outputs = answer(shared, self.listener, self.correlation_id, self.version, &self.results);
        Answered { request: self.request, outcome: Outcome::Answer(outputs) }
    }
}

/// Whether a batch can be appended on the thread: one whole batch of magic 2 without marks of a transaction.
fn is_plain_batch(records: &[u8]) -> bool {
    let Some(header) = records.first_chunk::<HEADER_SIZE>().map(BatchHeader::new) else { return false };
    header.magic() == MAGIC
        && header.batch_length() >= 0
        && header.size_bytes() == records.len()
        && header.attributes() & attributes::CONTROL == 0
        && (!is_compressed(records) || records.len() < COMPRESSED_BYTES_END)
}

/// Producer id and epoch of a batch that belongs to a transaction.
fn transaction_of(records: &[u8]) -> Option<(i64, i16)> {
    let header = records.first_chunk::<HEADER_SIZE>().map(BatchHeader::new)?;
    header.is_transactional().then(|| (header.producer_id(), header.producer_epoch()))
}

fn is_compressed(records: &[u8]) -> bool {
    let header = records.first_chunk::<HEADER_SIZE>().map(BatchHeader::new);
    header.is_some_and(|header| header.attributes() & attributes::COMPRESSION_MASK != 0)
}

impl DataService {
    pub(super) fn produce(&mut self, request: RequestId, peer: &Peer, frame: &[u8], now: Instant) -> Outcome {
        let mut planned = std::mem::take(&mut self.planned);
        let outcome = match self.plan(peer, frame, &mut planned) {
            Ok(parsed) => self.append_planned(request, peer.listener, frame, &planned, parsed, now),
            Err(_) => None,
        };
        planned.clear();
        self.planned = planned;
        outcome.unwrap_or(Outcome::HandOver)
    }

    /// Find every partition of a request; nothing is appended.
    fn plan(&self, peer: &Peer, frame: &[u8], planned: &mut Vec<PlannedAppend>) -> Parsed<Parameters> {
        let partitions = self.shared.partitions();
        let (mut batch_bytes, mut compressed_bytes) = (0, 0);
        let mut topic_before = None;
        let mut topic_count = 0;
        let mut transaction = None;
        let (header, request) = produce::parse(frame, |topic, index, records| {
            let partition = match topic {
                Topic::Name(name) => partitions.get_by_name(name, index),
                Topic::Id(topic_id) => partitions.get(&PartitionKey { topic_id: *topic_id, index }),
            };
            let partition = partition.ok_or(NotPlain::Refused)?;
            let is_plain = partition.is_published() && partition.is_leader() && !partition.recompresses();
            let range = records.unwrap_or_default();
            let batch = frame.get(range.clone()).unwrap_or_default();
            if !is_plain || !is_plain_batch(batch) {
                return Err(NotPlain::Refused);
            }
            if let Some((producer_id, epoch)) = transaction_of(batch) {
                // Only the first batch on a partition needs an answer of the transaction's coordinator.
                let is_same = *transaction.get_or_insert((producer_id, epoch)) == (producer_id, epoch);
                if !is_same || !partition.log().has_ongoing_transaction(producer_id, epoch) {
                    return Err(NotPlain::Refused);
                }
            }
            batch_bytes += batch.len();
            compressed_bytes += if is_compressed(batch) { batch.len() } else { 0 };
            if batch_bytes > BATCH_BYTES_MAX || compressed_bytes > COMPRESSED_BYTES_MAX {
                return Err(NotPlain::Refused);
            }
            let begins_topic = topic_before.replace(topic) != Some(topic);
            topic_count += usize::from(begins_topic);
            planned.push(PlannedAppend { partition, records: range, begins_topic });
            Ok(())
        })?;
        if request.transactional_id.is_none() && transaction.is_some() || !matches!(request.acks, -1..=1) {
            return Err(NotPlain::Refused);
        }
        if topic_count > 1 && names_a_topic_again(planned) {
            return Err(NotPlain::Refused);
        }
        if let Some(grants) = self.shared.grants() {
            // As in Kafka, only records of a transaction need its id.
            let transactional_id = request.transactional_id.filter(|_| transaction.is_some());
            let topics = planned.iter().filter(|append| append.begins_topic);
            let topic_ids = topics.map(|append| &append.partition.key().topic_id);
            if !grants.may_write(peer.into(), topic_ids, transactional_id) {
                return Err(NotPlain::Refused);
            }
        }
        Ok(Parameters {
            correlation_id: header.correlation_id,
            version: header.api_version,
            acks: request.acks,
            timeout_ms: request.timeout_ms,
            is_compressed: compressed_bytes > 0,
        })
    }

    fn append_planned(
        &mut self,
        request: RequestId,
        listener: u16,
        frame: &[u8],
        planned: &[PlannedAppend],
        parameters: Parameters,
        now: Instant,
    ) -> Option<Outcome> {
        let Parameters { acks, is_compressed, .. } = parameters;
        let options = self.append_options();
        let checked = if is_compressed { check(frame, planned, acks, options)? } else { Vec::new() };
        let id = self.pending.reserve();
        let mut checked = checked.into_iter();
        let mut results = Vec::with_capacity(planned.len());
        for (position, append) in (0..).zip(planned) {
            let batch = frame.get(append.records.clone()).unwrap_or_default();
            let ack = (acks == -1).then_some((&self.listener, AckToken { id, position }));
            let prepared =
                checked.next().unwrap_or_else(|| append.partition.prepare_append(batch, acks, options));
            match prepared.and_then(|prepared| append.partition.append_prepared(prepared, acks, ack)) {
                Ok(appended) => {
                    if appended.needs_flush {
                        self.flush_later(&append.partition);
                    }
                    results.push(ProduceResult::appended(append, &appended, acks));
                }
                Err(error) => results.push(ProduceResult::failed(append, error)),
            }
        }
        Some(self.outcome(request, id, listener, &parameters, results, now))
    }

    fn append_options(&self) -> AppendOptions {
        let now_ms = self.shared.now_ms();
        // A marker may have ended a transaction since it was found open.
        AppendOptions { requires_verification: true, ..AppendOptions::new(-1, now_ms, Origin::Client) }
    }

    /// What becomes of a request after its appends. It waits under the reserved number `id`, if it has to.
    fn outcome(
        &mut self,
        request: RequestId,
        id: u64,
        listener: u16,
        parameters: &Parameters,
        results: Vec<ProduceResult>,
        now: Instant,
    ) -> Outcome {
        let &Parameters { correlation_id, version, acks, timeout_ms, .. } = parameters;
        let waiting_count = results.iter().filter(|result| result.is_waiting).count();
        if waiting_count == 0 {
            self.pending.give_back(id);
            return if acks == 0 {
                reason_to_close(&results).map_or(Outcome::NoAnswer, Outcome::Close)
            } else {
                Outcome::Answer(answer(&self.shared, listener, correlation_id, version, &results))
            };
        }
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let wait = ProduceWait { request, listener, correlation_id, version, results, waiting_count };
        self.pending.fill(id, super::Pending::Produce(wait), now.checked_add(timeout));
        Outcome::Pending
    }
}

/// Check every batch of a request before any is appended; None if Python has to give them to another thread.
fn check<'a>(
    frame: &'a [u8],
    planned: &[PlannedAppend],
    acks: i16,
    options: AppendOptions,
) -> Option<Vec<Result<PreparedAppend<'a>, AppendError>>> {
    let mut uncompressed_bytes_max = UNCOMPRESSED_BYTES_MAX;
    let mut checked = Vec::with_capacity(planned.len());
    for append in planned {
        let batch = frame.get(append.records.clone()).unwrap_or_default();
        let options = AppendOptions { uncompressed_bytes_max, ..options };
        let prepared = append.partition.prepare_append(batch, acks, options);
        match &prepared {
            Ok(prepared) => {
                uncompressed_bytes_max = uncompressed_bytes_max.saturating_sub(prepared.uncompressed_bytes());
            }
            Err(AppendError::Log(Error::OverBudget { .. })) => return None,
            Err(_) => {}
        }
        checked.push(prepared);
    }
    Some(checked)
}

/// The fields of a request that its appends and its answer need.
#[derive(Clone, Copy, Debug)]
struct Parameters {
    correlation_id: i32,
    version: i16,
    acks: i16,
    timeout_ms: i32,
    /// At least one batch is.
    is_compressed: bool,
}

/// Whether entries of one topic have others between them: an answer has each topic once.
fn names_a_topic_again(planned: &[PlannedAppend]) -> bool {
    let mut ids: Vec<_> = planned
        .iter()
        .filter(|append| append.begins_topic)
        .map(|append| append.partition.key().topic_id)
        .collect();
    ids.sort_unstable();
    ids.windows(2).any(|pair| pair.first() == pair.last())
}

/// acks=0 has no other way to report an error.
fn reason_to_close(results: &[ProduceResult]) -> Option<String> {
    let mut failed =
        results.iter().filter_map(|result| result.failure.as_ref().map(|failure| (result, failure)));
    let (result, failure) = failed.next()?;
    let count = 1 + failed.count();
    let (topic, index) = (result.partition.topic(), result.partition.key().index);
    let (code, message) = (failure.error_code, failure.message.as_deref().unwrap_or_default());
    Some(format!(
        "Produce with acks=0 failed for {count} partition(s); {topic}-{index}: error {code} {message}"
    ))
}

fn answer(
    shared: &ServiceShared,
    listener: u16,
    correlation_id: i32,
    version: i16,
    results: &[ProduceResult],
) -> Vec<Output> {
    let mut leaders = Vec::new();
    let topic_count = results.iter().filter(|result| result.begins_topic).count();
    let mut writer = produce::begin_response(correlation_id, topic_count);
    for topic in results.chunk_by(|_, next| !next.begins_topic) {
        let Some(first) = topic.first() else { continue };
        produce::begin_topic(&mut writer, first.topic(version), topic.len());
        for result in topic {
            let failure = result.failure.as_deref();
            let current_leader = result.current_leader(version);
            leaders.extend(current_leader.map(|(leader_id, _)| leader_id));
            let partition = PartitionResponse {
                index: result.partition.key().index,
                error_code: failure.map_or(error_code::NONE, |failure| failure.error_code),
                base_offset: result.base_offset,
                log_append_time_ms: result.log_append_time_ms,
                log_start_offset: result.log_start_offset,
                record_errors: failure.map_or(&[], |failure| failure.record_errors.as_slice()),
                error_message: failure.and_then(|failure| failure.message.as_deref()),
                current_leader,
            };
            produce::write_partition(&mut writer, &partition);
        }
        produce::end_topic(&mut writer);
    }
    produce::end_response(&mut writer, &shared.addresses(listener, leaders));
    writer.finish()
}
