"""What log directories hold right now, as cheaply as a trigger needs it: by names and checkpoints, without a scan."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kraftlog._kraftlog import list_segments, log_end_offset, read_transactions
from kraftlog.errors import CorruptRecordError, LogError, LogTruncatedError
from kraftlog.reading import Log
from kraftlog.reading.directory import partition_of, read_checkpoint, read_leader_epochs
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.stream_history import EpochHistory, check_position
from kraftlog.spark.stream_offsets import PartitionKey, Position
from kraftlog.storage.checkpoints import LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kraftlog.types import TopicPartition
from kraftlog.vocabulary import CLUSTER_METADATA_TOPIC, SYSTEM_TOPICS

__all__ = ["SurveyedLog", "selection", "survey"]


@dataclass(frozen=True, slots=True)
class SurveyedLog:
    """The directory of a partition, and what the files beside it said when the directories were surveyed.

    Args:
        path: The directory.
        topic: Name of the topic.
        partition: Number of the partition.
        high_watermark: Of ``replication-offset-checkpoint``; 0 when that does not name the partition, None without it
            and for ``__cluster_metadata``, whose high watermark is in memory only.
        deleted_to: Of ``log-start-offset-checkpoint``: records before it are deleted; 0 when it says nothing.
    """

    path: str
    topic: str
    partition: int
    high_watermark: int | None
    deleted_to: int

    @property
    def name(self) -> str:
        """For errors: partition and directory."""
        return f"partition {self.topic}-{self.partition} ({self.path})"

    def history(self) -> EpochHistory:
        """Leader epochs with their first offsets, as the file says now; empty without it."""
        return [(entry.epoch, entry.start_offset) for entry in read_leader_epochs(Path(self.path))]

    def topic_id(self) -> str | None:
        """Id of the topic as text; None without ``partition.metadata``."""
        topic_id = Log(Path(self.path), self.topic, self.partition).topic_id
        return None if topic_id is None else str(topic_id)

    def log_start_offset(self) -> int:
        """The first readable offset now."""
        segments = list_segments(self.path)
        return max(segments[0][0] if segments else 0, self.deleted_to)

    def log_end_offset(self, options: SourceOptions) -> int | None:
        """The offset after the last whole batch now; None for a damaged end with ``failOnDataLoss=false``."""
        try:
            return log_end_offset(self.path)
        except CorruptRecordError as error:
            if options.fail_on_data_loss:
                message = f"the end of {self.name} cannot be determined: {error}"
                raise CorruptRecordError(message) from error
            return None

    def end_offset(self, options: SourceOptions, *, known: int) -> int:
        """Where a batch may end at most. A log whose high watermark is not beyond ``known`` is not looked into.

        That is the high watermark, or the end of the log with ``endOffset=logEnd`` and without a checkpoint of high
        watermarks; with read_committed not behind the first offset of an open transaction.

        Args:
            options: Which of these.
            known: What was read before. The answer may be smaller than it, when the high watermark is.

        Raises:
            CorruptRecordError: The end of the log is damaged, and with ``failOnDataLoss=false`` no high watermark
                says where it is either.
        """
        high_watermark = self.high_watermark if options.end == "hw" else None
        if high_watermark is not None and high_watermark <= known:
            return high_watermark
        log_end = self.log_end_offset(options)
        if log_end is None and high_watermark is None:
            log_end = log_end_offset(self.path)  # raises what is wrong
        # A copy may have got its checkpoint after its segments.
        end = min(bound for bound in (high_watermark, log_end) if bound is not None)
        if options.isolation_level == "read_committed" and end > known:
            end = min(end, read_transactions(self.path, end_offset=end).last_stable_offset)
        return end

    def check(self, position: Position, *, log_end_offset: int | None, history: EpochHistory) -> None:
        """That the log still has the records before ``position``.

        Args:
            position: What was noted when they were read or planned.
            log_end_offset: Found before ``history`` was, or None to leave it out: a log that was truncated and has
                grown again had its new epoch noted before its new records.
            history: Leader epochs now.

        Raises:
            LogTruncatedError: It has not; names the partition, the offset and both epochs.
        """
        with suppress(LogTruncatedError):
            check_position(
                self.name, position, history=history, log_start_offset=self.deleted_to, log_end_offset=log_end_offset
            )
            return
        # Whether retention took it is seen in the directory, which is not listed without need.
        log_start_offset = self.log_start_offset()
        if log_end_offset is not None:
            log_end_offset = max(log_end_offset, log_start_offset)
        check_position(
            self.name, position, history=history, log_start_offset=log_start_offset, log_end_offset=log_end_offset
        )


def selection(options: SourceOptions) -> Callable[[str, int], bool]:
    """Whether a topic's partition is among those that the options select, now or once it is there."""
    if options.assign is not None:
        assigned = frozenset(options.assign)
        return lambda topic, partition: (topic, partition) in assigned
    if options.topics is not None:
        topics = frozenset(options.topics)
        return lambda topic, _: topic in topics
    pattern = None if options.topic_pattern is None else re.compile(options.topic_pattern)
    return lambda topic, _: topic not in SYSTEM_TOPICS and (pattern is None or pattern.fullmatch(topic) is not None)


def survey(paths: Sequence[str], selects: Callable[[str, int], bool]) -> dict[PartitionKey, SurveyedLog]:
    """The partitions in log directories, or in directories that are partitions themselves.

    Args:
        paths: The directories.
        selects: Whether a topic's partition is wanted.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A path is a URL.
        LogError: A partition is in two places, or a checkpoint is damaged; names the file.
    """
    found: dict[PartitionKey, SurveyedLog] = {}
    for path in paths:
        if "://" in path:
            message = f"option path: {path} is a URL; streams read local directories, batch reads know URLs"
            raise ValueError(message)
        root = os.path.abspath(path)
        if not os.path.isdir(root):
            message = f"no directory {path}"
            raise FileNotFoundError(message)
        own_name = partition_of(os.path.basename(os.path.realpath(root)))
        if own_name is not None and any(name.endswith(".log") for name in os.listdir(root)):
            names: Iterator[tuple[str, PartitionKey]] = iter([(root, own_name)])
            root = os.path.dirname(root)
        else:
            names = _partitions_in(root)
        high_watermarks = _checkpoint(root, REPLICATION_OFFSET_CHECKPOINT)
        start_offsets = _checkpoint(root, LOG_START_OFFSET_CHECKPOINT) or {}
        for directory, key in names:
            if not selects(*key):
                continue
            if key in found and found[key].path != directory:
                message = f"partition {key[0]}-{key[1]} is in {found[key].path} and in {directory}: name one in paths"
                raise LogError(message)
            own = TopicPartition(*key)
            high_watermark = None
            if high_watermarks is not None and own.topic != CLUSTER_METADATA_TOPIC:
                high_watermark = high_watermarks.get(own, 0)
            found[key] = SurveyedLog(directory, *key, high_watermark, start_offsets.get(own, 0))
    return found


def _partitions_in(root: str) -> Iterator[tuple[str, PartitionKey]]:
    with os.scandir(root) as entries:
        for entry in entries:
            key = partition_of(entry.name)
            if key is not None and entry.is_dir():
                yield entry.path, key


def _checkpoint(root: str, name: str) -> Mapping[TopicPartition, int] | None:
    path = Path(root, name)
    return read_checkpoint(path) if path.is_file() else None
