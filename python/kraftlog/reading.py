"""Kafka log directories read as Arrow, without a broker.

    log = kraftlog.open_log("kafka-logs/orders-0")
    for batch in log.scan(start_offset=100):
        ...                                                    # each one an Arrow record batch

    polars.from_arrow(kraftlog.scan("kafka-logs", topics=["orders"]))

Everything here reads by position and takes no lock, so that it works beside a running node, Kafka's or ours. What a
running node has not yet replicated, or may still truncate, is read too.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from kraftlog._kraftlog import (
    ArrowBatch,
    ArrowStream,
    list_segments,
    log_end_offset,
    scan_stream,
)
from kraftlog.errors import OffsetOutOfRangeError

__all__ = ["ArrowBatch", "ArrowStream", "Log", "Segment", "open_log", "partition_directories", "scan"]

StrPath: TypeAlias = str | os.PathLike[str]
Timestamp: TypeAlias = int | dt.datetime
BinaryType: TypeAlias = Literal["binary", "large_binary", "binary_view"]

INTERNAL_TOPICS = frozenset({"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"})

_LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
_LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"


@dataclass(frozen=True, slots=True)
class Segment:
    """One ``.log`` file: its records have offsets from ``base_offset`` up to the next segment's."""

    base_offset: int
    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Log:
    """The directory of one partition, read only. Each property looks at the files anew.

    Args:
        path: The directory, such as ``kafka-logs/orders-0``.
        topic: Name of the topic.
        partition: Number of the partition.
    """

    path: Path
    topic: str
    partition: int

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments by rising base offset."""
        return tuple(Segment(base_offset, path, size) for base_offset, path, size in list_segments(self.path))

    @property
    def log_start_offset(self) -> int:
        """The first readable offset: of the first segment, or what a DeleteRecords request left."""
        segments = list_segments(self.path)
        first = segments[0][0] if segments else 0
        return max(first, _checkpointed_start_offset(self.path.parent, self.topic, self.partition))

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch."""
        return log_end_offset(self.path)

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """Each leader epoch with its first offset; empty without a checkpoint of them."""
        rows = _checkpoint_rows(self.path / _LEADER_EPOCH_CHECKPOINT)
        return tuple((int(epoch), int(start_offset)) for epoch, start_offset in rows)

    def scan(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        from_timestamp: Timestamp | None = None,
        to_timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        binary_type: BinaryType = "binary",
        timestamp_unit: Literal["ms", "us"] = "ms",
        topic_dictionary: bool = False,
        batch_rows: int = 16384,
        batch_bytes: int = 8 << 20,
        check_crc: bool = True,
        include_control: bool = False,
    ) -> ArrowStream:
        """The records as a stream of Arrow batches: iterate it, or hand it to an Arrow library, as often as you like.

        Args:
            start_offset: First offset, inclusive; the log start offset when None.
            end_offset: Exclusive end; all that is there when None.
            from_timestamp: Least record timestamp, inclusive: milliseconds, or a datetime with a time zone.
            to_timestamp: Records with this timestamp or a later one are left out.
            columns: Of key, value, topic, partition, offset, timestamp, timestamp_type and headers, which are given
                when None, and leader_epoch, producer_id, producer_epoch, is_transactional and is_control.
            binary_type: Arrow type of key and value; ``binary_view`` refers to the bytes instead of copying them.
            timestamp_unit: ``ms`` as Kafka has them, ``us`` for those who read nothing else.
            topic_dictionary: Give the topic as a dictionary of one value.
            batch_rows: Most rows of a batch, at least 1.
            batch_bytes: Most bytes of keys, values and headers in a batch; a larger record gets a batch of its own.
            check_crc: Compare the CRC-32C of each record batch.
            include_control: Give the records of control batches, such as transaction markers, too.

        Raises:
            OffsetOutOfRangeError: ``start_offset`` is before the log start offset.
            FileNotFoundError: The directory is gone.
            ValueError: A column that does not exist, or a bound below 1.

        Iterating raises :class:`~kraftlog.errors.CorruptRecordError` where a batch is not sound, after the rows before.
        """
        log_start_offset = self.log_start_offset
        if start_offset is not None and start_offset < log_start_offset:
            message = f"offset {start_offset} is before the log start offset {log_start_offset} of {self.path}"
            raise OffsetOutOfRangeError(message)
        first = log_start_offset if start_offset is None else start_offset
        return scan_stream(
            [(self.path, self.topic, self.partition, first, end_offset, None)],
            from_timestamp=_milliseconds(from_timestamp),
            to_timestamp=_milliseconds(to_timestamp),
            columns=columns,
            binary_type=binary_type,
            timestamp_unit=timestamp_unit,
            topic_dictionary=topic_dictionary,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            check_crc=check_crc,
            include_control=include_control,
        )


