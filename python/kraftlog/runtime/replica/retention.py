"""Deletion of old segments, and removal of their files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlog.errors import LogError

if TYPE_CHECKING:
    import asyncio

    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.replica.replica_timers import ReplicaTimers

__all__ = ["Retention", "RetentionIntervals"]

logger = logging.getLogger(__name__)

REMOVE_DELETED_INTERVAL_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionIntervals:
    """log.initial.task.delay.ms and log.retention.check.interval.ms."""

    initial_delay_ms: int
    check_ms: int


class Retention:
    """Looks for old segments from time to time; the file work runs in the background.

    Args:
        intervals: When it looks.
        loop: Told of logs that failed.
        partitions: Of this node.
        now_ms: Wall clock.
        in_background: Runs a function on a thread.
    """

    def __init__(
        self,
        intervals: RetentionIntervals,
        loop: asyncio.AbstractEventLoop,
        partitions: Iterable[Partition],
        now_ms: Callable[[], int],
        in_background: Callable[..., None],
    ) -> None:
        self._intervals = intervals
        self._loop = loop
        self._partitions = partitions
        self._now_ms = now_ms
        self._in_background = in_background

    def start(self, timers: ReplicaTimers) -> None:
        """Arm the timers."""
        timers.every(self._intervals.check_ms, self.check, delay_ms=self._intervals.initial_delay_ms)
        timers.every(REMOVE_DELETED_INTERVAL_MS, self.remove_deleted)

    def check(self) -> None:
        """Delete what retention no longer keeps, soon."""
        self._in_background(self._delete_old_segments, list(self._partitions), self._now_ms())

    def remove_deleted(self) -> None:
        """Remove the files of segments whose delay is over, soon."""
        self._in_background(self._remove_deleted, list(self._partitions), self._now_ms())

    def _delete_old_segments(self, partitions: Sequence[Partition], now_ms: int) -> None:
        for partition in partitions:
            if "compact" in partition.config.cleanup_policy:
                continue  # the compactor's threads do that, when they do not clean it
            try:
                deleted = partition.log.delete_old_segments(now_ms, partition.high_watermark)
            except (LogError, OSError) as error:
                self._failed(partition, error)
                continue
            if deleted:
                partition.replica.log_start_moved()  # fetch sessions look only at what moved
                start = partition.log.log_start_offset
                logger.info("deleted segments %s of %s; the log starts at %d", deleted, partition, start)

    def _remove_deleted(self, partitions: Sequence[Partition], now_ms: int) -> None:
        for partition in partitions:
            try:
                partition.log.remove_deleted(now_ms)
            except (LogError, OSError) as error:
                self._failed(partition, error)

    def _failed(self, partition: Partition, error: Exception) -> None:
        """On the background thread; a log that is merely closed by now has not failed."""
        if partition.log.poisoned is not None:
            self._loop.call_soon_threadsafe(partition.storage_failed, error)
