"""Which partitions there are, and from where to where they can be read."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from kraftlog._kraftlog import list_segments, log_end_offset, read_transactions, scan_stream
from kraftlog.errors import CorruptRecordError
from kraftlog.reading import Log, RemoteLog, RemotePartition, partition_directories
from kraftlog.reading.directory import read_checkpoint
from kraftlog.spark.options import SourceOptions
from kraftlog.storage.checkpoints import LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kraftlog.types import TopicPartition
from kraftlog.vocabulary import CLUSTER_METADATA_TOPIC, SYSTEM_TOPICS

__all__ = ["OffsetRange", "PartitionLog", "epoch_at", "list_partitions", "select_partitions"]

logger = logging.getLogger("kraftlog.spark")

# Partitions elsewhere that are looked at at once.
_REMOTE_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLog:
    """What planning knows of a partition; offsets of the same moment.

    Args:
        path: Its directory, absolute, or its URL.
        topic: Name of the topic.
        partition: Its number.
        log_start_offset: First readable offset.
        high_watermark: Exclusive end of what all replicas have; None where no checkpoint says it.
        log_end_offset: The offset after the last whole batch.
        last_stable_offset: With read_committed, the first offset up to the end that is not decided yet.
        aborted: With read_committed, aborted transactions: producer id, first offset, offset of the marker.
        remote: Its objects where it is not a directory of this machine.
    """

    path: str
    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int | None
    log_end_offset: int
    last_stable_offset: int | None = None
    aborted: tuple[tuple[int, int, int], ...] | None = None
    remote: RemoteLog | None = None

    @property
    def place(self) -> str | RemotePartition:
        """What the functions of the engine take for the directory."""
        return self.path if self.remote is None else self.remote.remote

    @property
    def log(self) -> Log:
        """The partition to be asked for more."""
        return Log(Path(self.path), self.topic, self.partition) if self.remote is None else self.remote

    def latest_offset(self, options: SourceOptions) -> int:
        """Where ``latest`` is, exclusive.

        The high watermark, or the log end with ``endOffset=logEnd`` or where no checkpoint says it; with read_committed
        no later than the last stable offset.
        """
        end = self.log_end_offset
        if options.end == "hw" and self.high_watermark is not None:
            end = min(end, self.high_watermark)
        if self.last_stable_offset is not None:
            end = min(end, self.last_stable_offset)
        return max(end, self.log_start_offset)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from ``start_offset`` up to, but without, ``end_offset``.

    The byte size is what planning saw. A task finds its bytes through the index again, since compaction may swap
    the file in between.

    Args:
        path: The partition's directory, absolute, or its URL.
        topic: Value of the topic column.
        partition: Value of the partition column.
        start_offset: Inclusive.
        end_offset: Exclusive.
        size_bytes: About how many bytes of a segment the range takes.
        aborted: With read_committed, the aborted transactions of the range: producer id, first offset, offset of the
            marker; ``end_offset`` is no later than the last stable offset then.
        last_epoch: Leader epoch of the last offset when the range was planned; None when the log does not tell. Another
            one at the time of reading means that the log was cut and has other records there.
        remote: The objects to read where that is not a directory of this machine; they do not change, or reading them
            is an error.
    """

    path: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int = 0
    aborted: tuple[tuple[int, int, int], ...] | None = None
    last_epoch: int | None = None
    remote: RemotePartition | None = None

    @property
    def place(self) -> str | RemotePartition:
        """What the functions of the engine take for the directory."""
        return self.path if self.remote is None else self.remote


def list_partitions(options: SourceOptions) -> list[PartitionLog]:
    """The partitions that the options select, by topic and number, with their offsets now.

    Raises:
        FileNotFoundError: A path does not exist, or a topic or partition that is named is in none of them.
        ValueError: Two of the paths have the same partition: its rows would come twice.
        CorruptRecordError: The end of a log cannot be told; names file and position.
        LogError: A checkpoint file is none.
    """
    topics = options.topics
    if options.assign is not None:
        topics = tuple(sorted({topic for topic, _ in options.assign}))
    logs = partition_directories(
        options.paths, topics=topics, storage_options=options.storage_options, kind=options.file_system
    )
    remote = {str(log.path): log for log in logs if isinstance(log, RemoteLog)}
    chosen = select_partitions({(str(log.path), log.topic, log.partition) for log in logs}, options)
    checkpoints = _Checkpoints()
    # Each takes a few requests, which wait for the network.
    with ThreadPoolExecutor(_REMOTE_THREADS, thread_name_prefix="kraftlog-plan") as pool:
        asked = {path: pool.submit(_remote_facts, remote[path], options) for path, _, _ in chosen if path in remote}
        return [
            asked[path].result() if path in asked else _facts(Log(Path(path), topic, partition), options, checkpoints)
            for path, topic, partition in chosen
        ]


def select_partitions(found: Iterable[tuple[str, str, int]], options: SourceOptions) -> list[tuple[str, str, int]]:
    """Of places with topic and partition, those that ``subscribePattern`` or ``assign`` select, by topic and number.

    Raises:
        FileNotFoundError: A partition of ``assign`` is not there.
        ValueError: A partition is in two places.
    """
    chosen: dict[tuple[str, int], str] = {}
    pattern = None if options.topic_pattern is None else re.compile(options.topic_pattern)
    for path, topic, partition in sorted(found, key=lambda one: (one[1], one[2], one[0])):
        if pattern is not None and (topic in SYSTEM_TOPICS or pattern.fullmatch(topic) is None):
            continue
        if options.assign is not None and (topic, partition) not in options.assign:
            continue
        if (topic, partition) in chosen:
            message = (
                f"partition {topic}-{partition} is in {chosen[topic, partition]} and in {path}: name one of them. "
                "Tiered storage and a log directory that overlap are two queries, cut at an offset by endingOffsets"
            )
            raise ValueError(message)
        chosen[topic, partition] = path
    missing = [f"{topic}-{partition}" for topic, partition in options.assign or () if (topic, partition) not in chosen]
    if missing:
        message = f"option assign: no partition {', '.join(missing)} in {', '.join(options.paths)}"
        raise FileNotFoundError(message)
    return [(path, topic, partition) for (topic, partition), path in chosen.items()]


