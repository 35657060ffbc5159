"""Moves of replicas between data directories: the shell of :mod:`kraftlog.partition.directory_move` (KIP-113)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraftlog import _kraftlog, host
from kraftlog.errors import ErrorCode, KafkaError, LogError
from kraftlog.metrics.meter import Meter
from kraftlog.metrics.replica import FetcherCounts
from kraftlog.ordered_set import OrderedSet
from kraftlog.partition.directory_move import DirectoryMove, MoveState, MoveStep
from kraftlog.partition.replication_quota import ReplicationQuota
from kraftlog.runtime.replica.future_directories import FutureDirectory
from kraftlog.runtime.replica.log_opener import OpenRequest
from kraftlog.runtime.replica.partition import FutureReplica
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.storage.files import as_path
from kraftlog.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kraftlog._kraftlog import Log
    from kraftlog.controller import MetadataImage
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.replica.reconciler_parts import ReconcilerParts
    from kraftlog.runtime.replica.registry import PartitionKey
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.types import TopicPartition

__all__ = ["DirectoryMoves"]

logger = logging.getLogger(__name__)

# As replica.fetch.max.bytes of Kafka; also what is copied at most while appends wait.
_PART_BYTES: Final = 1024 * 1024
_WAIT_S: Final = 0.1


@dataclass(slots=True, eq=False)
class _Move:
    """A replica on its way.

    Attributes:
        partition: Whose log is copied.
        log_dir: Where the copy is.
        log: The copy.
        decisions: How far it is.
        wake: Set when the metadata may have changed.
        task: Copies and replaces.
        copied: Parts that were copied.
        is_dead: It ended by a defect.
    """

    partition: Partition
    log_dir: LogDir
    log: Log
    decisions: DirectoryMove
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    copied: Meter = field(default_factory=lambda: Meter(host.monotonic_s()))
    is_dead: bool = False

    @property
    def key(self) -> PartitionKey:
        """Of the partition."""
        return self.partition.topic_id, self.partition.index


class DirectoryMoves:
    """Copies logs into other directories and lets the copies take their place. All methods are called on the loop.

    Args:
        parts: Collaborators, those of the reconciler.
        image: The committed metadata.
        assign: Tells the controller in which directory a replica is.
        on_log_dir_failed: Told of a directory that takes no writes.
        write_checkpoints: Writes the offset checkpoints of all directories soon.

    Attributes:
        quota: ``replica.alter.log.dirs.io.max.bytes.per.second``.
    """

    def __init__(
        self,
        parts: ReconcilerParts,
        *,
        image: Callable[[], MetadataImage],
        assign: Callable[[PartitionKey, Uuid], None],
        on_log_dir_failed: Callable[[LogDir, BaseException], None],
        write_checkpoints: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._log_dirs = parts.placement.log_dirs
        self._image = image
        self._assign = assign
        self._on_log_dir_failed = on_log_dir_failed
        self._write_checkpoints = write_checkpoints
        self._threads = host.executor("kraftlog-alter-log-dirs", max(len(self._log_dirs), 1))
        self._moves: dict[PartitionKey, _Move] = {}
        self._found: dict[TopicPartition, FutureDirectory] = {}
        # One change at a time, as in Kafka: a request may end a move and begin another.
        self._turn = asyncio.Lock()
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._is_stopped = False
        self.quota = ReplicationQuota()

    @property
    def counts(self) -> FetcherCounts:
        """The moves; on any thread."""
        moves, now_s = list(self._moves.values()), host.monotonic_s()
        lags = (move.partition.replica.log_end_offset - move.log.log_end_offset for move in moves)
        return FetcherCounts(
            max_lag=max(0, *lags) if moves else 0,
            min_fetch_rate=min((move.copied.value(now_s).one_minute_rate for move in moves), default=0.0),
            failed_partitions=sum(move.decisions.state is MoveState.FAILED for move in moves),
            dead_loops=sum(move.is_dead for move in moves),
        )

    # -- requests ------------------------------------------------------------------------------------------------

    async def alter(self, name: TopicPartition, path: str) -> int:
        """Move a replica to the data directory ``path``; 0 once that has begun, else the error code.

        A replica that is not here yet will be created there. A move to another directory than the requested one ends.

        Source: ``ReplicaManager.alterReplicaLogDirs`` of Kafka 4.3.1.
        """
        async with self._turn:
            try:
                return await self._alter(name, path)
            except KafkaError as error:
                return error.code
            except (LogError, OSError) as error:
                logger.warning("the replica %s cannot be moved to %s: %s", name, path, error)
                return ErrorCode.KAFKA_STORAGE_ERROR

    async def _alter(self, name: TopicPartition, path: str) -> int:
        log_dir = self._log_dir(path)
        try:
            directory = log_dir.new_future(name)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
        partition = self._parts.partitions.get_by_name(name.topic, name.partition)
        if partition is None:
            error_code = self._parts.partitions.missing_error(name.topic, name.partition)
            if error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                return error_code
            self._parts.placement.prefer(name, log_dir)
            # Kafka keeps the older code for this API.
            is_expected = error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.REPLICA_NOT_AVAILABLE if is_expected else error_code
        move = self._moves.get((partition.topic_id, partition.index))
        if move is not None and (move.log_dir is not log_dir or move.decisions.state is MoveState.FAILED):
            await self._cancel(move, is_deleted=True)
            move = None
        if move is None and partition.log_dir is not log_dir:
            await self._begin(partition, log_dir, directory)
        return ErrorCode.NONE

    def _log_dir(self, path: str) -> LogDir:
        for log_dir in self._log_dirs:
            if str(log_dir.path.absolute()) == path and log_dir.is_online:
                if log_dir.is_cordoned:
                    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned")
                return log_dir
        if any(str(known.absolute()) == path for known in self._parts.settings.log_dirs):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")

    # -- metadata ------------------------------------------------------------------------------------------------

    def resume(self, found: Mapping[TopicPartition, FutureDirectory]) -> None:
        """Go on with copies of an earlier run once their partitions are open."""
        self._found = dict(found)

    def has_assignment(self, partition: Partition) -> bool:
        """Whether the controller takes the directory of a replica's copy for that of the replica."""
        move = self._moves.get((partition.topic_id, partition.index))
        if move is not None:
            return move.decisions.has_assignment
        found = self._found.get(partition.topic_partition)
        return found is not None and found.log_dir.directory_id == self._assigned_directory(partition)

    def partition_changed(self, partition: Partition) -> None:
        """A partition was opened, got an assignment, or was taken out."""
        if self._is_stopped:
            return
        move = self._moves.get((partition.topic_id, partition.index))
        if self._parts.partitions.get(partition.topic_id, partition.index) is not partition:
            # What the metadata still has here is stopped, or its directory failed: the copy is found again at start.
            if move is not None and move.partition is partition:
                self._spawn(self._end(move, is_deleted=self._assigned_directory(partition) is None))
            return
        found = self._found.pop(partition.topic_partition, None)
        if found is not None:
            self._spawn(self._go_on(partition, found))
        elif move is not None:
            self._look_at_metadata(move)

    def log_dir_failed(self) -> None:
        """A directory went offline: the moves into it end, and its files are left alone."""
        for move in list(self._moves.values()):
            if not move.log_dir.is_online:
                self._spawn(self._end(move, is_deleted=False))

    def _assigned_directory(self, partition: Partition) -> Uuid | None:
        """The directory that the metadata has a replica in; None when it has none on this node."""
        topic = self._image().topics.by_id(partition.topic_id)
        wanted = None if topic is None else topic.partitions.get(partition.index)
        node_id = self._parts.settings.node_id
        return wanted.directory(node_id) if wanted is not None and node_id in wanted.replicas else None

    def _look_at_metadata(self, move: _Move) -> None:
        directory = self._assigned_directory(move.partition)
        if directory is not None:
            move.decisions.on_assigned(directory)
            move.wake.set()

    # -- beginning -----------------------------------------------------------------------------------------------

    async def _go_on(self, partition: Partition, found: FutureDirectory) -> None:
        async with self._turn:
            if not found.log_dir.is_online:
                return
            try:
                if found.log_dir is partition.log_dir or (partition.topic_id, partition.index) in self._moves:
                    # A request came first, or somebody moved the directories.
                    retired = await self._on_thread(partial(found.log_dir.mark_future, found.path, "delete"))
                    self._remove_later(partition, retired)
                else:
                    await self._begin(partition, found.log_dir, found.path)
            except (KafkaError, LogError, OSError) as error:
                logger.warning("the copy %s is left as it is: %s", found.path, error)

    async def _begin(self, partition: Partition, log_dir: LogDir, directory: Path) -> None:
        """Open the copy and fill it.

        Raises:
            KafkaError: The partition went away meanwhile.
            LogError: The copy cannot be opened.
            OSError: A file operation failed.
        """
        request = OpenRequest(
            key=partition.topic_partition,
            topic_id=partition.topic_id,
            config=partition.config,
            log_dir=log_dir,
            future=directory,
        )
        try:
            log = await self._on_thread(partial(self._parts.opener.open, request))
        except OSError as error:
            if is_disk_failure(error):
                self._on_log_dir_failed(log_dir, error)
            raise
        is_here = self._parts.partitions.get(partition.topic_id, partition.index) is partition
        if not is_here or self._is_stopped or not log_dir.is_online:
            await self._on_thread(log.close)
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)
        image = self._image()
        is_assigned = image.metadata_version.is_directory_assignment_supported and log_dir.directory_id != Uuid.ZERO
        decisions = DirectoryMove(log_dir.directory_id, needs_assignment=is_assigned)
        move = self._moves[partition.topic_id, partition.index] = _Move(partition, log_dir, log, decisions)
        partition.future = FutureReplica(log, log_dir)
        self._parts.placement.add(log_dir)
        self._look_at_metadata(move)
        logger.info("the replica %s moves from %s to %s", partition, partition.log_dir.path, log_dir.path)
        # After it was added there: both are done in order.
        paused = self._parts.workers.submit_in_order(self._parts.compactor.pause, partition.topic_partition)
        move.task = asyncio.get_running_loop().create_task(self._run(move, asyncio.wrap_future(paused)))

    # -- one move ------------------------------------------------------------------------------------------------

    async def _run(self, move: _Move, paused: asyncio.Future[Any]) -> None:
        try:
            await paused
            await self._on_thread(partial(move.partition.replica.set_future, move.log))
            await self._carry_out(move)
        except Exception:
            logger.exception("the move of %s to %s ended by an unexpected error", move.partition, move.log_dir.path)
            move.is_dead = True
            move.decisions.on_failed()

    async def _carry_out(self, move: _Move) -> None:
        step = MoveStep.COPY
        while step is not MoveStep.END and move.decisions.state is not MoveState.CANCELLED:
            match step:
                case MoveStep.COPY:
                    step = await self._copy(move)
                case MoveStep.ASSIGN:
                    self._assign(move.key, move.log_dir.directory_id)
                    step = MoveStep.WAIT
                case MoveStep.WAIT:
                    await self._wait(move)
                    step = MoveStep.COPY
                case MoveStep.REPLACE:
                    step = await self._replace(move)

    async def _wait(self, move: _Move) -> None:
        move.wake.clear()
        try:
            async with asyncio.timeout(_WAIT_S):
                await move.wake.wait()
        except TimeoutError:
            return

    async def _copy(self, move: _Move) -> MoveStep:
        if self.quota.is_exceeded(self._parts.partitions.now_ms()):
            return MoveStep.WAIT
        copy = partial(
            _kraftlog.copy_to_future,
            move.partition.replica,
            max_bytes=_PART_BYTES,
            now_ms=self._parts.partitions.now_ms(),
        )
        outcome, future_end, log_end, size_bytes, error = await self._on_thread(copy)
        if outcome:
            return self._failed(move, outcome, error)
        move.copied.mark(1, host.monotonic_s())
        self.quota.record(size_bytes, self._parts.partitions.now_ms())
        return move.decisions.on_copied(future_end_offset=future_end, log_end_offset=log_end)

    async def _replace(self, move: _Move) -> MoveStep:
        partition, source = move.partition, move.partition.log_dir
        retired = source.marked_path(source.path / str(partition), "delete")
        replace = partial(
            _kraftlog.replace_with_future,
            partition.replica,
            retired=str(retired),
            pool=self._parts.threads.flush_pools[move.log_dir],
            max_bytes=_PART_BYTES,
            now_ms=self._parts.partitions.now_ms(),
        )
        outcome, error = await self._on_thread(replace)
        if outcome == "behind":
            return move.decisions.on_behind()
        if outcome:
            return self._failed(move, outcome, error)
        self._replaced(move, source, retired)
        return move.decisions.on_replaced()

    def _replaced(self, move: _Move, source: LogDir, retired: Path) -> None:
        """The partition goes on in the other directory (RFET-86)."""
        partition = move.partition
        logger.info("the replica %s has moved from %s to %s", partition, source.path, move.log_dir.path)
        self._moves.pop(move.key, None)
        partition.future = None
        partition.log_dir = move.log_dir
        for log_dir in (source, move.log_dir):
            log_dir.forget(partition.topic_partition)
        self._parts.placement.remove(source)
        self._parts.workers.submit_in_order(self._parts.compactor.relocate, partition, source)
        self._write_checkpoints()
        self._remove_later(partition, retired)

    def _remove_later(self, partition: Partition, path: Path) -> None:
        self._parts.remove_later(partition.config.file_delete_delay_ms, [path])

    def _failed(self, move: _Move, outcome: str, error: BaseException | None) -> MoveStep:
        if outcome == "gone" or error is None:
            return MoveStep.END
        partition = move.partition
        if not is_disk_failure(error):
            logger.warning("moving the replica %s to %s is tried again: %s", partition, move.log_dir.path, error)
            return MoveStep.WAIT
        logger.error("the replica %s stays in %s: %s", partition, partition.log_dir.path, error)
        if move.decisions.on_failed():
            self._assign(move.key, partition.log_dir.directory_id)
        failed = partition.log if outcome == "source" else move.log
        if failed.poisoned is not None:
            self._on_log_dir_failed(partition.log_dir if outcome == "source" else move.log_dir, error)
        return MoveStep.END

    # -- the end of a move ---------------------------------------------------------------------------------------

    async def _end(self, move: _Move, *, is_deleted: bool) -> None:
        async with self._turn:
            await self._cancel(move, is_deleted=is_deleted)

    async def _cancel(self, move: _Move, *, is_deleted: bool) -> None:
        """End a move; its copy is deleted, or closed and found again at start."""
        if self._moves.get(move.key) is not move:
            return
        partition = move.partition
        is_reverted = move.decisions.cancel()
        await self._release(move)
        if self._moves.pop(move.key, None) is None:
            return  # the copy has taken the log's place just now
        partition.future = None
        self._parts.placement.remove(move.log_dir)
        if is_reverted and self._assigned_directory(partition) is not None and partition.log_dir.is_online:
            self._assign(move.key, partition.log_dir.directory_id)
        self._parts.workers.submit_in_order(self._parts.compactor.resume, partition.topic_partition)
        logger.info("the replica %s moves no more to %s", partition, move.log_dir.path)
        if not is_deleted or not move.log_dir.is_online:
            await self._on_thread(partial(_close, move.log))
            return
        path = as_path(move.log.path)
        await self._on_thread(move.log.discard)
        try:
            retired = await self._on_thread(partial(move.log_dir.mark_future, path, "delete"))
        except LogError as error:
            logger.error("%s", error)
            if is_disk_failure(error.__cause__ or error):
                self._on_log_dir_failed(move.log_dir, error)
            return
        self._remove_later(partition, retired)

    async def _release(self, move: _Move) -> None:
        """Wait for the end of what is being copied or replaced."""
        move.wake.set()
        if move.task is not None:
            await asyncio.gather(move.task, return_exceptions=True)
        if move.decisions.state is not MoveState.DONE:
            await self._on_thread(partial(move.partition.replica.set_future, None))

    # -- stop ----------------------------------------------------------------------------------------------------

    async def stop(self) -> bool:
        """End all work and close the copies, which the next run goes on with.

        Returns:
            False when one of them could not be closed cleanly.
        """
        self._is_stopped = True
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        are_closed = True
        for move in list(self._moves.values()):
            move.decisions.cancel()
            await self._release(move)
            if self._moves.pop(move.key, None) is not None:
                move.partition.future = None
                are_closed &= await self._on_thread(partial(_close, move.log))
        self._threads.shutdown(wait=True)
        return are_closed

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _on_thread(self, call: Callable[[], Any]) -> Any:
        return await self._parts.loop.run_in_executor(self._threads, call)


def _close(log: Log) -> bool:
    try:
        log.close()
    except (LogError, OSError):
        logger.exception("the copy in %s was not closed cleanly", log.path)
        return False
    return True
