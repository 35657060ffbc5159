"""Work that recurs: retention, removal of deleted files, checkpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlog.errors import LogError
from kraftlog.runtime.replica.log_dir_failure import is_disk_failure
from kraftlog.runtime.replica.registry import remove_directory
from kraftlog.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    write_offset_checkpoint,
)
from kraftlog.types import TopicPartition

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.runtime.replica.partition import Partition

__all__ = ["Housekeeping"]

logger = logging.getLogger(__name__)

REMOVE_DELETED_INTERVAL_MS = 10_000

Checkpoints = dict[Path, dict[TopicPartition, int]]


class Housekeeping:
    """Timers on the node's loop; the file work runs on its background thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._written: Checkpoints = {}
        self._is_stopped = False

    def start(self) -> None:
        """Arm every timer."""
        config = self._node.config
        initial_delay_ms = config.get_int("log.initial.task.delay.ms")
        self._every("retention", config.get_int("log.retention.check.interval.ms"), self._retain, initial_delay_ms)
        self._every("removal", REMOVE_DELETED_INTERVAL_MS, self._remove_deleted, REMOVE_DELETED_INTERVAL_MS)
        for name, key, write in (
            ("high watermark", "replica.high.watermark.checkpoint.interval.ms", self._checkpoint_high_watermarks),
            ("recovery point", "log.flush.offset.checkpoint.interval.ms", self._checkpoint_recovery_points),
            ("log start", "log.flush.start.offset.checkpoint.interval.ms", self._checkpoint_log_starts),
        ):
            interval_ms = config.get_int(key)
            self._every(name, interval_ms, write, interval_ms)
        for log_dir in self._node.log_dirs:
            for path in log_dir.deleted_directories():
                self._node.run_in_background(remove_directory, path)

    def stop(self) -> None:
        """Nothing recurs after this."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()

    def write_checkpoints(self) -> None:
        """Write all checkpoint files now, on the caller's thread."""
        self._write(self._high_watermarks())
        self._write(self._recovery_points())
        self._write(self._log_starts())

    def _every(self, name: str, interval_ms: int, work: Callable[[], None], delay_ms: int) -> None:
        def run() -> None:
            work()
            if not self._is_stopped:
                self._timers[name] = self._node.loop.call_later(interval_ms / 1000, run)

        self._timers[name] = self._node.loop.call_later(delay_ms / 1000, run)

    def _retain(self) -> None:
        now_ms = self._node.now_ms()
        for partition in self._node.partitions:
            if "compact" in partition.config.cleanup_policy:
                continue  # the cleaner's threads do that, when they do not clean it
            self._node.run_in_background(self._delete_old_segments, partition, now_ms, partition.high_watermark)

    def _delete_old_segments(self, partition: Partition, now_ms: int, high_watermark: int) -> None:
        try:
            deleted = partition.log.delete_old_segments(now_ms, high_watermark)
        except (LogError, OSError) as error:
            self._failed(partition, error)
            return
        if deleted:
            logger.info(
                "deleted segments %s of %s; the log starts at %d", deleted, partition, partition.log.log_start_offset
            )

    def _remove_deleted(self) -> None:
        now_ms = self._node.now_ms()
        for partition in self._node.partitions:
            self._node.run_in_background(self._remove_deleted_of, partition, now_ms)

    def _remove_deleted_of(self, partition: Partition, now_ms: int) -> None:
        try:
            partition.log.remove_deleted(now_ms)
        except (LogError, OSError) as error:
            self._failed(partition, error)

    def _failed(self, partition: Partition, error: Exception) -> None:
        """On the background thread; a log that is merely closed by now has not failed."""
        if partition.log.poisoned is not None:
            self._node.loop.call_soon_threadsafe(partition.storage_failed, error)

    def _checkpoint_high_watermarks(self) -> None:
        self._node.run_in_background(self._write, self._high_watermarks())

    def _checkpoint_recovery_points(self) -> None:
        self._node.run_in_background(self._write, self._recovery_points())

    def _checkpoint_log_starts(self) -> None:
        self._node.run_in_background(self._write, self._log_starts())

    def _high_watermarks(self) -> Checkpoints:
        return self._collect(REPLICATION_OFFSET_CHECKPOINT, lambda one: one.high_watermark)

    def _recovery_points(self) -> Checkpoints:
        return self._collect(RECOVERY_POINT_CHECKPOINT, lambda one: one.log.recovery_point)

    def _log_starts(self) -> Checkpoints:
        """Only where the log does not simply start with its first segment, as Kafka does it."""
        return self._collect(LOG_START_OFFSET_CHECKPOINT, _explicit_log_start)

    def _collect(self, name: str, offset_of: Callable[[Partition], int | None]) -> Checkpoints:
        offsets: Checkpoints = {
            log_dir.path / name: log_dir.unopened_offsets(name)
            for log_dir in self._node.log_dirs
            if log_dir.path in self._node.config.log_dirs and log_dir.is_online
        }
        for partition in self._node.partitions:
            offset = offset_of(partition)
            if offset is not None and partition.log_dir.is_online:
                offsets[partition.log_dir.path / name][partition.topic_partition] = offset
        return offsets

    def _write(self, collected: Checkpoints) -> None:
        for path, offsets in collected.items():
            if self._written.get(path) == offsets:
                continue
            try:
                write_offset_checkpoint(path, offsets)
            except OSError as error:
                if not is_disk_failure(error):
                    logger.warning("%s is written with the next checkpoint: %s", path, error)
                    continue
                log_dirs = [one for one in self._node.log_dirs if one.path == path.parent]
                for log_dir in log_dirs:
                    self._node.loop.call_soon_threadsafe(self._node.partitions.fail_log_dir, log_dir, error)
                continue
            self._written[path] = offsets


def _explicit_log_start(partition: Partition) -> int | None:
    log_start_offset = partition.log.log_start_offset
    if log_start_offset == 0 or log_start_offset == partition.log.segments()[0].base_offset:
        return None
    return log_start_offset
