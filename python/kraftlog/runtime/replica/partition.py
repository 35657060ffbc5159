"""One topic partition on this node: the log and the replica state machine brought together."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from kraftlog import host
from kraftlog._kraftlog import Partition as NativePartition
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, PoisonedLogError
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.types import TopicPartition

if TYPE_CHECKING:
    from typing import Any

    from kraftlog._kraftlog import Appended, Log
    from kraftlog.partition.assignment import Assignment
    from kraftlog.runtime.replica.replica_threads import ReplicaThreads
    from kraftlog.runtime.replica.topic_config import TopicConfig
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.types import Uuid

__all__ = ["AppendTerms", "FutureReplica", "Partition", "PartitionWaiter", "ReplicaStart"]

logger = logging.getLogger(__name__)


AppendOrigin = Literal["client", "coordinator"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendTerms:
    """Who appends, and what only transactions need to say.

    Attributes:
        transaction_version: Of the coordinator that writes a marker; a marker without it is refused.
        guard: What ``begin_verification`` of the log gave before the transaction was verified.
        requires_verification: Whether a transactional batch has to be part of a verified transaction (KIP-890).
    """

    origin: AppendOrigin = "client"
    transaction_version: int | None = None
    guard: int | None = None
    requires_verification: bool = False


_CLIENT = AppendTerms()
AppendCompleted = Callable[["Appended | None", "KraftlogError | None"], None]

_ATTRIBUTES_POSITION = 22
_COMPRESSION_MASK = 7
# 256 bytes of zstd can hold eight megabytes, which take ten milliseconds and more to look through.
_COMPRESSED_ON_THREAD_FROM_BYTES = 256
_ON_THREAD_FROM_BYTES = 4 * 1024 * 1024


class PartitionWaiter(Protocol):
    """Waits until there may be more to read."""

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

    __slots__ = ("acks", "completed", "records", "terms")

    def __init__(self, records: Any, acks: int, terms: AppendTerms, completed: AppendCompleted) -> None:
        self.records = records
        self.acks = acks
        self.terms = terms
        self.completed = completed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStart:
    """With what the replica of an opened log begins.

    Attributes:
        flush_on_ack: Whether the leader's own records count as replicated only once they are durable.
        high_watermark: As the checkpoint had it, within the log.
    """

    node_id: int
    flush_on_ack: bool
    high_watermark: int


@dataclass(frozen=True, slots=True)
class FutureReplica:
    """The copy of a log in another data directory, which is to take its place."""

    log: Log
    log_dir: LogDir


class Partition:
    """One partition on the node's loop. The log and the state machine of the replica are behind one native lock.

    I/O threads may append to it, and the flush pool moves its high watermark; the loop learns of that through its
    inbox.
    All methods run on the loop.

    Attributes:
        replica: The log and the state machine under their lock.
        log_dir: The data directory that holds the log.
        future: Its copy in another one, while it moves there.
    """

    __slots__ = (
        "_append_number",
        "_append_queue",
        "_append_waiters",
        "_flush_timer",
        "_is_closed",
        "_is_failed",
        "_is_watched",
        "_node_id",
        "_number",
        "_on_storage_failed",
        "_threads",
        "_waiters",
        "config",
        "future",
        "index",
        "log",
        "log_dir",
        "loop",
        "replica",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic: str,
        topic_id: Uuid,
        index: int,
        log: Log,
        start: ReplicaStart,
        config: TopicConfig,
        log_dir: LogDir,
        threads: ReplicaThreads,
        on_storage_failed: Callable[[Partition, BaseException], None],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.config = config
        self.log_dir = log_dir
        self.future: FutureReplica | None = None
        self.loop = threads.loop
        self._threads = threads
        # None where most partitions have nothing: each object here is one more per partition for the collector.
        # Keys in the order in which they began to wait: the caller that has waited longest is served first.
        self._waiters: dict[PartitionWaiter, None] | None = None
        self._append_waiters: dict[PartitionWaiter, None] | None = None
        self._is_watched = False
        self._append_queue: deque[_QueuedAppend | _QueuedEpochStart] | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._on_storage_failed = on_storage_failed
        self._is_closed = False
        self._is_failed = False
        self._node_id = start.node_id
        self._number = threads.inbox.next_number()
        self.replica = NativePartition(
            topic=topic,
            topic_id=bytes(topic_id),
            index=index,
            log=log,
            node_id=start.node_id,
            flush_on_ack=start.flush_on_ack,
            min_insync_replicas=config.min_insync_replicas,
            high_watermark=start.high_watermark,
            flushed_offset=min(log.recovery_point, log.log_end_offset),
            pool=threads.flush_pools[log_dir],
            inbox=threads.inbox.native,
            number=self._number,
        )
        threads.inbox.add_partition(self._number, self)
        self._append_number = 0
        self._update_replica()

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
        return self.replica.last_stable_offset

    def append_as_leader(
        self, records: Any, *, acks: int, completed: AppendCompleted, terms: AppendTerms = _CLIENT
    ) -> Appended | None:
        """Append one batch; with acks=all the caller then waits with ``wait_for_ack``.

        A batch that takes the engine long (large and compressed, or to be compressed anew) is appended on a thread,
        and whatever comes for this partition meanwhile queues up behind it: the order of the calls is kept.

        Args:
            records: The batch.
            acks: -1 refuses when there are too few in-sync replicas.
            completed: Called with the outcome if, and only if, None is returned.
            terms: Who appends.

        Returns:
            What was appended, or None when ``completed`` will be told.

        Raises:
            KafkaError: Not the leader, too few in-sync replicas, or what the engine refuses; nothing is appended.
            CorruptRecordError: The batch is damaged; nothing is appended.
        """
        if self._append_queue or self._takes_long(records):
            self._enqueue(_QueuedAppend(records, acks, terms, completed))
            return None
        return self._append_now(records, acks, terms)

    def _takes_long(self, records: Any) -> bool:
        size_bytes = len(records)
        if size_bytes < _COMPRESSED_ON_THREAD_FROM_BYTES:
            return False
        if records[_ATTRIBUTES_POSITION] & _COMPRESSION_MASK or self.config.recompresses:
            return True
        return size_bytes >= _ON_THREAD_FROM_BYTES

    def _append_now(self, records: Any, acks: int, terms: AppendTerms) -> Appended:
        try:
            appended = self._append_to_log(records, acks, terms)
        except (PoisonedLogError, OSError) as error:
            self.storage_failed(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if appended.needs_flush:
            self._threads.flush_requests.request(self.replica)
        return appended

    def _append_to_log(self, records: Any, acks: int, terms: AppendTerms) -> Appended:
        return self.replica.append(
            records,
            acks=acks,
            now_ms=host.wall_ms(),
            origin=terms.origin,
            transaction_version=terms.transaction_version,
            guard=terms.guard,
            requires_verification=terms.requires_verification,
        )

    def _enqueue(self, queued: _QueuedAppend | _QueuedEpochStart) -> None:
        if self._append_queue is not None:
            self._append_queue.append(queued)
        else:
            self._append_queue = deque([queued])
            # What I/O threads receive meanwhile is handed over and queues up, too.
            self.replica.hold(True)
            self._append_queued()

    def _append_queued(self) -> None:
        """Append what is queued, in order, until something takes long again."""
        queue = self._append_queue
        while queue:
            first = queue[0]
            if isinstance(first, _QueuedEpochStart):
                # Not once it follows: the epochs are its leader's affair then.
                future = self.loop.run_in_executor(
                    None, self.replica.write_epoch_start, first.leader_epoch, first.start_offset
                )
                future.add_done_callback(self._epoch_start_ended)
                return
            if self._takes_long(first.records):
                append = self.loop.run_in_executor(None, self._append_to_log, first.records, first.acks, first.terms)
                append.add_done_callback(partial(self._append_ended, first))
                return
            try:
                appended = self._append_now(first.records, first.acks, first.terms)
            except KraftlogError as error:
                queue.popleft()
                first.completed(None, error)
            else:
                queue.popleft()
                first.completed(appended, None)
        self._append_queue = None
        self.replica.hold(False)

    def _take_first(self) -> None:
        """The first of the queue has ended on its thread."""
        if self._append_queue is not None:
            self._append_queue.popleft()

    def _epoch_start_ended(self, future: asyncio.Future[None]) -> None:
        self._take_first()
        error = None if future.cancelled() else future.exception()
        if error is not None:
            # For want of a descriptor it is written by the epoch's first append.
            self.storage_failed(error)
        self._append_queued()

    def _append_ended(self, first: _QueuedAppend, future: asyncio.Future[Appended]) -> None:
        self._take_first()
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            first.completed(None, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif error is None:
            appended = future.result()
            if appended.needs_flush:
                self._threads.flush_requests.request(self.replica)
            first.completed(appended, None)
        elif isinstance(error, KraftlogError) and not isinstance(error, PoisonedLogError):
            first.completed(None, error)
        else:
            self.storage_failed(error)
            first.completed(None, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        self._append_queued()

    def append_coordinator(self, records: bytes, *, transaction_version: int | None = None) -> asyncio.Future[int]:
        """Append a coordinator's own batch; the future gives the last offset once it is committed.

        ``transaction_version`` is that of a marker.

        The future ends with KafkaError when the append is refused or leadership is lost before the commit.
        """
        future: asyncio.Future[int] = self.loop.create_future()

        def appended(info: Appended | None, error: KraftlogError | None) -> None:
            if future.done():
                return
            if info is None:
                future.set_exception(error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
                return
            self.wait_for_ack(info, lambda error_code: committed(info.last_offset, error_code))

        def committed(last_offset: int, error_code: int) -> None:
            if future.done():
                return
            if error_code:
                future.set_exception(KafkaError(error_code))
            else:
                future.set_result(last_offset)

        terms = AppendTerms(origin="coordinator", transaction_version=transaction_version)
        try:
            info = self.append_as_leader(records, acks=-1, completed=appended, terms=terms)
        except KraftlogError as error:
            future.set_exception(error)
            return future
        if info is not None:
            appended(info, None)
        return future

    def wait_for_ack(self, appended: Appended, completed: Callable[[int], None]) -> None:
        """Call ``completed(error_code)`` once what was appended is committed, or can no longer be."""
        if appended.is_committed:
            completed(ErrorCode.NONE)
            return
        inbox = self._threads.inbox
        token = inbox.expect_ack(completed)
        error_code = self.replica.wait_for_ack(
            appended.last_offset + 1, leader_epoch=appended.leader_epoch, token=token
        )
        if error_code is not None:
            inbox.forget_ack(token)
            completed(error_code)

    def handle_assignment(
        self, assignment: Assignment, now_ms: int, live_brokers: list[tuple[int, int, bool]] | None = None
    ) -> None:
        """Follow the metadata.

        A state that the replica knows says nothing new: a change of the in-sync set that builds on it stays in flight,
        as the controller may have confirmed it already (RINV-24).

        Args:
            assignment: The partition.
            now_ms: Wall clock.
            live_brokers: Of the other replicas, for a leader: broker, epoch, whether it shuts down. In force from the
                same moment on, as I/O threads answer followers meanwhile.
        """
        if (assignment.leader_epoch, assignment.partition_epoch) == (self.leader_epoch, self.replica.partition_epoch):
            if live_brokers is not None:
                self.replica.update_live_brokers(live_brokers)
            return
        epoch_start = self.replica.assign(
            leader_id=assignment.leader_id,
            leader_epoch=assignment.leader_epoch,
            partition_epoch=assignment.partition_epoch,
            replicas=assignment.replicas,
            isr=assignment.isr,
            now_ms=now_ms,
            brokers=live_brokers,
        )
        if epoch_start is not None:
            # On a thread, and appends wait behind it; the opener of the log may have written it before.
            self._enqueue(_QueuedEpochStart(*epoch_start))

    def update_config(self, config: TopicConfig) -> None:
        """Follow the topic's settings."""
        self.config = config
        self.log.update_config(config.log_config)
        self._update_replica()

    def _update_replica(self) -> None:
        self.replica.update(
            min_insync_replicas=self.config.min_insync_replicas,
            flush_messages=self.config.flush_messages,
            flushes_in_time=self.config.flush_ms is not None,
            answers_followers=self._threads.answer_followers
            and not self.config.leader_throttle.has(self.index, self._node_id),
        )

    def publish(self, *, is_published: bool) -> None:
        """Let I/O threads answer requests for this partition, or not any more."""
        self.replica.publish(is_published)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch not above ``leader_epoch``, exclusive end of it); (-1, -1) when there is no telling."""
        if leader_epoch < 0:
            return -1, -1
        found = self.log.end_offset_for_epoch(leader_epoch)
        if found[0] < 0 and self.is_leader and leader_epoch <= self.leader_epoch:
            # The beginning of the epoch is still being written, and appends wait for it (LEPO-32).
            latest_epoch = self.log.latest_epoch
            epoch = leader_epoch if latest_epoch is None or leader_epoch == self.leader_epoch else latest_epoch
            return epoch, self.replica.log_end_offset
        return found

    def delete_records(self, offset: int) -> None:
        """Move the log start up to ``offset``, which is at most the high watermark."""
        self.log.advance_log_start_offset(offset)
        self.replica.log_start_moved()

    # -- events of the inbox -------------------------------------------------------------------------------------

    def moved(self) -> None:
        """The high watermark, the leadership or the log start moved: the long polls that wait here look again."""
        if self._waiters:
            for waiter in list(self._waiters):
                waiter.partition_moved(self)
        elif self._is_watched:
            # Only now, so that a consumer that polls again and again costs no call for each of its waits.
            self._is_watched = False
            self.replica.unwatch()

    def unflushed(self) -> None:
        """The first record behind a flush was appended."""
        if self._flush_timer is None and self.config.flush_ms is not None and not self._is_closed:
            self._flush_timer = self.loop.call_later(self.config.flush_ms / 1000, self._flush_in_time)

    def _flush_in_time(self) -> None:
        """``flush.ms`` is over since the first record that was not flushed."""
        self._flush_timer = None
        self.replica.flush_in_time()

    def log_failed(self, reason: str) -> None:
        """A write or an fsync failed on another thread."""
        self.storage_failed(PoisonedLogError(reason))

    def flush_delayed(self, reason: str) -> None:
        """A flush could not open a file; the pool tries again."""
        if not self._is_closed:
            logger.warning("flushing partition %s is tried again: %s", self, reason)

    # -- waiting -------------------------------------------------------------------------------------------------

    def add_waiter(self, waiter: PartitionWaiter) -> None:
        """Tell a long poll of every move from now on. What moved before has to be looked at afterwards."""
        if self._waiters is None:
            self._waiters = {}
        self._waiters[waiter] = None
        if not self._is_watched:
            self._is_watched = True
            self.replica.watch()

    def remove_waiter(self, waiter: PartitionWaiter) -> None:
        """A long poll is over."""
        if self._waiters is not None:
            self._waiters.pop(waiter, None)

    def add_append_waiter(self, waiter: PartitionWaiter) -> None:
        """Tell a follower's long poll of every append and change of leaders from now on."""
        if self._append_waiters is None:
            self._append_waiters = {}
        self._append_waiters[waiter] = None
        if not self._append_number:
            self._append_number = self._threads.inbox.next_number()
            self._threads.inbox.add_partition(self._append_number, _Appends(self))
            self.replica.watch_appends(self._append_number)

    def remove_append_waiter(self, waiter: PartitionWaiter) -> None:
        """A follower's long poll is over."""
        if self._append_waiters is not None:
            self._append_waiters.pop(waiter, None)

    def appended(self) -> None:
        """The log grew, or the leadership changed: the followers that wait here look again."""
        if self._append_waiters:
            for waiter in list(self._append_waiters):
                waiter.partition_moved(self)
        elif self._append_number:
            self._forget_appends()

    def _forget_appends(self) -> None:
        self.replica.unwatch_appends()
        self._threads.inbox.remove_partition(self._append_number)
        self._append_number = 0

    # -- failures and the end ------------------------------------------------------------------------------------

    def storage_failed(self, error: BaseException) -> None:
        """The log takes no more writes; its whole directory goes offline, as in Kafka.

        Nothing goes offline if the process merely has no descriptor left: the request alone fails.
        """
        if self._is_closed or self._is_failed:
            return
        if not is_disk_failure(error):
            logger.warning("partition %s: %s", self, error)
            return
        self._is_failed = True
        logger.error("partition %s is offline: %s", self, error)
        self.replica.on_log_failed(str(error))
        # Not from within: a loop over the partitions finds them all now.
        self.loop.call_soon(self._on_storage_failed, self, error)

    def close(self) -> None:
        """Tell everyone who waits that this replica is gone; the log stays open."""
        self._is_closed = True
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self.replica.withdraw()
        self.moved()
        self.appended()
        if self._append_number:
            self._forget_appends()
        self._threads.inbox.remove_partition(self._number)


class _Appends:
    """The events of one partition that its followers wait for."""

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def moved(self) -> None:
        """The log grew, or the leadership changed."""
        self._partition.appended()

    def unflushed(self) -> None:
        """Told to the partition itself."""

    def log_failed(self, reason: str) -> None:
        """Told to the partition itself."""

    def flush_delayed(self, reason: str) -> None:
        """Told to the partition itself."""
