"""What a leader answers to the fetch of another replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlog.errors import CorruptRecordError, ErrorCode, LogError, OffsetOutOfRangeError
from kraftlog.runtime.replica.fetch_reader import FetchLimits, PartitionRead, PartitionSource, missing_partition_error

if TYPE_CHECKING:
    from kraftlog.partition.replication_quota import ReplicationQuota
    from kraftlog.runtime.replica.fetch_session import SessionPartition
    from kraftlog.runtime.replica.isr_changes import Proposal
    from kraftlog.runtime.replica.partition import Partition

__all__ = ["FollowerReader"]


@dataclass(slots=True, eq=False)
class FollowerReader:
    """Reads for one request of one follower.

    Args:
        replicas: Where the partitions are found.
        limits: Of the request.
        replica_id: Who fetches.
        broker_epoch: Under which registration, -1 where the request does not say.
        now_ms: When the request came.
        propose: Takes a proposal for the controller: the follower is to join the in-sync set.
        quota: Of throttled replicas that this broker serves.
        node_id: This broker.
        clock_ms: Wall clock: a fetch may wait, and answers count when they go out.
        replicated_out: Takes the partition, the follower and the bytes of each answer with records.
    """

    replicas: PartitionSource
    limits: FetchLimits
    replica_id: int
    broker_epoch: int
    now_ms: int
    propose: Callable[[Partition, Proposal], None]
    quota: ReplicationQuota
    node_id: int
    clock_ms: Callable[[], int]
    replicated_out: Callable[[Partition, int, int], None] = lambda _partition, _broker_id, _size_bytes: None

    def read_all(self, wanted: Iterable[SessionPartition]) -> Iterator[PartitionRead]:
        """Record and answer every partition in order; each when the iterator is asked for it."""
        remaining_bytes = self.limits.max_bytes
        is_first = True
        for asked in wanted:
            read = self.read(asked, remaining_bytes, is_first=is_first, is_arrival=True)
            yield read
            if read.size_bytes:
                is_first = False
                remaining_bytes = max(0, remaining_bytes - read.size_bytes)

    def read(
        self, wanted: SessionPartition, remaining_bytes: int, *, is_first: bool, is_arrival: bool = False
    ) -> PartitionRead:
        """One partition, up to the end of the log. Only the arrival of a request records where the follower is."""
        read = PartitionRead(wanted)
        uses_topic_ids = self.limits.uses_topic_ids
        if uses_topic_ids:
            partition = self.replicas.get(wanted.topic_id, wanted.index)
        else:
            partition = self.replicas.get_by_name(wanted.topic, wanted.index)
        if partition is None:
            read.error_code = missing_partition_error(self.replicas, wanted, uses_topic_ids=uses_topic_ids)
            return read
        read.partition = partition
        error_code, diverging_epoch, high_watermark, log_start, log_end, proposal = partition.replica.follower_fetch(
            replica_id=self.replica_id,
            broker_epoch=self.broker_epoch,
            current_leader_epoch=wanted.current_leader_epoch,
            fetch_offset=wanted.fetch_offset,
            last_fetched_epoch=wanted.last_fetched_epoch,
            log_start_offset=wanted.log_start_offset,
            now_ms=self.now_ms,
            is_arrival=is_arrival,
        )
        if proposal is not None:
            self.propose(partition, proposal)
        read.error_code = error_code
        if error_code:
            return read
        read.high_watermark = high_watermark
        read.last_stable_offset = min(partition.last_stable_offset, high_watermark)
        read.log_start_offset = log_start
        if diverging_epoch is not None:
            read.diverging_epoch = diverging_epoch
            return read
        if self._is_held(partition):
            return read
        max_bytes = min(wanted.max_bytes, remaining_bytes)
        if wanted.fetch_offset < log_end and (max_bytes > 0 or is_first):
            self._read_records(read, partition, max_bytes, log_end, is_first=is_first)
        return read

    def _is_held(self, partition: Partition) -> bool:
        """Whether a throttled replica that is not in sync has to wait; its position is recorded (RFET-75)."""
        if not partition.config.leader_throttle.has(partition.index, self.node_id):
            return False
        return self.quota.is_exceeded(self.clock_ms()) and self.replica_id not in partition.replica.isr

    def count(self, reads: Iterable[PartitionRead]) -> None:
        """What replicas are answered, and what throttled ones are, in and out of the in-sync set (RFET-76)."""
        reads = list(reads)
        for read in reads:
            if read.partition is not None and read.size_bytes:
                self.replicated_out(read.partition, self.replica_id, read.size_bytes)
        size_bytes = sum(
            read.size_bytes
            for read in reads
            if read.partition is not None
            and read.size_bytes
            and read.partition.config.leader_throttle.has(read.partition.index, self.node_id)
        )
        if size_bytes:
            self.quota.record(size_bytes, self.clock_ms())

    @staticmethod
    def _read_records(
        read: PartitionRead, partition: Partition, max_bytes: int, end_offset: int, *, is_first: bool
    ) -> None:
        try:
            records = partition.log.read(
                read.wanted.fetch_offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=is_first
            )
            size_bytes = records.size_bytes
            if size_bytes:
                read.records = records
                read.size_bytes = size_bytes
            return
        except OffsetOutOfRangeError:
            read.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        except CorruptRecordError:
            read.error_code = ErrorCode.CORRUPT_MESSAGE
        except (LogError, OSError):
            read.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        read.high_watermark = read.last_stable_offset = read.log_start_offset = -1
