"""Failures of data directories: what goes offline with a directory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlog.errors import LogError

if TYPE_CHECKING:
    from kraftlog.runtime.replica.registry import Partitions
    from kraftlog.storage.log_dir import LogDir

__all__ = ["LogDirFailures"]

logger = logging.getLogger(__name__)


class LogDirFailures:
    """Takes directories offline.

    Args:
        log_dirs: The data directories.
        metadata_log_dir: The directory of the metadata log.
        partitions: Of this node.
        abandon: Told of a directory whose logs that are being opened go offline, too.
        on_fatal: Called when the node cannot go on.

    Attributes:
        listeners: Called when a directory has gone offline.
    """

    def __init__(
        self,
        log_dirs: Sequence[LogDir],
        metadata_log_dir: Path,
        partitions: Partitions,
        *,
        abandon: Callable[[LogDir], None],
        on_fatal: Callable[[LogError], None],
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._metadata_log_dir = metadata_log_dir
        self._partitions = partitions
        self._abandon = abandon
        self._on_fatal = on_fatal
        self.listeners: list[Callable[[], None]] = []

    def fail(self, log_dir: LogDir, error: BaseException) -> None:
        """A write or fsync failed: take every partition of the directory offline and never write there again.

        Clients get KAFKA_STORAGE_ERROR for these partitions; other directories go on. The node ends when it was the
        last one, or the one of the metadata log, as Kafka's broker does (KIP-112, KIP-858).
        """
        if not log_dir.is_online:
            return
        log_dir.failure = str(error)
        lost = self._partitions.in_directory(log_dir)
        names = ", ".join(sorted(map(str, lost))) or "none"
        logger.error("stopping to serve the replicas in %s, which failed: %s; offline: %s", log_dir.path, error, names)
        for partition in lost:
            self._partitions.set_offline((partition.topic_id, partition.index))
            partition.replica.on_log_failed(str(error))
            partition.close()
            self._partitions.remove(partition)
        self._abandon(log_dir)
        for listener in self.listeners:
            listener()
        has_metadata = log_dir.path == self._metadata_log_dir
        if has_metadata or not any(other.is_online for other in self._log_dirs):
            what = "the directory of the metadata log" if has_metadata else "every directory of log.dirs"
            self._on_fatal(LogError(f"{what} is offline: {error}"))
