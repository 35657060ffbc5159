//! Reads what a fetch asks for of one partition.
use kraftlog_log::log::FileSlice;
use kraftlog_log::segment::AbortedTransaction;
use kraftlog_log::Error;

use crate::error_code;
use crate::partition::Partition;
use crate::wire::fetch::{FetchPartition, FetchRequest, PartitionData};

/// `isolation_level` of a consumer that sees no open or aborted transaction.
const READ_COMMITTED: i8 = 1;

/// The numbers of a request that hold for all its partitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchLimits {
    pub(super) is_read_committed: bool,
    pub(super) max_bytes: i64,
    pub(super) max_wait_ms: i32,
    pub(super) min_bytes: i64,
}

impl FetchLimits {
    pub(super) fn new(request: &FetchRequest, fetch_max_bytes: i32) -> Self {
        Self {
            is_read_committed: request.isolation_level == READ_COMMITTED,
            max_bytes: i64::from(request.max_bytes.min(fetch_max_bytes)),
            max_wait_ms: request.max_wait_ms,
            min_bytes: i64::from(request.min_bytes.min(fetch_max_bytes)),
        }
    }
}

/// What one partition answers.
#[derive(Debug)]
pub(super) struct PartitionRead {
    /// Its place in the session.
    pub(super) place: u32,
    /// Of the session's partition that was read.
    pub(super) number: u64,
    pub(super) error_code: i16,
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
    pub(super) log_start_offset: i64,
    pub(super) aborted_transactions: Option<Vec<AbortedTransaction>>,
    pub(super) records: Option<FileSlice>,
    pub(super) size_bytes: i64,
    /// There are records behind the offset, read or not: the next request looks again although nothing moves.
    pub(super) is_behind: bool,
    /// Id and epoch of the leader that the client should ask instead.
    pub(super) current_leader: Option<(i32, i32)>,
    /// Epoch and exclusive end offset that a follower has to truncate to.
    pub(super) diverging_epoch: Option<(i32, i64)>,
    /// The records go to a replica that a reassignment adds.
    pub(super) is_adding: bool,
}

/// Python has to answer for the partition: it names the leader, or knows why the partition is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotServed;

/// Whether Python has to answer for a partition: it is not here to be read, or not led here in the client's epoch.
pub(super) fn is_served(partition: &Partition, wanted: &FetchPartition) -> bool {
    partition.is_readable() && wanted.last_fetched_epoch < 0 && {
        let refusal = partition.check_leader_epoch(wanted.current_leader_epoch, true);
        refusal != error_code::NOT_LEADER_OR_FOLLOWER && refusal != error_code::FENCED_LEADER_EPOCH
    }
}

impl PartitionRead {
    /// An answer that is nothing but an error.
    pub(super) fn failed(place: u32, error_code: i16) -> Self {
        Self {
            place,
            number: 0,
            error_code,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            aborted_transactions: None,
            records: None,
            size_bytes: 0,
            is_behind: true,
            current_leader: None,
            diverging_epoch: None,
            is_adding: false,
        }
    }

    /// Read one partition. `remaining_bytes` is what the others leave of the limit; with `is_first` the first batch is
    /// read whatever its size.
    pub(super) fn of(
        place: u32,
        partition: &Partition,
        wanted: &FetchPartition,
        limits: &FetchLimits,
        remaining_bytes: i64,
        is_first: bool,
    ) -> Result<Self, NotServed> {
        if !is_served(partition, wanted) {
            return Err(NotServed);
        }
        let refusal = partition.check_leader_epoch(wanted.current_leader_epoch, true);
        if refusal != error_code::NONE {
            return Ok(Self::failed(place, refusal));
        }
        let read = Self::read(place, partition, wanted, limits, remaining_bytes, is_first);
        Ok(read.unwrap_or_else(|error| Self::failed(place, error_code_of(&error))))
    }

    fn read(
        place: u32,
        partition: &Partition,
        wanted: &FetchPartition,
        limits: &FetchLimits,
        remaining_bytes: i64,
        is_first: bool,
    ) -> Result<Self, Error> {
        let log = partition.log();
        let high_watermark = partition.high_watermark();
        let last_stable_offset = partition.last_stable_offset().min(high_watermark);
        let log_start_offset = log.log_start_offset();
        let offset = wanted.fetch_offset;
        if !(log_start_offset..=log.log_end_offset()).contains(&offset) {
            return Ok(Self::failed(place, error_code::OFFSET_OUT_OF_RANGE));
        }
        let end_offset = if limits.is_read_committed { last_stable_offset } else { high_watermark };
        let max_bytes = i64::from(wanted.max_bytes).min(remaining_bytes);
        let is_behind = offset < end_offset;
        let mut records = None;
        if is_behind && (max_bytes > 0 || is_first) {
            let slice = log.read(offset, u64::try_from(max_bytes).unwrap_or(0), end_offset, is_first)?;
            records = (slice.size_bytes() > 0).then_some(slice);
        }
        let aborted_transactions = match (limits.is_read_committed, &records) {
            (false, _) => None,
            (true, None) => Some(Vec::new()),
            (true, Some(_)) => Some(log.aborted_transactions(offset, end_offset)?),
        };
        let size_bytes = records.as_ref().map_or(0, FileSlice::size_bytes);
        Ok(Self {
            place,
            error_code: error_code::NONE,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted_transactions,
            records,
            size_bytes: i64::try_from(size_bytes).unwrap_or(i64::MAX),
            is_behind,
            ..Self::failed(place, error_code::NONE)
        })
    }

    /// Records that were read, perhaps none.
    pub(super) fn take_records(&mut self, slice: FileSlice) {
        self.size_bytes = i64::try_from(slice.size_bytes()).unwrap_or(i64::MAX);
        self.records = (self.size_bytes > 0).then_some(slice);
    }

    /// What is sent of it.
    pub(super) fn data(&mut self, index: i32) -> PartitionData<'_> {
        PartitionData {
            index,
            error_code: self.error_code,
            high_watermark: self.high_watermark,
            last_stable_offset: self.last_stable_offset,
            log_start_offset: self.log_start_offset,
            aborted_transactions: self.aborted_transactions.as_deref(),
            records: self.records.take(),
            diverging_epoch: self.diverging_epoch,
            current_leader: self.current_leader,
        }
    }
}

pub(super) fn error_code_of(error: &Error) -> i16 {
    match error {
        Error::OffsetOutOfRange { .. } => error_code::OFFSET_OUT_OF_RANGE,
        Error::Corrupt { .. } => error_code::CORRUPT_MESSAGE,
        _ => error_code::KAFKA_STORAGE_ERROR,
    }
}