class _Checkpoints:
    """Checkpoint files, each read once."""

    def __init__(self) -> None:
        self._read: dict[Path, dict[TopicPartition, int] | None] = {}

    def get(self, path: Path) -> dict[TopicPartition, int] | None:
        """The offsets of a file; None without the file."""
        if path not in self._read:
            self._read[path] = read_checkpoint(path) if path.is_file() else None
        return self._read[path]


def _facts(log: Log, options: SourceOptions, checkpoints: _Checkpoints) -> PartitionLog:
    # Without following links: the checkpoints are beside the name by which the partition was found.
    path = Path(os.path.abspath(log.path))
    name = TopicPartition(log.topic, log.partition)
    segments = list_segments(path)
    log_start = max(
        segments[0][0] if segments else 0,
        (checkpoints.get(path.parent / LOG_START_OFFSET_CHECKPOINT) or {}).get(name, 0),
    )
    high_watermarks = checkpoints.get(path.parent / REPLICATION_OFFSET_CHECKPOINT)
    high_watermark = None
    # The quorum's own log is not in the checkpoint: it keeps its high watermark in memory only.
    if high_watermarks is not None and log.topic != CLUSTER_METADATA_TOPIC:
        high_watermark = max(high_watermarks.get(name, log_start), log_start)
        if name not in high_watermarks and options.end == "hw" and any(size for _, _, size in segments):
            _warn_unreplicated(str(path))
    log_end = max(_log_end_offset(path, log, options, segments), log_start)
    if high_watermark is not None and high_watermark > log_end and options.end == "hw":
        logger.warning(
            "%s ends at offset %d, before the high watermark %d of %s: %d offsets are not there",
            path,
            log_end,
            high_watermark,
            REPLICATION_OFFSET_CHECKPOINT,
            high_watermark - log_end,
        )
    facts = PartitionLog(
        path=str(path),
        topic=log.topic,
        partition=log.partition,
        log_start_offset=log_start,
        high_watermark=high_watermark,
        log_end_offset=log_end,
    )
    if options.isolation_level == "read_uncommitted":
        return facts
    transactions = read_transactions(
        path,
        start_offset=log_start,
        end_offset=facts.latest_offset(options),
        on_corrupt="raise" if options.fail_on_data_loss else "skip",
    )
    return replace(facts, last_stable_offset=transactions.last_stable_offset, aborted=tuple(transactions.aborted))


def _remote_facts(log: RemoteLog, options: SourceOptions) -> PartitionLog:
    log_start = log.log_start_offset
    high_watermark = None if log.topic == CLUSTER_METADATA_TOPIC else log.high_watermark
    if log.checkpoints is not None and options.end == "hw" and log.size_bytes:
        named = log.checkpoints.offsets(REPLICATION_OFFSET_CHECKPOINT)
        if named is not None and TopicPartition(log.topic, log.partition) not in named:
            _warn_unreplicated(str(log.path))
    segments = [(segment.base_offset, Path(segment.url), segment.size_bytes) for segment in log.segments]
    log_end = max(_log_end_offset(log.remote, log, options, segments), log_start)
    facts = PartitionLog(
        path=str(log.path),
        topic=log.topic,
        partition=log.partition,
        log_start_offset=log_start,
        high_watermark=high_watermark,
        log_end_offset=log_end,
        remote=log,
    )
    if options.isolation_level == "read_uncommitted":
        return facts
    transactions = read_transactions(
        log.remote,
        start_offset=log_start,
        end_offset=facts.latest_offset(options),
        on_corrupt="raise" if options.fail_on_data_loss else "skip",
    )
    return replace(facts, last_stable_offset=transactions.last_stable_offset, aborted=tuple(transactions.aborted))


def _warn_unreplicated(path: str) -> None:
    logger.warning(
        "%s is not in %s, so that none of its records is known to be replicated and none is read; "
        "endOffset=logEnd reads them",
        path,
        REPLICATION_OFFSET_CHECKPOINT,
    )


def _log_end_offset(
    path: Path | RemotePartition, log: Log, options: SourceOptions, segments: list[tuple[int, Path, int]]
) -> int:
    try:
        return log.log_end_offset if isinstance(log, RemoteLog) else log_end_offset(path)
    except CorruptRecordError as error:
        if options.fail_on_data_loss:
            message = f"the end of {log.topic}-{log.partition} cannot be determined: {error}"
            raise CorruptRecordError(message) from error
        return _end_despite_damage(path, segments[-1][0])


def _end_despite_damage(path: Path | RemotePartition, base_offset: int) -> int:
    """The offset after the last record that a scan finds which leaves damage out."""
    import pyarrow as pa

    end = base_offset
    stream = scan_stream(
        [(path, None, None, base_offset, None, None)], columns=["offset"], on_corrupt="skip", include_control=True
    )
    for batch in stream:
        end = int(pa.record_batch(batch)["offset"][-1].as_py()) + 1
    return end


def epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int | None:
    """The leader epoch of an offset by pairs of epoch and first offset; None when they do not tell."""
    found = None
    for epoch, start_offset in epochs:
        if start_offset <= offset:
            found = epoch
    return found
