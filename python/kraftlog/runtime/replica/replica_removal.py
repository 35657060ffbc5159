"""How a replica leaves this node, whether the metadata or a StopReplica request says so: one way for both.

The fetches of the replica end first, then it leaves the registry and everybody who waits for it hears so, then its log
is closed or deleted on a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kraftlog.controller.topic_name import topic_name_problem
from kraftlog.errors import ErrorCode, LogError
from kraftlog.runtime.replica.log_remover import LogRemover
from kraftlog.runtime.replica.partition import Partition
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.vocabulary import CLUSTER_METADATA_DIRECTORY

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from kraftlog._kraftlog import Log
    from kraftlog.runtime.replica.reconciler_parts import ReconcilerParts
    from kraftlog.runtime.replica.registry import PartitionKey
    from kraftlog.runtime.replica.topic_config import TopicConfig
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.types import TopicPartition

__all__ = ["ReplicaRemoval", "UnservedLog"]

logger = logging.getLogger(__name__)

Ended = asyncio.Future[int] | None


@dataclass(frozen=True, slots=True)
class UnservedLog:
    """A log that no partition of the registry has: opened for one that is gone again, or closed by a stop."""

    topic_partition: TopicPartition
    log: Log | ClosedLog
    log_dir: LogDir
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class ClosedLog:
    """The directory of a log that nobody has open."""

    path: Path

    def discard(self) -> None:
        """Nothing is open."""


class ReplicaRemoval:
    """Takes replicas out of this node. All methods are called on the loop.

    Args:
        parts: Collaborators, those of the reconciler.
        end_fetch: Ends the fetches of a partition.
        ended: Called once the name of a partition's directory is free, or its log is closed.
        on_log_dir_failed: Told of a rename that failed.
    """

    def __init__(
        self,
        parts: ReconcilerParts,
        *,
        end_fetch: Callable[[PartitionKey], None],
        ended: Callable[[TopicPartition], None],
        on_log_dir_failed: Callable[[LogDir, BaseException], None],
    ) -> None:
        self._parts = parts
        self._end_fetch = end_fetch
        self._ended = ended
        self._on_log_dir_failed = on_log_dir_failed
        self._futures: dict[TopicPartition, asyncio.Future[int]] = {}
        self._remover: LogRemover[Partition | UnservedLog] = LogRemover(
            parts.loop,
            parts.workers,
            parts.steps,
            parts.remove_later,
            let_go=self._let_go,
            forget=parts.checkpoints.forget,
            removed=self._removed,
        )

    def remove(self, partition: Partition, *, is_deleted: bool, ended: Ended = None) -> None:
        """Take a replica out at once (STOP-16); ``ended`` gets 0 or an error code once its log is closed or renamed."""
        name, log_dir = partition.topic_partition, partition.log_dir
        self._end_fetch((partition.topic_id, partition.index))
        self._parts.partitions.remove(partition)
        partition.close()
        self._parts.placement.remove(log_dir)
        if ended is not None:
            self._futures[name] = ended
        if is_deleted:
            self._remover.remove(partition)
            return
        # Until the log is open again, checkpoints keep what they say of it.
        log_dir.high_watermarks[name] = partition.high_watermark
        log_dir.log_start_offsets[name] = partition.log.log_start_offset
        log_dir.recovery_points[name] = partition.log.recovery_point
        log_dir.unopened.add(name)
        closing = self._parts.workers.submit_in_order(self._close, partition)
        closing.add_done_callback(partial(self._close_ended, partition))

    def delete_unserved(self, unserved: UnservedLog) -> None:
        """Delete a log that was opened for a partition that is gone again."""
        self._remover.remove(unserved)

    def delete_directory(self, name: TopicPartition, ended: Ended = None) -> bool:
        """Delete a log that is not open; False when no directory that works has it (STOP-10)."""
        if topic_name_problem(name.topic) is not None or name.partition < 0 or str(name) == CLUSTER_METADATA_DIRECTORY:
            return False  # no name of a topic's partition, whatever lies there
        for log_dir in self._parts.placement.log_dirs:
            path = log_dir.path / str(name)
            if log_dir.is_online and path.is_dir():
                log_dir.forget(name)
                if ended is not None:
                    self._futures[name] = ended
                self._remover.remove(UnservedLog(name, ClosedLog(path), log_dir, self._parts.topic_configs.get({})))
                return True
        return False

    def finish(self) -> None:
        """Rename what was still to be deleted, after the threads have ended."""
        self._remover.finish()

    # -- on the thread -------------------------------------------------------------------------------------------

    def _let_go(self, removal: Partition | UnservedLog) -> None:
        if isinstance(removal, Partition):
            self._parts.compactor.remove(removal)

    def _close(self, partition: Partition) -> None:
        self._parts.compactor.remove(partition)
        partition.log.close()

    # -- back on the loop ----------------------------------------------------------------------------------------

    def _close_ended(self, partition: Partition, future: Future[Any]) -> None:
        """On the thread."""
        self._parts.steps.add_threadsafe(partial(self._finish_close, partition, future))

    def _finish_close(self, partition: Partition, future: Future[Any]) -> None:
        name = partition.topic_partition
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            partition.log_dir.recovery_points[name] = partition.log.recovery_point
        self._end(name, partition.log_dir, error)

    def _removed(self, removal: Partition | UnservedLog, error: BaseException | None) -> None:
        if isinstance(removal, Partition):
            removal.log_dir.forget(removal.topic_partition)
        self._end(removal.topic_partition, removal.log_dir, error)

    def _end(self, name: TopicPartition, log_dir: LogDir, error: BaseException | None) -> None:
        ended = self._futures.pop(name, None)
        if ended is not None and not ended.done():
            ended.set_result(ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR)
        if error is not None:
            logger.error("the replica %s cannot be removed from %s: %s", name, log_dir.path, error)
            if isinstance(error, LogError | OSError) and is_disk_failure(error.__cause__ or error):
                self._on_log_dir_failed(log_dir, error)
        self._ended(name)
