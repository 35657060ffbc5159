"""One topic partition on this node: the log and the replica state machine brought together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, assert_never

from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, PoisonedLogError
from kraftlog.partition.effects import (
    AckCompleted,
    AssignEpochStart,
    FlushLog,
    HighWatermarkAdvanced,
    LeadershipChanged,
)
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.types import TopicPartition

if TYPE_CHECKING:
    from typing import Any

    from kraftlog._kraftlog import AppendInfo, Log
    from kraftlog.partition.replica import Assignment, PartitionReplica
    from kraftlog.runtime.replica.flusher import Flusher
    from kraftlog.runtime.replica.topic_config import TopicConfig
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.types import Uuid

__all__ = ["Partition", "PartitionWaiter"]

logger = logging.getLogger(__name__)


AppendOrigin = Literal["client", "coordinator"]
AppendCompleted = Callable[["AppendInfo | None", "KraftlogError | None"], None]

_ATTRIBUTES_POSITION = 22
_COMPRESSION_MASK = 7
_COMPRESSED_ON_THREAD_FROM_BYTES = 64 * 1024
_ON_THREAD_FROM_BYTES = 4 * 1024 * 1024
_RETRY_S = 1.0


class PartitionWaiter(Protocol):
    """Someone who wants to know when there may be more to read."""

    def partition_moved(self, partition: Partition) -> None:
        """The high watermark, the leader or the log start of ``partition`` changed."""


class _QueuedEpochStart:
    """An epoch whose beginning waits for its turn, or is being written on a thread; appends wait behind it."""

    __slots__ = ("leader_epoch", "start_offset")

    def __init__(self, leader_epoch: int, start_offset: int) -> None:
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset


class _QueuedAppend:
    """A batch that waits for its turn, or is being appended on a thread."""

    __slots__ = ("acks", "completed", "origin", "records")

    def __init__(self, records: Any, acks: int, origin: AppendOrigin, completed: AppendCompleted) -> None:
        self.records = records
        self.acks = acks
        self.origin = origin
        self.completed = completed


class Partition:
    """The shell around one :class:`PartitionReplica` and its log. All methods run on the node's loop.

    Attributes:
        waiters: Long polls to tell when the high watermark or the leadership moves.
        log_dir: The data directory that holds the log.
    """

    __slots__ = (
        "_append_queue",
        "_flush_timer",
        "_flusher",
        "_is_closed",
        "_on_storage_failed",
        "config",
        "index",
        "log",
        "log_dir",
        "loop",
        "replica",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self,
        *,
        topic: str,
        topic_id: Uuid,
        index: int,
        log: Log,
        replica: PartitionReplica,
        config: TopicConfig,
        log_dir: LogDir,
        flusher: Flusher,
        loop: asyncio.AbstractEventLoop,
        on_storage_failed: Callable[[Partition, BaseException], None],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.replica = replica
        self.config = config
        self.log_dir = log_dir
        self.loop = loop
        self.waiters: set[PartitionWaiter] = set()
        self._append_queue: deque[_QueuedAppend | _QueuedEpochStart] = deque()
        self._flusher = flusher
        self._flush_timer: asyncio.TimerHandle | None = None
        self._on_storage_failed = on_storage_failed
        self._is_closed = False

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic name and index."""
        return TopicPartition(self.topic, self.index)

    @property
    def leader_id(self) -> int:
        """The leader the metadata names, -1 for none."""
        return self.replica.leader_id

    @property
    def leader_epoch(self) -> int:
        """The epoch the metadata gives."""
        return self.replica.leader_epoch

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""
        return self.replica.is_leader

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is committed."""
        return self.replica.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what a read_committed consumer may see."""
        first_unstable = self.log.first_unstable_offset
        high_watermark = self.replica.high_watermark
        return high_watermark if first_unstable is None else min(high_watermark, first_unstable)

    def append_as_leader(
        self, records: Any, *, acks: int, completed: AppendCompleted, origin: AppendOrigin = "client"
    ) -> AppendInfo | None:
        """Append one batch; with acks=all the caller then waits with ``wait_for_ack``.

        A batch that takes the engine long (large and compressed, or to be compressed anew) is appended on a thread,
        and whatever comes for this partition meanwhile queues up behind it: the order of the calls is kept.

        Args:
            records: The batch.
            acks: -1 refuses when there are too few in-sync replicas.
            completed: Called with the outcome if, and only if, None is returned.
            origin: Who appends.

        Returns:
            What was appended, or None when ``completed`` will be told.

        Raises:
            KafkaError: Not the leader, too few in-sync replicas, or what the engine refuses; nothing is appended.
            CorruptRecordError: The batch is damaged; nothing is appended.
        """
        if self._append_queue or self._takes_long(records):
            self._append_queue.append(_QueuedAppend(records, acks, origin, completed))
            if len(self._append_queue) == 1:
                self._append_queued()
            return None
        return self._append_now(records, acks, origin)

    def _takes_long(self, records: Any) -> bool:
        size_bytes = len(records)
        if size_bytes < _COMPRESSED_ON_THREAD_FROM_BYTES:
            return False
        if records[_ATTRIBUTES_POSITION] & _COMPRESSION_MASK or self.config.recompresses:
            return True
        return size_bytes >= _ON_THREAD_FROM_BYTES

    def _check_append(self, acks: int) -> None:
        error_code = self.replica.check_append(acks)
        if error_code:
            raise KafkaError(error_code)

    def _append_now(self, records: Any, acks: int, origin: AppendOrigin) -> AppendInfo:
        self._check_append(acks)
        try:
            info = self._append_to_log(records, origin)
        except (PoisonedLogError, OSError) as error:
            self.storage_failed(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._on_appended(info)
        return info

    def _append_to_log(self, records: Any, origin: AppendOrigin) -> AppendInfo:
        return self.log.append_as_leader(
            records, leader_epoch=self.replica.leader_epoch, now_ms=time.time_ns() // 1_000_000, origin=origin
        )

    def _on_appended(self, info: AppendInfo) -> None:
        if not info.duplicate:
            end_offset = info.last_offset + 1
            self.replica.on_appended(end_offset)
            self._carry_out()
            if end_offset - self.log.recovery_point >= self.config.flush_messages:
                self._flusher.request(self)
            elif self._flush_timer is None and self.config.flush_ms is not None:
                self._flush_timer = self.loop.call_later(self.config.flush_ms / 1000, self._flush_in_time)

    def _flush_in_time(self) -> None:
        """``flush.ms`` is over since the first record that was not flushed."""
        self._flush_timer = None
        if not self._is_closed and self.log.recovery_point < self.replica.log_end_offset:
            self._flusher.request(self)

    def _append_queued(self) -> None:
        """Append what is queued, in order, until something takes long again."""
        while self._append_queue:
            first = self._append_queue[0]
            if isinstance(first, _QueuedEpochStart):
                future = self.loop.run_in_executor(
                    None, self.log.assign_epoch_start, first.leader_epoch, first.start_offset
                )
                future.add_done_callback(self._epoch_start_ended)
                return
            try:
                if self._takes_long(first.records):
                    self._check_append(first.acks)
                    append = self.loop.run_in_executor(None, self._append_to_log, first.records, first.origin)
                    append.add_done_callback(partial(self._append_ended, first))
                    return
                info = self._append_now(first.records, first.acks, first.origin)
            except KraftlogError as error:
                self._append_queue.popleft()
                first.completed(None, error)
            else:
                self._append_queue.popleft()
                first.completed(info, None)

    def _epoch_start_ended(self, future: asyncio.Future[None]) -> None:
        self._append_queue.popleft()
        error = None if future.cancelled() else future.exception()
        if error is not None:
            # For want of a descriptor it is written by the epoch's first append.
            self.storage_failed(error)
        self._append_queued()

    def _append_ended(self, first: _QueuedAppend, future: asyncio.Future[AppendInfo]) -> None:
        self._append_queue.popleft()
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            first.completed(None, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif error is None:
            info = future.result()
            self._on_appended(info)
            first.completed(info, None)
        elif isinstance(error, KraftlogError) and not isinstance(error, PoisonedLogError):
            first.completed(None, error)
        else:
            self.storage_failed(error)
            first.completed(None, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        self._append_queued()

    def append_coordinator(self, records: bytes) -> asyncio.Future[int]:
        """Append a coordinator's own batch; the future gives the last offset once it is committed.

        The future ends with KafkaError when the append is refused or leadership is lost before the commit.
        """
        future: asyncio.Future[int] = self.loop.create_future()

        def appended(info: AppendInfo | None, error: KraftlogError | None) -> None:
            if future.done():
                return
            if info is None:
                future.set_exception(error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
                return
            self.wait_for_ack(info.last_offset + 1, lambda error_code: committed(info.last_offset, error_code))

        def committed(last_offset: int, error_code: int) -> None:
            if future.done():
                return
            if error_code:
                future.set_exception(KafkaError(error_code))
            else:
                future.set_result(last_offset)

        try:
            info = self.append_as_leader(records, acks=-1, completed=appended, origin="coordinator")
        except KraftlogError as error:
            future.set_exception(error)
            return future
        if info is not None:
            appended(info, None)
        return future

    def wait_for_ack(self, end_offset: int, completed: Callable[[int], None]) -> None:
        """Call ``completed(error_code)`` once everything below ``end_offset`` is committed, or can no longer be."""
        self.replica.wait_for_ack(end_offset, completed)
        self._carry_out()

    def handle_assignment(self, assignment: Assignment, now_ms: int) -> None:
        """Follow the metadata."""
        self.replica.handle_assignment(assignment, now_ms)
        self._carry_out()

    def update_config(self, config: TopicConfig) -> None:
        """Follow the topic's settings."""
        self.config = config
        self.log.update_config(config.log_config)
        self.replica.update_min_insync_replicas(config.min_insync_replicas)
        self._carry_out()

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch not above ``leader_epoch``, exclusive end of it); (-1, -1) when there is no telling."""
        if leader_epoch < 0:
            return -1, -1
        return self.log.end_offset_for_epoch(leader_epoch)

    def delete_records(self, offset: int) -> None:
        """Move the log start up to ``offset``, which is at most the high watermark."""
        self.log.advance_log_start_offset(offset)
        self.notify()

    def request_flush(self) -> None:
        """Make what was appended durable soon."""
        self._flusher.request(self)

    def on_flushed(self, flushed_offset: int) -> None:
        """The flusher made everything below ``flushed_offset`` durable."""
        self.replica.on_flushed(flushed_offset)
        self._carry_out()

    def on_flush_failed(self, error: KraftlogError | OSError) -> None:
        """An fsync failed: the log is poisoned, nothing that waits can be promised any more.

        If the files could not even be opened, nothing has failed yet: the flush is tried again.
        """
        if is_disk_failure(error):
            self.storage_failed(error)
        elif not self._is_closed:
            logger.warning("flushing partition %s is tried again in %g s: %s", self, _RETRY_S, error)
            self.loop.call_later(_RETRY_S, self._flush_again)

    def _flush_again(self) -> None:
        if not self._is_closed:
            self._flusher.request(self)

    def storage_failed(self, error: BaseException) -> None:
        """The log takes no more writes; its whole directory goes offline, as in Kafka.

        Nothing goes offline if the process merely has no descriptor left: the request alone fails.
        """
        if self._is_closed:
            return
        if not is_disk_failure(error):
            logger.warning("partition %s: %s", self, error)
            return
        logger.error("partition %s is offline: %s", self, error)
        self.replica.on_log_failed()
        self._carry_out()
        # Not from within: a loop over the partitions finds them all now.
        self.loop.call_soon(self._on_storage_failed, self, error)

    def close(self) -> None:
        """Tell everyone who waits that this replica is gone; the log stays open."""
        self._is_closed = True
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self.replica.close()
        self._carry_out()

    def notify(self) -> None:
        """Tell the long polls that wait here."""
        if self.waiters:
            for waiter in list(self.waiters):
                waiter.partition_moved(self)

    def _carry_out(self) -> None:
        for effect in self.replica.take_effects():
            match effect:
                case HighWatermarkAdvanced(high_watermark):
                    self.log.update_high_watermark(high_watermark)
                    self.notify()
                case FlushLog():
                    self._flusher.request(self)
                case AckCompleted(token, error_code):
                    token(error_code)
                case LeadershipChanged():
                    self.notify()
                case AssignEpochStart(leader_epoch, start_offset):
                    self._begin_epoch(leader_epoch, start_offset)
                case _:
                    assert_never(effect)

    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Write where an epoch begins, on a thread; the opener of the log may have done so."""
        if self.log.latest_epoch == leader_epoch:
            return
        self._append_queue.append(_QueuedEpochStart(leader_epoch, start_offset))
        if len(self._append_queue) == 1:
            self._append_queued()