def open_log(path: StrPath) -> Log:
    """A partition's directory, Kafka's or ours, for reading.

    Args:
        path: The directory; its name ends in the partition's number, as in ``orders-0``.

    Raises:
        FileNotFoundError: There is no such directory.
        ValueError: The name is not that of a partition's directory.
    """
    directory = Path(path)
    if not directory.is_dir():
        message = f"no partition directory {directory}"
        raise FileNotFoundError(message)
    name = partition_of(directory.resolve().name)
    if name is None:
        message = f"{directory} is not named as a partition's directory, such as orders-0"
        raise ValueError(message)
    return Log(directory, *name)


def scan(
    paths: StrPath | Sequence[StrPath],
    *,
    topics: Sequence[str] | None = None,
    from_timestamp: Timestamp | None = None,
    to_timestamp: Timestamp | None = None,
    columns: Sequence[str] | None = None,
    binary_type: BinaryType = "binary",
    timestamp_unit: Literal["ms", "us"] = "ms",
    topic_dictionary: bool = False,
    batch_rows: int = 16384,
    batch_bytes: int = 8 << 20,
    check_crc: bool = True,
    include_control: bool = False,
) -> ArrowStream:
    """The records of many partitions as one stream of Arrow batches, partition after partition.

    Args:
        paths: Log directories (``log.dirs``) or directories of partitions, or a list of them.
        topics: Only these topics; all but the internal ones when None.
        from_timestamp: As in :meth:`Log.scan`, like all that follow.
        to_timestamp: Exclusive.
        columns: Which columns, in order.
        binary_type: Arrow type of key and value.
        timestamp_unit: Unit of timestamps.
        topic_dictionary: Give the topic as a dictionary; each partition's batches have their own.
        batch_rows: Most rows of a batch.
        batch_bytes: Most bytes of a batch.
        check_crc: Compare checksums.
        include_control: Give control records too.

    Raises:
        FileNotFoundError: A path does not exist, or has no partition of one of ``topics``.
    """
    sources = [
        (log.path, log.topic, log.partition, log.log_start_offset, None, None)
        for log in partition_directories(paths, topics=topics)
    ]
    return scan_stream(
        sources,
        from_timestamp=_milliseconds(from_timestamp),
        to_timestamp=_milliseconds(to_timestamp),
        columns=columns,
        binary_type=binary_type,
        timestamp_unit=timestamp_unit,
        topic_dictionary=topic_dictionary,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        check_crc=check_crc,
        include_control=include_control,
    )


def partition_directories(
    paths: StrPath | Sequence[StrPath], *, topics: Sequence[str] | None = None
) -> tuple[Log, ...]:
    """The partitions in log directories, by topic and number; a path may itself be a partition's directory.

    Raises:
        FileNotFoundError: A path does not exist, or none has a partition of one of ``topics``.
    """
    if isinstance(topics, str):
        topics = (topics,)
    found: dict[Path, Log] = {}
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        directory = Path(path)
        if not directory.is_dir():
            message = f"no directory {directory}"
            raise FileNotFoundError(message)
        found.update((log.path, log) for log in _logs_in(directory, topics))
    missing = sorted(set(topics or ()) - {log.topic for log in found.values()})
    if missing:
        message = f"no partition of topic {', '.join(missing)} in {paths}"
        raise FileNotFoundError(message)
    return tuple(sorted(found.values(), key=lambda log: (log.topic, log.partition, log.path)))


def partition_of(directory_name: str) -> tuple[str, int] | None:
    """Topic and partition in the name of a directory; None for what Kafka deletes, moves or found astray."""
    topic, dash, partition = directory_name.rpartition("-")
    if not (topic and dash and partition.isascii() and partition.isdigit()):
        return None
    return topic, int(partition)


def _logs_in(directory: Path, topics: Sequence[str] | None) -> Iterator[Log]:
    own_name = partition_of(directory.resolve().name)
    if own_name is not None and any(entry.suffix == ".log" for entry in directory.iterdir()):
        if topics is None or own_name[0] in topics:
            yield Log(directory, *own_name)
        return
    for entry in directory.iterdir():
        name = partition_of(entry.name)
        if name is None or not entry.is_dir():
            continue
        if name[0] in topics if topics is not None else name[0] not in INTERNAL_TOPICS:
            yield Log(entry, *name)


def _milliseconds(timestamp: Timestamp | None) -> int | None:
    if not isinstance(timestamp, dt.datetime):
        return timestamp
    if timestamp.tzinfo is None:
        message = "a datetime has to have a time zone"
        raise ValueError(message)
    since_epoch = timestamp - dt.datetime.fromtimestamp(0, dt.UTC)
    return since_epoch // dt.timedelta(milliseconds=1)


def _checkpoint_rows(path: Path) -> list[list[str]]:
    """The rows of one of Kafka's checkpoint files: a version line and a count line stand before them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [line.split() for line in lines[2:] if line]


def _checkpointed_start_offset(log_directory: Path, topic: str, partition: int) -> int:
    rows = _checkpoint_rows(log_directory / _LOG_START_OFFSET_CHECKPOINT)
    offsets: Mapping[tuple[str, str], str] = {(row[0], row[1]): row[2] for row in rows if len(row) == 3}
    return int(offsets.get((topic, str(partition)), 0))
