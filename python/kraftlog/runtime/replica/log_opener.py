"""Opening or creating the log of a partition; runs on a thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlog._kraftlog import Log
from kraftlog.storage.recovery_report import RecoveryReport

if TYPE_CHECKING:
    from pathlib import Path

    from kraftlog._kraftlog import RecoveryProgress
    from kraftlog.runtime.replica.topic_config import TopicConfig
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.types import TopicPartition, Uuid

__all__ = ["LogOpener", "OpenRequest", "first_high_watermark"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """A log to be opened or created.

    Attributes:
        key: Topic name and index, after which the directory is named.
        topic_id: Written into ``partition.metadata`` of a new log.
        config: Settings of the topic.
        log_dir: The data directory.
        leader_epoch: The epoch that this node leads, -1 when it does not lead.
        future: The directory of a copy that is to take the log's place; None for the log itself.
    """

    key: TopicPartition
    topic_id: Uuid
    config: TopicConfig
    log_dir: LogDir
    leader_epoch: int = -1
    future: Path | None = None


class LogOpener:
    """Opens logs; any thread may call.

    Args:
        log_dirs: The data directories.
        now_ms: Wall clock.
        flush_on_ack: Whether an acknowledgement waits for the disk.
    """

    def __init__(self, log_dirs: Iterable[LogDir], now_ms: Callable[[], int], *, flush_on_ack: bool) -> None:
        self._now_ms = now_ms
        self._flush_on_ack = flush_on_ack
        self._reports = {log_dir: RecoveryReport(log_dir.path) for log_dir in log_dirs}

    def open(self, request: OpenRequest, recovery_threads: int = 1, progress: RecoveryProgress | None = None) -> Log:
        """Open the log, recover it after an unclean stop, and make it ready for its leader epoch.

        Raises:
            LogError: The log cannot be opened.
            OSError: A file operation failed.
        """
        key, log_dir = request.key, request.log_dir
        path = log_dir.path / str(key) if request.future is None else request.future
        was_there = path.is_dir()
        log = Log.open(
            path,
            config=request.config.log_config,
            # The checkpoints do not speak of copies.
            recovery_point=log_dir.recovery_points.get(key, 0) if request.future is None else 0,
            log_start_offset=log_dir.log_start_offsets.get(key, 0) if request.future is None else 0,
            clean_shutdown=log_dir.was_clean_shutdown,
            now_ms=self._now_ms(),
            recovery_threads=recovery_threads,
            progress=progress,
        )
        self._reports[log_dir].add(log.recovery_events)
        checkpointed = log_dir.high_watermarks.get(key, 0) if request.future is None else 0
        if was_there and checkpointed > log.log_end_offset:
            logger.warning(
                "%s ends at offset %d, before its checkpointed high watermark %d: committed records are gone",
                path,
                log.log_end_offset,
                checkpointed,
            )
        if log.topic_id is None:
            log.write_partition_metadata(bytes(request.topic_id))
        if request.leader_epoch >= 0 and (log.latest_epoch is None or log.latest_epoch < request.leader_epoch):
            log.assign_epoch_start(request.leader_epoch, log.log_end_offset)
        if self._flush_on_ack and log.recovery_point < log.log_end_offset:
            # What a crash left in the page cache may have been acknowledged as durable: make it so before anyone
            # asks, so that the high watermark does not start below it.
            log.flush()
        return log

    def finish_reports(self) -> None:
        """Sum up what opening the logs has found so far."""
        for report in self._reports.values():
            report.finish()


def first_high_watermark(checkpointed: int, log: Log) -> int:
    """The high watermark a replica starts with: that of the checkpoint, but never outside its log.

    The checkpoint may be of before a recovery that cut the log, or of before records were deleted.
    """
    return max(min(checkpointed, log.log_end_offset), log.log_start_offset)
