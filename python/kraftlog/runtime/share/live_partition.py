"""A share partition on its leader: the state machine, its timer, and its writes to the share coordinator in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraftlog.coordinator.share.share_partition import (
    Acknowledgement,
    Acquired,
    AcquireLimits,
    SharePartition,
    SharePartitionSettings,
    StateWrite,
)
from kraftlog.coordinator.share.state_batches import StateBatch
from kraftlog.errors import CorruptRecordError, ErrorCode, KafkaError, LogError
from kraftlog.ordered_set import OrderedSet
from kraftlog.runtime.share.batch_bounds import BatchBounds, ascending_bounds

if TYPE_CHECKING:
    from kraftlog._kraftlog import FileSlice
    from kraftlog.coordinator.share.share_key import ShareKey
    from kraftlog.runtime.coordinator.shard_registry import TaskGroup
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.share.persister import ShareStatePersister

__all__ = ["LivePartition", "PartitionMeter", "SharedRecords", "StartOffset"]

logger = logging.getLogger(__name__)

StartOffset = Callable[["Partition"], int]
"""Finds the offset at which a group begins to read a partition."""

_BATCHES_MAX: Final = 4096
_COORDINATOR: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
_FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_AS_THEY_ARE: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def mapped_error(code: int) -> int:
    """What a member hears of an error of the share coordinator (``SharePartition.fetchPersisterError``)."""
    if code in _COORDINATOR:
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if code in _FENCED:
        return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return code if code in _AS_THEY_ARE else int(ErrorCode.UNKNOWN_SERVER_ERROR)


class PartitionMeter(Protocol):
    """Counts what happens to the records of one share partition."""

    def on_lock_timeout(self, record_count: int) -> None:
        """The locks of so many records ended."""
        ...

    def on_acquired(self, record_count: int) -> None:
        """So many records were handed out together, for the first time."""
        ...


class SharedRecords:
    """What one fetch gives of a share partition: a slice of the log, and the offsets that the member has now."""

    __slots__ = ("acquired", "records")

    def __init__(self, records: FileSlice | None, acquired: list[Acquired]) -> None:
        self.records = records
        self.acquired = acquired


class LivePartition:
    """One share partition while this node leads its partition.

    Args:
        key: Names it.
        partition: Led by this node.
        settings: Of the group, now.
        is_read_committed: Whether the group reads committed records only, now.
        start_offset: Where the group begins if nothing is stored.
        persister: The way to the share coordinator.
        tasks: Run the requests.
        now_ms: Wall clock.
        on_fenced: Called when the state machine is of no use any more.
        on_loaded: Takes how many milliseconds the state took to load.
        meter: Counts what happens to its records.

    Attributes:
        leader_epoch: In which this node leads; another one ends this object.
        error_code: Why it cannot be used; 0 while it can, or while it loads.
        meter: As given.
    """

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        *,
        settings: Callable[[], SharePartitionSettings],
        is_read_committed: Callable[[], bool],
        start_offset: StartOffset,
        persister: ShareStatePersister,
        tasks: TaskGroup,
        now_ms: Callable[[], int],
        on_fenced: Callable[[LivePartition], None],
        on_loaded: Callable[[float], None],
        meter: PartitionMeter,
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.error_code = 0
        self._settings = settings
        self._is_read_committed = is_read_committed
        self._start_offset = start_offset
        self._persister = persister
        self._tasks = tasks
        self._now_ms = now_ms
        self._on_fenced = on_fenced
        self._on_loaded = on_loaded
        self.meter = meter
        self._loop = asyncio.get_running_loop()
        self._core: SharePartition | None = None
        self._state_epoch = 0
        self._timer: asyncio.TimerHandle | None = None
        self._queue: deque[StateWrite] = deque()
        self._is_writing = False
        self._told_damage: set[str] = set()
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._waiters: OrderedSet[Callable[[], None]] = OrderedSet()
        self.loaded: asyncio.Task[Any] = tasks.spawn(self._load())

    # -- life ---------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        began_s = self._loop.time()
        result = await self._persister.read(self.key, leader_epoch=self.leader_epoch)
        if self.error_code:
            return
        if result.error_code:
            self.fence(mapped_error(result.error_code))
            return
        try:
            offset = result.start_offset
            if offset < 0:
                offset = self._start_offset(self.partition)
            batches = [
                StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in result.state_batches
            ]
            self._core = SharePartition(self._settings, offset, batches)
        except (ValueError, LogError, OSError, CorruptRecordError):
            self.fence(int(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._state_epoch = result.state_epoch
        self._on_loaded((self._loop.time() - began_s) * 1000)
        self._wake()

    @property
    def is_loaded(self) -> bool:
        """Whether the state has been read."""
        return self._core is not None and not self.error_code

    @property
    def in_flight(self) -> tuple[int, int]:
        """How many offsets and batches the window has; any thread may ask."""
        return (0, 0) if self._core is None else self._core.in_flight

    def fence(self, error_code: int) -> None:
        """End it: everyone who waits gets the error, and the next use reads the state again."""
        if self.error_code:
            return
        self.error_code = error_code
        if self._timer is not None:
            self._timer.cancel()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_result(error_code)
        self._waiting.clear()
        self._queue.clear()
        self._on_fenced(self)
        self._wake()

    def add_waiter(self, waiter: Callable[[], None]) -> None:
        """Call ``waiter`` when records may be available that were not."""
        self._waiters.add(waiter)

    def remove_waiter(self, waiter: Callable[[], None]) -> None:
        """A long poll is over."""
        self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in list(self._waiters):
            waiter()

    # -- fetching -----------------------------------------------------------------------------------------------

    def readable(self, max_bytes: int) -> FileSlice | None:
        """What could be acquired now, not acquired yet.

        Raises:
            KafkaError: The log cannot be read.
        """
        core = self._core
        if core is None:
            return None
        try:
            core.log_start_moved(self.partition.log.log_start_offset)
            offset = core.fetch_offset()
            end_offset = self._end_offset()
            if offset is None or offset >= end_offset:
                return None
            records = self.partition.log.read(offset, max_bytes=max_bytes, end_offset=end_offset)
        except CorruptRecordError as error:
            self._tell_damage(error)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except (LogError, OSError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return records if records.size_bytes else None

    def _end_offset(self) -> int:
        high_watermark = self.partition.high_watermark
        if self._is_read_committed():
            return min(self.partition.last_stable_offset, high_watermark)
        return high_watermark

    def acquire(self, member_id: str, limits: AcquireLimits, max_bytes: int) -> SharedRecords:
        """Read, and acquire what was read.

        Raises:
            KafkaError: The log cannot be read.
        """
        core = self._core
        records = self.readable(max_bytes)
        if core is None or records is None:
            return SharedRecords(None, [])
        offset = core.fetch_offset()
        if offset is None:
            return SharedRecords(None, [])
        bounds = self._bounds(records, offset, core, limits)
        if not bounds:
            return SharedRecords(None, [])
        aborted = self._aborted(bounds) if self._is_read_committed() else []
        fetched = [(max(batch.first, offset), batch.last) for batch in bounds]
        if offset < core.next_offset:
            # The log has lost offsets that are in flight: the member reports them as gaps.
            fetched[0] = (offset, fetched[0][1])
        acquired = core.acquire(member_id, fetched, limits, self._now_ms(), aborted=aborted)
        self._carry_out()
        if not acquired:
            return SharedRecords(None, [])
        for part in acquired:
            if part.delivery_count == 1:
                self.meter.on_acquired(part.last - part.first + 1)
        # A part of what was read: another read could fail, and no member would get what counts as delivered now.
        first, last = acquired[0].first, acquired[-1].last
        position = next((batch.position for batch in bounds if batch.last >= first), bounds[-1].position)
        end_position = next((batch.end_position for batch in bounds if batch.last >= last), bounds[-1].end_position)
        return SharedRecords(records.part(position, end_position - position), acquired)

    def _bounds(
        self, records: FileSlice, offset: int, core: SharePartition, limits: AcquireLimits
    ) -> list[BatchBounds]:
        """The batches that matter: not more than one fetch can acquire beyond the window.

        The window takes a gap between them for what compaction removed. One that comes of batches that do not ascend is
        damage: what lies before it is handed out, and nothing behind it.

        Raises:
            KafkaError: CORRUPT_MESSAGE, nothing lies before the damage; KAFKA_STORAGE_ERROR, the file cannot be read.
        """
        enough = max(core.next_offset, offset) + max(limits.max_records, limits.batch_size)
        found: list[BatchBounds] = []
        try:
            for batch in ascending_bounds(records, offset):
                found.append(batch)
                if batch.last >= enough or len(found) >= _BATCHES_MAX:
                    break
        except CorruptRecordError as error:
            self._tell_damage(error)
            if not found:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return found

    def _tell_damage(self, error: CorruptRecordError) -> None:
        """Log it, once for as long as members ask again and again."""
        if str(error) not in self._told_damage:
            self._told_damage.add(str(error))
            logger.error("share group %s gets nothing from here on: %s", self.key.group_id, error)

    def _aborted(self, bounds: Sequence[BatchBounds]) -> list[tuple[int, int]]:
        first, end = bounds[0].first, bounds[-1].last + 1
        transactions = self.partition.log.aborted_transactions(first, end)
        return [
            (batch.first, batch.last)
            for batch in bounds
            if batch.producer_id >= 0
            and any(
                producer_id == batch.producer_id and begin <= batch.first and batch.last <= last
                for producer_id, begin, last, _ in transactions
            )
        ]

    # -- acknowledging ------------------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Sequence[Acknowledgement]) -> asyncio.Future[int] | int:
        """Take acknowledgements: the error code, or a future of it when something has to be stored."""
        core = self._core
        if core is None:
            # Nobody can have acquired anything.
            return int(self.error_code or ErrorCode.INVALID_RECORD_STATE)
        try:
            write_id = core.acknowledge(member_id, batches, self._now_ms())
        except KafkaError as error:
            return int(error.code)
        self._arm_timer()
        return 0 if write_id is None else self._wait_for(write_id)

    def release(self, member_id: str) -> asyncio.Future[int] | int:
        """A member is gone: what it acquired is available again."""
        core = self._core
        write_id = None if core is None or self.error_code else core.release(member_id)
        return 0 if write_id is None else self._wait_for(write_id)

    def _wait_for(self, write_id: int) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting[write_id] = future
        self._carry_out()
        return future

    # -- effects ------------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        if self._core is None or self.error_code:
            return
        self._queue.extend(self._core.take_writes())
        if self._queue and not self._is_writing:
            self._is_writing = True
            self._tasks.spawn(self._write())
        self._arm_timer()

    async def _write(self) -> None:
        try:
            while self._queue and not self.error_code and self._core is not None:
                write = self._queue.popleft()
                result = await self._persister.write(
                    self.key, write, state_epoch=self._state_epoch, leader_epoch=self.leader_epoch
                )
                if not self.is_loaded:
                    return
                code = mapped_error(result.error_code) if result.error_code else 0
                self._core.on_written(write.write_id, code)
                future = self._waiting.pop(write.write_id, None)
                if future is not None and not future.done():
                    future.set_result(code)
                if result.error_code in _FENCED or code in _AS_THEY_ARE:
                    self.fence(code)
                self._arm_timer()
                self._wake()
        finally:
            self._is_writing = False

    def _arm_timer(self) -> None:
        core = self._core
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_ms = None if core is None or self.error_code else core.next_timeout_ms()
        if at_ms is not None:
            self._timer = self._loop.call_later(max(0, at_ms - self._now_ms()) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._core is not None and not self.error_code:
            ended_count = self._core.handle_timeout(self._now_ms())
            if ended_count:
                self.meter.on_lock_timeout(ended_count)
            self._carry_out()
            self._wake()
