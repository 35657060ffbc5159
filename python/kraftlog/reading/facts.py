"""What a log directory tells of itself, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

__all__ = [
    "AbortedTransaction",
    "Checkpoints",
    "IndexFile",
    "LeaderEpoch",
    "MarkedDirectory",
    "OffsetAndTimestamp",
    "Producer",
    "RemoteSegment",
    "ScanReport",
    "Segment",
    "SkippedRange",
    "Topic",
]

from kraftlog.types import TopicPartition, Uuid

IndexKind: TypeAlias = Literal["index", "timeindex", "txnindex", "snapshot"]


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file beside a segment: ``index``, ``timeindex``, ``txnindex``, or the producer ``snapshot`` at its start."""

    kind: IndexKind
    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One ``.log`` file: its records have offsets from ``base_offset`` up to the next segment's.

    ``modified_ms`` is when the file was last written to, in milliseconds since 1970.
    """

    base_offset: int
    path: Path
    size_bytes: int
    modified_ms: int = 0
    indexes: tuple[IndexFile, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment that is an object elsewhere.

    ``end_offset`` is set where another object has the offsets from there on; None for all that the segment has.
    """

    base_offset: int
    url: str
    size_bytes: int
    end_offset: int | None = None


class LeaderEpoch(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class Producer:
    """What a partition knows of an idempotent or transactional producer.

    Args:
        producer_id: The producer.
        producer_epoch: Its epoch, -1 when nothing is known.
        last_sequence: Sequence of its last record, -1 after a new epoch.
        last_offset: Offset of its last record, -1 after a new epoch.
        last_timestamp: Largest timestamp of its last batch, or time of its last marker (ms).
        coordinator_epoch: Epoch of the coordinator that wrote its last marker, -1 for none.
        current_transaction_start_offset: First offset of its open transaction; None when there is none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction that read_committed leaves out: both offsets are inclusive, the last is that of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """A record by its offset, and its timestamp (ms)."""

    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of a log directory: the partitions of it that are there, which need not be all.

    ``is_internal`` marks Kafka's own topics, ``__cluster_metadata`` among them. ``topic_id`` comes from
    ``partition.metadata``.
    """

    name: str
    topic_id: Uuid | None
    partitions: tuple[int, ...]
    size_bytes: int
    is_internal: bool


@dataclass(frozen=True, slots=True)
class MarkedDirectory:
    """The directory of a partition that Kafka is deleting, moving here from another disk, or has found astray.

    The topic may be cut short where the name with its mark was too long for the file system.
    """

    path: Path
    topic: str
    partition: int
    mark: Literal["delete", "future", "stray"]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The broker's checkpoint files: an offset for each partition that they name.

    Args:
        recovery_points: Everything before was flushed (``recovery-point-offset-checkpoint``).
        high_watermarks: ``replication-offset-checkpoint``, which Kafka writes every 5 s and when it stops.
        log_start_offsets: Only of partitions whose records were deleted (``log-start-offset-checkpoint``).
        cleaner_offsets: Compacted up to here (``cleaner-offset-checkpoint``).
    """

    recovery_points: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    log_start_offsets: dict[TopicPartition, int]
    cleaner_offsets: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Damaged bytes that a scan left out, from ``position`` up to, without, ``end_position``.

    ``base_offset`` is what the damaged batch says of itself, -1 when it cannot be read.
    """

    path: str
    position: int
    end_position: int
    base_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class ScanReport:
    """Counters of one pass of a scan.

    Args:
        bytes_read: Bytes of ``.log`` files; what is mapped counts when it is touched.
        segments: Segments opened; more than there are files where several threads share one.
        batches: Record batches that rows were taken from, by their records or by their header alone.
        batches_skipped: Record batches stepped over after a look at their header.
        rows: Rows given.
        skipped_count: Damaged ranges left out.
        skipped: The first 10 000 of them.
    """

    bytes_read: int
    segments: int
    batches: int
    batches_skipped: int
    rows: int
    skipped_count: int
    skipped: tuple[SkippedRange, ...]
