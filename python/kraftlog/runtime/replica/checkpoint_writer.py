"""The offset checkpoints of the data directories: high watermarks, recovery points, log starts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftlog.errors import LogError
from kraftlog.storage.atomic_file import replace_file
from kraftlog.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    format_offset_checkpoint,
)
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.types import TopicPartition

if TYPE_CHECKING:
    import asyncio

    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.replica.replica_timers import ReplicaTimers
    from kraftlog.storage.log_dir import LogDir

__all__ = ["CheckpointIntervals", "CheckpointWriter"]

logger = logging.getLogger(__name__)

Unopened = dict["LogDir", dict[TopicPartition, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIntervals:
    """replica.high.watermark.checkpoint.interval.ms and log.flush.(start.)offset.checkpoint.interval.ms."""

    high_watermark_ms: int
    recovery_point_ms: int
    log_start_ms: int


class CheckpointWriter:
    """Writes each checkpoint file when its offsets have changed; one thread at a time.

    Args:
        intervals: When.
        log_dirs: The data directories.
        loop: Told of directories that failed.
        partitions: Of this node.
        in_background: Runs a function on a thread, one after the other.
        on_log_dir_failed: Told of a write that failed.
    """

    def __init__(
        self,
        intervals: CheckpointIntervals,
        log_dirs: Sequence[LogDir],
        loop: asyncio.AbstractEventLoop,
        partitions: Iterable[Partition],
        in_background: Callable[..., None],
        on_log_dir_failed: Callable[[LogDir, BaseException], None],
    ) -> None:
        self._intervals = intervals
        self._log_dirs = tuple(log_dirs)
        self._loop = loop
        self._partitions = partitions
        self._in_background = in_background
        self._on_log_dir_failed = on_log_dir_failed
        self._written: dict[Path, str] = {}  # text: one object, whatever the number of partitions
        # A truncation writes on a thread of its own.
        self._lock = threading.Lock()
        # Offsets are taken on the loop and written later: those of a log that was deleted in between do not count.
        self._taken = self._done = 0
        self._forgotten: dict[LogDir, dict[TopicPartition, int]] = {}

    def start(self, timers: ReplicaTimers) -> None:
        """Arm the timers."""
        for name, interval_ms in (
            (REPLICATION_OFFSET_CHECKPOINT, self._intervals.high_watermark_ms),
            (RECOVERY_POINT_CHECKPOINT, self._intervals.recovery_point_ms),
            (LOG_START_OFFSET_CHECKPOINT, self._intervals.log_start_ms),
        ):
            timers.every(interval_ms, partial(self._write_in_background, name))

    def write_all(self) -> None:
        """Write all checkpoint files now, on the caller's thread, while no partition comes or goes."""
        for name in _OFFSETS:
            self._taken += 1
            self._write(name, self._taken, list(self._partitions), self._unopened(name))

    def write_soon(self) -> None:
        """Write all checkpoint files in the background."""
        for name in _OFFSETS:
            self._write_in_background(name)

    def write_recovery_points(self, log_dir: LogDir) -> None:
        """Write the recovery points of a directory now; any thread may call, before a log is cut.

        Raises:
            OSError: It could not be written: nothing may be cut.
        """
        with self._lock:
            offsets = log_dir.unopened_offsets(RECOVERY_POINT_CHECKPOINT)
            for partition in list(self._partitions):
                if partition.log_dir is log_dir:
                    offsets[partition.topic_partition] = partition.log.recovery_point
            path = log_dir.path / RECOVERY_POINT_CHECKPOINT
            text = format_offset_checkpoint(offsets)
            replace_file(path, text.encode("utf-8"))
            self._written[path] = text

    def forget(self, log_dir: LogDir, keys: Collection[TopicPartition]) -> None:
        """Take partitions out of the checkpoint files, before their directories get another name; any thread may call.

        A write that fails is not the deletion's: if it fails the directory, the rename does, too.
        """
        with self._lock:
            if self._done < self._taken:
                self._forgotten.setdefault(log_dir, {}).update(dict.fromkeys(keys, self._taken))
            paths = [log_dir.path / name for name in _OFFSETS]
            texts = [self._written.get(path) for path in paths]
            if not log_dir.is_online or not any(text is None or _mentions(text, keys) for text in texts):
                return
            try:
                for name, text in log_dir.erase_checkpoints(keys).items():
                    self._written[log_dir.path / name] = text
            except (LogError, OSError) as error:
                logger.warning("checkpoints in %s name deleted partitions until the next ones: %s", log_dir.path, error)
                for path in paths:
                    self._written.pop(path, None)

    def _write_in_background(self, name: str) -> None:
        # Both are taken in one turn of the loop: a log is in one of them.
        self._taken += 1
        self._in_background(self._write, name, self._taken, list(self._partitions), self._unopened(name))

    def _unopened(self, name: str) -> Unopened:
        return {log_dir: log_dir.unopened_offsets(name) for log_dir in self._log_dirs if log_dir.is_online}

    def _write(self, name: str, taken: int, partitions: Sequence[Partition], offsets: Unopened) -> None:
        """On a thread; writes come in the order in which their offsets were taken."""
        with self._lock:
            self._write_locked(name, partitions, offsets)
            self._done = max(self._done, taken)
            for log_dir, forgotten in [*self._forgotten.items()]:
                left = {key: number for key, number in forgotten.items() if number > taken}
                if left:
                    self._forgotten[log_dir] = left
                else:
                    del self._forgotten[log_dir]

    def _write_locked(self, name: str, partitions: Sequence[Partition], offsets: Unopened) -> None:
        offset_of = _OFFSETS[name]
        for partition in partitions:
            of_dir = offsets.get(partition.log_dir)
            offset = offset_of(partition)
            if of_dir is not None and offset is not None:
                of_dir[partition.topic_partition] = offset
        for log_dir, of_dir in offsets.items():
            for key in self._forgotten.get(log_dir, ()):
                of_dir.pop(key, None)
            path = log_dir.path / name
            text = format_offset_checkpoint(of_dir)
            if not log_dir.is_online or self._written.get(path) == text:
                continue
            try:
                replace_file(path, text.encode("utf-8"))
            except OSError as error:
                if is_disk_failure(error):
                    self._loop.call_soon_threadsafe(self._on_log_dir_failed, log_dir, error)
                else:
                    logger.warning("%s is written with the next checkpoint: %s", path, error)
                continue
            self._written[path] = text


def _mentions(text: str, keys: Collection[TopicPartition]) -> bool:
    """Whether the text of a checkpoint has an entry of one of the partitions."""
    return any(f"\n{key.topic} {key.partition} " in text for key in keys)


def _high_watermark(partition: Partition) -> int | None:
    return partition.high_watermark


def _recovery_point(partition: Partition) -> int | None:
    return partition.log.recovery_point


def _explicit_log_start(partition: Partition) -> int | None:
    """Only where the log does not simply start with its first segment, as Kafka does it."""
    log_start_offset = partition.log.log_start_offset
    if log_start_offset == 0:
        return None
    try:
        segments = partition.log.segments()
    except (LogError, OSError):
        return log_start_offset
    return None if not segments or log_start_offset == segments[0].base_offset else log_start_offset


_OFFSETS: Final[dict[str, Callable[[Partition], int | None]]] = {
    REPLICATION_OFFSET_CHECKPOINT: _high_watermark,
    RECOVERY_POINT_CHECKPOINT: _recovery_point,
    LOG_START_OFFSET_CHECKPOINT: _explicit_log_start,
}
