"""Reads what a fetch asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from kraftlog.errors import CorruptRecordError, ErrorCode, LogError, OffsetOutOfRangeError
from kraftlog.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraftlog.runtime.replica.fetch_session import SessionPartition
    from kraftlog.runtime.replica.partition import Partition

__all__ = [
    "READ_COMMITTED",
    "FetchLimits",
    "PartitionRead",
    "PartitionSource",
    "is_enough",
    "missing_partition_error",
    "read_all",
    "read_partition",
]

READ_COMMITTED = 1


class PartitionSource(Protocol):
    """Finds the partitions of this node."""

    def get(self, topic_id: Uuid, index: int) -> Partition | None:
        """The partition with this topic id, if it is on this node."""
        ...

    def get_by_name(self, topic: str, index: int) -> Partition | None:
        """The partition with this topic name, if it is on this node."""
        ...

    def missing_error(self, topic: str, index: int) -> int:
        """The error code for a client when ``get_by_name`` found nothing."""
        ...

    def missing_error_by_id(self, topic_id: Uuid, index: int) -> int:
        """The error code for a client when ``get`` found nothing."""
        ...

    def is_inconsistent(self, topic_id: Uuid, index: int) -> bool:
        """Whether the log with the name of this topic is that of another topic id."""
        ...


class FetchLimits:
    """What holds for all partitions of one fetch request.

    Attributes:
        needs_leader: Whether only a leader may answer: before version 11, where a consumer cannot be sent elsewhere.
        preferred_replica: Gives the follower that the consumer should read from, None for this replica (KIP-392).
    """

    __slots__ = (
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "needs_leader",
        "preferred_replica",
        "uses_topic_ids",
    )

    def __init__(
        self,
        *,
        isolation_level: int,
        max_bytes: int,
        max_wait_ms: int,
        min_bytes: int,
        uses_topic_ids: bool,
        needs_leader: bool = True,
        preferred_replica: Callable[[Partition, int], int | None] | None = None,
    ) -> None:
        self.isolation_level = isolation_level
        self.max_bytes = max_bytes
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.uses_topic_ids = uses_topic_ids
        self.needs_leader = needs_leader
        self.preferred_replica = preferred_replica


class PartitionRead:
    """What one partition answers.

    Attributes:
        records: A file slice, or None when there is nothing to send.
        diverging_epoch: (epoch, exclusive end offset) to truncate to, or None.
        aborted_transactions: (producer id, first offset) pairs, or None unless read_committed.
        preferred_replica: The follower that has to be asked instead; -1 for none.
    """

    __slots__ = (
        "aborted_transactions",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "preferred_replica",
        "records",
        "size_bytes",
        "wanted",
    )

    def __init__(self, wanted: SessionPartition) -> None:
        self.wanted = wanted
        self.partition: Partition | None = None
        self.error_code: int = 0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.records: Any = None
        self.size_bytes = 0
        self.diverging_epoch: tuple[int, int] | None = None
        self.aborted_transactions: list[tuple[int, int]] | None = None
        self.preferred_replica = -1


def read_all(
    replicas: PartitionSource, wanted: Iterable[SessionPartition], limits: FetchLimits
) -> Iterator[PartitionRead]:
    """Read every partition in order until the byte limit is used up; each when the iterator is asked for it.

    The first batch found is returned even when it alone is larger than the limits, so that a client never gets stuck.
    """
    remaining_bytes = limits.max_bytes
    is_first = True
    for partition_request in wanted:
        read = read_partition(replicas, partition_request, limits, remaining_bytes, is_first=is_first)
        yield read
        if read.size_bytes:
            is_first = False
            remaining_bytes = max(0, remaining_bytes - read.size_bytes)


def read_partition(
    replicas: PartitionSource, wanted: SessionPartition, limits: FetchLimits, remaining_bytes: int, *, is_first: bool
) -> PartitionRead:
    """Read one partition.

    Args:
        replicas: Where the partition is found.
        wanted: What to read.
        limits: Of the request.
        remaining_bytes: What the other partitions leave of the request's limit.
        is_first: Whether no other partition has records: then the first batch is read whatever its size.
    """
    read = PartitionRead(wanted)
    if limits.uses_topic_ids:
        partition = replicas.get(wanted.topic_id, wanted.index)
    else:
        partition = replicas.get_by_name(wanted.topic, wanted.index)
    if partition is None:
        read.error_code = missing_partition_error(replicas, wanted, uses_topic_ids=limits.uses_topic_ids)
        return read
    read.partition = partition
    replica = partition.replica
    read.error_code = replica.check_leader_epoch(wanted.current_leader_epoch, needs_leader=limits.needs_leader)
    if read.error_code:
        return read
    log = partition.log
    fetch_offset = wanted.fetch_offset
    high_watermark = replica.high_watermark
    if limits.preferred_replica is not None and partition.is_leader:
        preferred = limits.preferred_replica(partition, fetch_offset)
        if preferred is not None:
            read.preferred_replica = preferred
            read.high_watermark = high_watermark
            read.last_stable_offset = min(partition.last_stable_offset, high_watermark)
            read.log_start_offset = log.log_start_offset
            return read
    try:
        log_start_offset = log.log_start_offset
        if wanted.last_fetched_epoch >= 0 and _diverges(read, partition, log_start_offset):
            return read
        if not log_start_offset <= fetch_offset <= replica.log_end_offset:
            read.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return read
        read.high_watermark = high_watermark
        read.log_start_offset = log_start_offset
        # Both of one moment, although another thread may move the high watermark.
        last_stable = min(partition.last_stable_offset, high_watermark)
        read.last_stable_offset = last_stable
        is_read_committed = limits.isolation_level == READ_COMMITTED
        end_offset = last_stable if is_read_committed else high_watermark
        max_bytes = min(wanted.max_bytes, remaining_bytes)
        if fetch_offset < end_offset and (max_bytes > 0 or is_first):
            records = log.read(fetch_offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=is_first)
            size_bytes = records.size_bytes
            if size_bytes:
                read.records = records
                read.size_bytes = size_bytes
        if is_read_committed:
            read.aborted_transactions = (
                [
                    (aborted_transaction[0], aborted_transaction[1])
                    for aborted_transaction in log.aborted_transactions(fetch_offset, end_offset)
                ]
                if read.records
                else []
            )
    except OffsetOutOfRangeError:
        read.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    except CorruptRecordError:
        read.error_code = ErrorCode.CORRUPT_MESSAGE
    except (LogError, OSError):
        read.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    if read.error_code:
        read.high_watermark = read.last_stable_offset = read.log_start_offset = -1
        read.records = None
        read.size_bytes = 0
    return read


def _diverges(read: PartitionRead, partition: Partition, log_start_offset: int) -> bool:
    """KIP-595: tell a fetcher whose last epoch ends differently here where to truncate; True ends the read."""
    wanted = read.wanted
    if wanted.fetch_offset < log_start_offset:
        read.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return True
    epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0:
        read.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return True
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        read.diverging_epoch = (epoch, end_offset)
        read.high_watermark = partition.high_watermark
        read.last_stable_offset = partition.last_stable_offset
        read.log_start_offset = log_start_offset
        return True
    return False


def missing_partition_error(replicas: PartitionSource, wanted: SessionPartition, *, uses_topic_ids: bool) -> int:
    """Why a partition is not here."""
    if uses_topic_ids:
        if replicas.is_inconsistent(wanted.topic_id, wanted.index):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return replicas.missing_error_by_id(wanted.topic_id, wanted.index)
    return replicas.missing_error(wanted.topic, wanted.index)


def is_enough(reads: list[PartitionRead], limits: FetchLimits) -> bool:
    """Whether a fetch is answered without (further) waiting."""
    size_bytes = 0
    for read in reads:
        if read.error_code or read.diverging_epoch is not None or read.preferred_replica >= 0:
            return True
        size_bytes += read.size_bytes
    return size_bytes >= limits.min_bytes
