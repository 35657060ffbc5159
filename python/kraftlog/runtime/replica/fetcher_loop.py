"""The shell of a replica fetcher: asks the leader, appends what comes, cuts what the leader does not have."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kraftlog import host
from kraftlog._kraftlog import append_fetched
from kraftlog.errors import CorruptRecordError, ErrorCode, KafkaError, KraftlogError, LogError, PoisonedLogError
from kraftlog.metrics.meter import Meter
from kraftlog.partition.replica_fetcher import (
    Answer,
    FetchRound,
    FetchStart,
    Next,
    NextStep,
    ReplicaFetcher,
    truncation_offset,
)
from kraftlog.storage.disk_failure import is_disk_failure
from kraftlog.transport.timed_event import TimedEvent
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from kraftlog.runtime.replica.leader_link import LeaderLink
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.replica.registry import PartitionKey, Partitions
    from kraftlog.storage.log_dir import LogDir

__all__ = ["ConnectionLost", "FetcherLoop", "FetcherSettings", "FetcherShell"]

logger = logging.getLogger(__name__)

_FETCH_LOWEST = 13  # topic ids
# Larger answers are appended on a thread, as are all that have to be flushed.
_ON_LOOP_BYTES_MAX = 64 * 1024
_LATEST, _EARLIEST = -1, -2
# While throttled partitions are held, the rate is looked at so often.
_QUOTA_WAIT_MS = 100


class ConnectionLost(Protocol):
    """Is told of leaders that cannot be reached."""

    def __call__(self, broker_id: int, *, was_open: bool) -> None:
        """The connection to this leader ended, or could not be made."""


def _ignore_loss(broker_id: int, *, was_open: bool) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """How this broker follows others.

    Attributes:
        node_id: This broker.
        fetchers_per_leader: num.replica.fetchers.
        backoff_ms: replica.fetch.backoff.ms.
        wait_max_ms: replica.fetch.wait.max.ms.
        min_bytes: replica.fetch.min.bytes.
        max_bytes: replica.fetch.response.max.bytes.
        partition_max_bytes: replica.fetch.max.bytes.
        socket_timeout_ms: replica.socket.timeout.ms.
        flush_on_ack: Whether the next fetch, by which a follower acknowledges, waits for the disk.
    """

    node_id: int
    fetchers_per_leader: int
    backoff_ms: int
    wait_max_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    socket_timeout_ms: int
    flush_on_ack: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherShell:
    """What the loops of a broker share.

    Attributes:
        broker_epoch: Gives the epoch of this broker's registration.
        fetch_version: Gives the highest version of Fetch that the metadata version allows.
        list_offsets_version: Likewise of ListOffsets.
        keep_recovery_point: Writes the recovery points of a directory, after one was lowered; called on any thread.
        threads: Append and truncate.
        connection_lost: Told the id of a leader whose connection ended or could not be made, and whether it had been
            open.
    """

    settings: FetcherSettings
    partitions: Partitions
    broker_epoch: Callable[[], int]
    fetch_version: Callable[[], int]
    list_offsets_version: Callable[[], int]
    keep_recovery_point: Callable[[LogDir], None]
    threads: Executor
    connection_lost: ConnectionLost = _ignore_loss


class FetcherLoop:
    """Follows one leader with one connection, for those partitions that were added.

    A follower acknowledges with the offset that it fetches next. With ``log.flush.on.ack`` an answer's records are
    durable before the next fetch names their end: they are appended and flushed, side by side, in one call.

    Args:
        link: The connection to the leader.
        shell: What the loops share.
        name: For the log.
    """

    def __init__(self, link: LeaderLink, shell: FetcherShell, name: str) -> None:
        self.link = link
        self.fetcher = ReplicaFetcher(shell.settings.backoff_ms)
        self._shell = shell
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._wake = TimedEvent()
        self._first_steps: list[Next] = []
        self._is_stopped = False
        self._is_unreachable = False
        # Partitions of which a failure was logged: the next line about one comes after it has gone on.
        self._told: set[PartitionKey] = set()
        self._requests = Meter(host.monotonic_s())
        self._task = self._loop.create_task(self._run())

    @property
    def is_dead(self) -> bool:
        """Whether it ended although nobody stopped it: its partitions are not followed any more."""
        return self._task.done() and not self._is_stopped

    @property
    def fetch_rate(self) -> float:
        """Requests per second, over the last minute."""
        return self._requests.value(host.monotonic_s()).one_minute_rate

    def add(self, start: FetchStart) -> None:
        """Follow a partition from where its log stands."""
        step = self.fetcher.add(start)
        if step is not None:
            self._first_steps.append(step)
        self._wake.set()

    def _take_step(self, step: Next) -> None:
        """Carry a step out with the next turn, if its partition is still followed in that epoch."""
        if self.fetcher.leader_epoch(step.key) == step.leader_epoch:
            self._first_steps.append(step)
            self._wake.set()

    def remove(self, key: PartitionKey) -> None:
        """Follow a partition no more; what is on its way for it is dropped."""
        self.fetcher.remove(key)
        self._told.discard(key)
        self._wake.set()

    async def stop(self) -> None:
        """End; an append that has begun is finished."""
        self._is_stopped = True
        self._task.cancel()
        self.link.close()
        await asyncio.gather(self._task, return_exceptions=True)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # -- the loop ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_stopped:
            try:
                await self._turn()
            except KraftlogError as error:
                self._failed(error)
            except Exception:
                # Its partitions would look healthy otherwise: they lag behind, and the leader drops them.
                logger.exception("%s ended by an unexpected error and begins anew", self._name)
                self.fetcher.handle_failure(self._now_ms())
                self.link.close()

    def _failed(self, error: KraftlogError) -> None:
        was_open, self._is_unreachable = not self._is_unreachable, True
        if not self._is_stopped:
            if isinstance(error, KafkaError) and error.code == ErrorCode.BROKER_NOT_AVAILABLE:
                self._shell.connection_lost(self.link.address.broker_id, was_open=was_open)
            if was_open:
                logger.warning("%s: the leader does not answer: %s", self._name, error)
        self.fetcher.handle_failure(self._now_ms())
        self.link.close()

    async def _turn(self) -> None:
        if self._first_steps:
            steps, self._first_steps = self._first_steps, []
            await self._carry_out(steps, {})
        self._wake.clear()
        now_ms = self._now_ms()
        held = self._held()
        fetch_round = self.fetcher.next_round(now_ms, held)
        if fetch_round is None:
            due_ms = self.fetcher.next_wakeup_ms()
            if held:
                due_ms = min(due_ms or now_ms + self._shell.settings.backoff_ms, now_ms + _QUOTA_WAIT_MS)
            wait_s = None if due_ms is None else max(due_ms - now_ms, 1) / 1000
            await self._wake.wait_until(None if wait_s is None else self._loop.time() + wait_s)
            return
        settings = self._shell.settings
        self._requests.mark(1, host.monotonic_s())
        response: FetchResponse = await self.link.request(
            self._request(fetch_round),
            highest=self._shell.fetch_version(),
            lowest=_FETCH_LOWEST,
            wait_s=settings.wait_max_ms / 1000,
        )
        if self._is_unreachable:
            logger.info("%s: the leader answers again", self._name)
            self._is_unreachable = False
        if response.error_code:
            self.fetcher.handle_refusal(response.error_code, self._now_ms())
            return
        data = [
            ((topic.topic_id, partition.partition_index), partition)
            for topic in response.responses
            for partition in topic.partitions
        ]
        answers = [
            Answer(
                key=key,
                error_code=partition.error_code,
                high_watermark=partition.high_watermark,
                diverging_epoch=(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
                if partition.diverging_epoch.end_offset >= 0 or partition.diverging_epoch.epoch >= 0
                else None,
                position=position,
            )
            for position, (key, partition) in enumerate(data)
        ]
        steps = self.fetcher.handle_answer(response.session_id, answers, self._now_ms())
        await self._carry_out(steps, {position: partition for position, (_, partition) in enumerate(data)})

    def _held(self) -> set[PartitionKey]:
        """The throttled partitions, while what they fetch exceeds the rate."""
        partitions = self._shell.partitions
        if not partitions.follower_quota.is_exceeded(partitions.now_ms()):
            return set()
        node_id = self._shell.settings.node_id
        found = ((key, partitions.get(*key)) for key in self.fetcher)
        return {
            key
            for key, partition in found
            if partition is not None and partition.config.follower_throttle.has(partition.index, node_id)
        }

    def _request(self, fetch_round: FetchRound) -> FetchRequest:
        settings = self._shell.settings
        by_topic: dict[Any, list[FetchRequest.FetchPartition]] = {}
        for asked in fetch_round.partitions:
            topic_id, index = asked.key
            by_topic.setdefault(topic_id, []).append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=asked.leader_epoch,
                    fetch_offset=asked.fetch_offset,
                    last_fetched_epoch=asked.last_fetched_epoch,
                    log_start_offset=asked.log_start_offset,
                    partition_max_bytes=settings.partition_max_bytes,
                )
            )
        forgotten: dict[Any, list[int]] = {}
        for topic_id, index in fetch_round.forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        is_tagged = self._shell.fetch_version() >= 15
        return FetchRequest(
            replica_id=-1 if is_tagged else settings.node_id,
            replica_state=FetchRequest.ReplicaState(
                replica_id=settings.node_id, replica_epoch=self._shell.broker_epoch()
            )
            if is_tagged
            else FetchRequest.ReplicaState(),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=fetch_round.session_id,
            session_epoch=fetch_round.session_epoch,
            topics=[
                FetchRequest.FetchTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic.items()
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in forgotten.items()
            ],
        )

    # -- carrying out --------------------------------------------------------------------------------------------

    async def _carry_out(self, steps: list[Next], data: dict[int, Any]) -> None:
        appends = [step for step in steps if step.step is NextStep.APPEND]
        others = [step for step in steps if step.step is not NextStep.APPEND]
        try:
            if appends:
                await self._append(appends, data)
            while others:
                await self._carry_out_one(others[0])
                del others[0]
        except Exception:
            # The fetcher waits for what becomes of them, and names these partitions in no fetch until then.
            for step in others:
                self._loop.call_later(self._shell.settings.backoff_ms / 1000, self._take_step, step)
            raise

    async def _carry_out_one(self, step: Next | None) -> None:
        """A truncation, or a question to the leader and what follows from it."""
        while step is not None:
            partition = self._partition(step.key)
            if partition is None:
                return
            match step.step:
                case NextStep.DIVERGED | NextStep.TRUNCATE | NextStep.RESTART:
                    await self._cut(step, partition)
                    return
                case NextStep.FLUSH:
                    await self._flush(step, partition)
                    return
                case NextStep.ASK_END:
                    step = await self._ask(step, partition, _LATEST)
                case NextStep.ASK_START:
                    step = await self._ask(step, partition, _EARLIEST)
                case NextStep.APPEND:
                    return

    def _partition(self, key: PartitionKey) -> Partition | None:
        partition = self._shell.partitions.get(*key)
        if partition is None:
            self.fetcher.remove(key)
        return partition

    async def _append(self, steps: list[Next], data: dict[int, Any]) -> None:
        followed: list[tuple[Next, Partition]] = []
        fetched: list[tuple[Any, Any, int, int, int, int]] = []
        size_bytes = 0
        for step in steps:
            partition = self._partition(step.key)
            if partition is None:
                continue
            answered = data[step.position]
            records = answered.records or b""
            size_bytes += len(records)
            followed.append((step, partition))
            fetched.append(
                (
                    partition.replica,
                    records,
                    step.offset,
                    step.leader_epoch,
                    answered.high_watermark,
                    answered.log_start_offset,
                )
            )
        now_ms = self._shell.partitions.now_ms()
        flush = self._shell.settings.flush_on_ack

        def append() -> list[tuple[str, int, int, int, int, int, BaseException | None]]:
            return append_fetched(fetched, now_ms=now_ms, flush=flush)

        if size_bytes and (flush or size_bytes > _ON_LOOP_BYTES_MAX):
            outcomes = await self._on_thread(append)
        else:
            outcomes = append()
        for (step, partition), outcome in zip(followed, outcomes, strict=True):
            self._appended(step, partition, outcome)

    def _appended(
        self, step: Next, partition: Partition, outcome: tuple[str, int, int, int, int, int, BaseException | None]
    ) -> None:
        kind, log_end_offset, log_start_offset, last_epoch, _, size_bytes, error = outcome
        key, epoch = step.key, step.leader_epoch
        if kind == "":
            if size_bytes:
                partitions, node_id = self._shell.partitions, self._shell.settings.node_id
                partitions.replicated_in(partition, node_id, size_bytes)
                if partition.config.follower_throttle.has(partition.index, node_id):
                    partitions.follower_quota.record(size_bytes, partitions.now_ms())
            self._told.discard(key)
            self.fetcher.on_appended(
                key,
                epoch,
                log_end_offset=log_end_offset,
                log_start_offset=log_start_offset,
                last_epoch=last_epoch,
            )
        elif kind == "failed" and error is not None:
            self._log_failed(step, partition, error)
        elif kind == "moved":
            logger.error(
                "partition %s ends at offset %d, not at %d: it is not followed before its next leader epoch",
                partition,
                log_end_offset,
                step.offset,
            )
            self.fetcher.on_failed(key, epoch)

    def _log_failed(self, step: Next, partition: Partition, error: BaseException) -> None:
        key, epoch = step.key, step.leader_epoch
        is_told = key in self._told
        self._told.add(key)
        if isinstance(error, CorruptRecordError):
            if not is_told:
                logger.error("records of %s for partition %s are damaged: %s", self.link.address, partition, error)
            self.fetcher.on_damaged(key, epoch, self._now_ms())
            return
        if not is_disk_failure(error):
            if not is_told:
                logger.warning("partition %s follows its leader later: %s", partition, error)
            self.fetcher.on_damaged(key, epoch, self._now_ms())
            return
        if isinstance(error, PoisonedLogError | OSError):
            partition.storage_failed(error)
        else:
            logger.error("partition %s cannot follow %s: %s", partition, self.link.address, error)
        self.fetcher.on_failed(key, epoch)

    async def _flush(self, step: Next, partition: Partition) -> None:
        """Make durable what this broker appended while it led; the first fetch acknowledges it."""
        log = partition.log
        try:
            await self._on_thread(log.flush)
        except (LogError, OSError) as error:
            self._log_failed(step, partition, error)
            if not is_disk_failure(error):
                self._loop.call_later(self._shell.settings.backoff_ms / 1000, self._take_step, step)
            return
        latest_epoch = log.latest_epoch
        self.fetcher.on_cut(
            step.key,
            step.leader_epoch,
            log_end_offset=log.log_end_offset,
            last_epoch=-1 if latest_epoch is None else latest_epoch,
        )

    async def _cut(self, step: Next, partition: Partition) -> None:
        now_ms = self._shell.partitions.now_ms()
        replica = partition.replica

        def keep(_recovery_point: int) -> None:
            self._shell.keep_recovery_point(partition.log_dir)

        def cut() -> tuple[int, int, int] | None:
            if step.step is NextStep.RESTART:
                return replica.restart_as_follower(
                    step.offset, leader_epoch=step.leader_epoch, now_ms=now_ms, keep_recovery_point=keep
                )
            offset = step.offset
            if step.step is NextStep.DIVERGED:
                offset = truncation_offset(
                    diverging_epoch=step.epoch,
                    leader_end=step.offset,
                    own_end=partition.end_offset_for_epoch(step.epoch),
                    log_end_offset=replica.log_end_offset,
                    # What the leader cannot tell leaves only what is committed.
                    fetch_offset=replica.high_watermark,
                )
            if offset < replica.high_watermark:
                logger.warning(
                    "partition %s is truncated to offset %d, below its high watermark %d",
                    partition,
                    offset,
                    replica.high_watermark,
                )
            return replica.truncate_as_follower(
                offset, leader_epoch=step.leader_epoch, now_ms=now_ms, keep_recovery_point=keep
            )

        before = replica.log_end_offset
        try:
            done = await self._on_thread(cut)
        except (LogError, OSError) as error:
            self._log_failed(step, partition, error)
            return
        if done is None:
            return
        log_end_offset, last_epoch, _ = done
        if log_end_offset != before:
            logger.info("partition %s was truncated from offset %d to %d", partition, before, log_end_offset)
        self.fetcher.on_cut(step.key, step.leader_epoch, log_end_offset=log_end_offset, last_epoch=last_epoch)

    async def _ask(self, step: Next, partition: Partition, timestamp: int) -> Next | None:
        """ListOffsets for the leader's end or start; what follows from the answer (RFET-59)."""
        request = ListOffsetsRequest(
            replica_id=self._shell.settings.node_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=partition.index,
                            current_leader_epoch=step.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        try:
            response: ListOffsetsResponse = await self.link.request(
                request, highest=self._shell.list_offsets_version(), lowest=4
            )
            answered = response.topics[0].partitions[0]
            error_code, offset = answered.error_code, answered.offset
        except KafkaError as error:
            error_code, offset = error.code, -1
        except IndexError:
            error_code, offset = int(ErrorCode.UNKNOWN_SERVER_ERROR), -1
        if not error_code and offset < 0:
            error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        handle = self.fetcher.handle_leader_end if timestamp == _LATEST else self.fetcher.handle_leader_start
        return handle(
            step.key,
            step.leader_epoch,
            error_code=error_code,
            offset=offset,
            log_end_offset=partition.replica.log_end_offset,
            now_ms=self._now_ms(),
        )

    async def _on_thread(self, call: Callable[[], Any]) -> Any:
        """Run file work on a thread and wait for its end, also while this loop is being stopped."""
        future = self._loop.run_in_executor(self._shell.threads, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise
