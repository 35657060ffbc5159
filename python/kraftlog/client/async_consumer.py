"""``kraftlog.AsyncConsumer``: records of a cluster as Arrow batches, on the caller's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

from kraftlog._kraftlog import ArrowBatch, ConsumerRecord, check_columns
from kraftlog.client.config import ClientConfig, consumer_options
from kraftlog.client.connections import Connections
from kraftlog.client.driver import ConsumerDriver
from kraftlog.client.group_calls import GroupCalls
from kraftlog.client.group_offsets import GroupOffsets
from kraftlog.client.group_subscription import GroupSubscription, RebalanceListener, topic_selection
from kraftlog.client.offset_calls import OffsetCalls
from kraftlog.client.offset_questions import OffsetQuestions
from kraftlog.client.record_decoders import RecordDecoders
from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.client.state.fetch_answer import Fetched
from kraftlog.client.state.handed_rows import HandedRows
from kraftlog.client.state.offset_lookup import EARLIEST, LATEST
from kraftlog.client.state.position import OffsetAndEpoch, PartitionInput, partition_of
from kraftlog.client.state.topic_selection import PatternInput
from kraftlog.config_input import ConfigInput, config_properties
from kraftlog.errors import ErrorCode, KafkaError, LogError, NodeClosedError, WakeupError
from kraftlog.metrics.consumer import ConsumerMetrics, PartitionProgress
from kraftlog.metrics.registry import MetricsSnapshot
from kraftlog.transport.traffic import Traffic
from kraftlog.types import TopicPartition

__all__ = ["AsyncConsumer"]


class AsyncConsumer(GroupCalls, OffsetCalls):
    """Reads records of any Kafka cluster on the caller's event loop; use it with ``async with``.

    Fetching goes on between the calls of ``poll``; what waits is bounded by ``fetch.max.bytes`` per broker.
    One task at a time may use a consumer.

    Args:
        config: Kafka's dotted keys, such as ``bootstrap.servers``; ``docs/reference/client.md`` lists them. Values may
            be text, numbers or booleans.
        columns: Columns of the batches, as for :func:`kraftlog.scan`; its eight default columns when None.
        binary_type: Arrow type of keys and values: binary, large_binary or binary_view.
        timestamp_unit: ``ms`` or ``us``.
        topic_dictionary: Topic names as a dictionary column.
        row_options: More options of the decoder, such as ``from_timestamp`` and ``end_offset``.
        **settings: The same keys with underscores for dots.

    Raises:
        ClientConfigError: A setting is unknown or has no such value.
        ValueError: A column does not exist.
    """

    def __init__(
        self,
        config: Mapping[str, ConfigInput] | None = None,
        *,
        columns: Sequence[str] | None = None,
        binary_type: Literal["binary", "large_binary", "binary_view"] = "binary",
        timestamp_unit: Literal["ms", "us"] = "ms",
        topic_dictionary: bool = False,
        row_options: Mapping[str, Any] | None = None,
        **settings: ConfigInput,
    ) -> None:
        self._config = ClientConfig(config_properties(config, settings), "consumer")
        if columns is not None:
            check_columns(list(columns))
        row_settings: dict[str, Any] = {
            "columns": None if columns is None else list(columns),
            "binary_type": binary_type,
            "timestamp_unit": timestamp_unit,
            "topic_dictionary": topic_dictionary,
            "batch_rows": self._config["max.poll.records"],
            "check_crc": self._config["check.crcs"],
            **(row_options or {}),
        }
        self._decoders = RecordDecoders(row_settings)
        self._core = ConsumerCore(consumer_options(self._config), self._version_of)
        self._driver: ConsumerDriver | None = None
        self._group: GroupSubscription | None = None
        self._questions: OffsetQuestions | None = None
        self._handed = HandedRows(self._core.subscription)
        self._traffic = Traffic()
        self._metrics = ConsumerMetrics(self._traffic.counters, self._progress)
        self._has_failed = False
        self._is_woken = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def _version_of(self, node_id: int, api_key: int) -> int | None:
        return None if self._driver is None else self._driver.connections.version(node_id, api_key)

    # Life

    async def start(self) -> None:
        """Begin, without ``async with``; ``close`` has to be awaited then."""
        self._loop = asyncio.get_running_loop()
        connections = Connections(self._config, self._loop, self._traffic, self._metrics.requests)
        driver = self._driver = ConsumerDriver(self._core, connections, self._metrics)
        self._questions = OffsetQuestions(self._core, driver, self._config)
        if self._config["group.id"]:
            self._core.has_group = True
            group = GroupOffsets(
                self._config["group.id"],
                connections,
                driver.any_node,
                retry_backoff_s=self._config["retry.backoff.ms"] / 1000,
            )
            self._group = GroupSubscription(
                self._config, self._core, driver, group, self._handed, self._metrics.on_rebalanced
            )
            driver.before_turn = self._group.before_turn
        driver.start()

    async def close(self, *, timeout_s: float = 30.0, leave_group: bool | None = None) -> None:
        """Commit positions if ``enable.auto.commit`` is true, leave, and end all connections; afterwards nothing works.

        ``on_revoke`` is called before the member leaves. When a block of ``async with`` ends with an exception, the
        rows of the last poll are not committed.

        Args:
            timeout_s: Seconds for the commit and for leaving; connections end then in any case, with a warning.
            leave_group: None: a dynamic member leaves, and a static one (``group.instance.id``) keeps its partitions
                until it comes back within ``session.timeout.ms``. True: both leave. False: neither does (KIP-1092).
        """
        driver = self._driver
        if driver is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                if self._group is not None:
                    await self._leave(self._group, leave_group)
        except TimeoutError:
            self._core.warnings.append(f"close: no commit, or no answer to leaving the group, within {timeout_s} s")
        finally:
            self._driver = None
            driver.is_ready.set()  # a poll that waits ends
            await driver.close()

    async def _leave(self, group: GroupSubscription, leave_group: bool | None) -> None:
        if group.commits.is_automatic:
            await group.commits.commit_quietly("commit before the end", 5.0, with_handed=not self._has_failed)
        await group.close(leave_group)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.note_failure()
        await self.close()

    def note_failure(self) -> None:
        """The application failed with the rows of the last poll: ``close`` does not commit them."""
        self._has_failed = True

    def _running(self) -> ConsumerDriver:
        if self._driver is None:
            message = "the consumer is not running: use it with `async with`"
            raise NodeClosedError(message)
        return self._driver

    # What is read

    def subscribe(
        self,
        topics: Collection[str] | None = None,
        *,
        pattern: PatternInput | None = None,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Share the partitions of topics with the other members of the group; replaces an earlier subscription.

        With ``group.protocol=auto`` the broker assigns partitions where it offers that (KIP-848), else the members do.

        Args:
            topics: Names.
            pattern: A regular expression for whole topic names instead. Topics that are created later and match are
                read too. If it is text and the broker assigns partitions, the broker matches it, by the rules of RE2;
                otherwise the client does at each update of metadata, by the rules of Python and without internal
                topics (``exclude.internal.topics``). A pattern of ``re.compile`` is always matched by the client.
            on_assign: Called on the event loop with partitions that are new.
            on_revoke: Called before partitions go to another member; positions are committed before if
                ``enable.auto.commit`` is true.
            on_lost: Called with partitions that another member has already.

        Raises:
            KafkaError: There is no ``group.id``, or ``assign`` chose partitions before. The next ``poll`` raises what
                the broker refuses: INVALID_REGULAR_EXPRESSION names the pattern, and UNSUPPORTED_VERSION means that
                the broker of a group with ``group.protocol=consumer`` does not match patterns.
            TypeError: ``topics`` is one name instead of several, or there are neither topics nor a pattern, or both.
            ValueError: ``topics`` is empty, or has a name that begins with ``^``.

        Source: ``KafkaConsumer.subscribe(Pattern)`` and ``subscribe(SubscriptionPattern)``; KIP-848.
        """
        self._require_group().subscribe(
            topic_selection(topics, pattern), {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        )

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics that are subscribed to, sorted; with a pattern those that the client found to match.

        Empty without a subscription, and while the broker matches a pattern: ``assignment`` shows what it found.
        """
        return () if self._group is None else self._group.topics

    async def unsubscribe(self) -> None:
        """Leave the group and read nothing; ``subscribe`` and ``assign`` are possible afterwards. Positions are gone.

        As before a rebalance, positions are committed if ``enable.auto.commit`` is true, without the rows of the last
        poll, and ``on_revoke`` is called (``on_lost`` if the group removed the member before). A static member
        (``group.instance.id``) does not give up its place. Without a subscription this is ``assign([])``.

        Source: ``KafkaConsumer.unsubscribe``, which leaves commits to the listener.
        """
        self._running()
        if self._group is not None and self._group.selection is not None:
            await self._group.leave()
        self._core.assign(())
        self._handed.take_back()
        self._running().wake()

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        """Have the group assign its partitions anew, as after a change that only the assignor knows (KIP-568).

        Where the broker assigns partitions (KIP-848), this logs a warning and does nothing, as in Kafka.

        Args:
            reason: What the coordinator logs (KIP-800).

        Raises:
            KafkaError: There is no ``group.id``, or nothing is subscribed to.
        """
        self._require_group().rejoin(reason)

    # Positions

    def assign(self, partitions: Collection[PartitionInput]) -> None:
        """Read these partitions and no others; those that stay keep their positions.

        A partition without a position begins at its committed offset, else by ``auto.offset.reset``.

        Raises:
            KafkaError: The consumer is subscribed.
        """
        if self._group is not None and self._group.selection is not None:
            text = "the consumer is subscribed, and its group assigns partitions: call unsubscribe() before assign()"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        self._core.assign([partition_of(partition) for partition in partitions])
        self._running().wake()

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        return self._core.subscription.assigned

    def seek(self, partition: PartitionInput, offset: int, *, leader_epoch: int | None = None) -> None:
        """Go on at an offset.

        Args:
            partition: An assigned partition.
            offset: The record that is read next, inclusive.
            leader_epoch: Epoch of the record before it. The leader is then asked whether its log still has that
                record: if not, the next ``poll`` raises, or the position moves, as ``auto.offset.reset`` says.

        Raises:
            KafkaError: The partition is not assigned.
            ValueError: The offset is negative.
        """
        if offset < 0:
            message = f"offset {offset} is negative"
            raise ValueError(message)
        name = partition_of(partition)
        self._core.seek(name, offset, leader_epoch)
        self._handed.take_back(name)
        self._running().wake()

    async def seek_to_beginning(self, partitions: Collection[PartitionInput]) -> None:
        """Go to the first offset of each partition."""
        await self._seek_to(EARLIEST, partitions)

    async def seek_to_end(self, partitions: Collection[PartitionInput]) -> None:
        """Go behind the last record of each partition; with read_committed to the last stable offset."""
        await self._seek_to(LATEST, partitions)

    async def _seek_to(self, timestamp: int, partitions: Collection[PartitionInput]) -> None:
        found = await self._questions_now().offsets(dict.fromkeys(map(partition_of, partitions), timestamp), None)
        for name, answer in found.items():
            if answer is not None:
                self.seek(name, answer.offset)

    async def position(self, partition: PartitionInput, *, timeout_s: float = 30.0) -> OffsetAndEpoch:
        """The record that is read next, and the leader epoch of the one before it.

        Raises:
            KafkaError: The partition is not assigned.
            TimeoutError: No position was found within the time.
        """
        name = partition_of(partition)
        if self._core.subscription.get(name) is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is not assigned")

        self._core.is_polled = True

        async def is_known() -> bool:
            return self._core.position(name) is not None

        await self._running().ask_until(is_known, f"position of {name}", timeout_s)
        return self._core.position(name) or OffsetAndEpoch(0)

    def current_lag(self, partition: PartitionInput) -> int | None:
        """Records between the position and the end of the partition that the last fetch found; asks no broker.

        Returns:
            The end is the high watermark, with read_committed the last stable offset. None before the first fetch.

        Raises:
            KafkaError: The partition is not assigned.

        Source: KIP-695.
        """
        name = partition_of(partition)
        found = self._core.subscription.get(name)
        if found is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is not assigned")
        return found.lag(is_read_committed=self._core.options.is_read_committed)

    def metrics(self) -> MetricsSnapshot:
        """All metrics now, by the names of Kafka's consumer; may be called on any thread, and after ``close`` too.

        ``consumer-fetch-manager-metrics.records-lag{topic=orders,partition=0}``, for example; the
        [reference](metrics.md) lists them.
        """
        return self._metrics.snapshot()

    def _progress(self) -> list[PartitionProgress]:
        is_read_committed = self._core.options.is_read_committed
        return [
            PartitionProgress(name, found.lag(is_read_committed=is_read_committed), found.lead, found.preferred_replica)
            for name, found in tuple(self._core.subscription.items())
        ]

    def pause(self, partitions: Collection[PartitionInput]) -> None:
        """Fetch no more of these partitions until ``resume``; positions stay."""
        self._set_paused(partitions, is_paused=True)

    def resume(self, partitions: Collection[PartitionInput]) -> None:
        """Go on with paused partitions."""
        self._set_paused(partitions, is_paused=False)

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return tuple(name for name, found in self._core.subscription.items() if found.is_paused)

    def _set_paused(self, partitions: Collection[PartitionInput], *, is_paused: bool) -> None:
        for partition in partitions:
            found = self._core.subscription.get(partition_of(partition))
            if found is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{partition} is not assigned")
            found.is_paused = is_paused
        self._running().wake()
        self._running().is_ready.set()

    # Records

    async def poll(self, timeout_s: float | None = None) -> ArrowBatch | None:
        """The next records of one partition as an Arrow batch, in the order of their offsets.

        Args:
            timeout_s: Seconds to wait for records; None for as long as it takes.

        Returns:
            At most ``max.poll.records`` rows, for any reader of the Arrow PyCapsule interface; None when none came.

        Raises:
            LogTruncationError: The log lost the record before the position, and ``auto.offset.reset=none``.
            OffsetOutOfRangeError: The log does not have the position, and ``auto.offset.reset=none``.
            CorruptRecordError: A batch cannot be read; the position stays at its first record.
            RemoteProtocolError: A broker sent what is not Kafka's protocol.
            KafkaError: A broker refuses the client, its credentials or a topic; or nothing is subscribed or assigned.
            WakeupError: ``wakeup`` was called.
            NodeClosedError: The consumer was closed meanwhile.
        """
        batch: ArrowBatch | None = await self._next(False, timeout_s)
        return batch

    async def poll_before(self, partition: PartitionInput, end_offset: int) -> ArrowBatch | None:
        """As ``poll``, where one partition is assigned; None when its position is at an offset that the log reaches.

        What leads to the end without any row, such as the marker of a transaction, ends the wait as well.

        Args:
            partition: The partition that is assigned.
            end_offset: Exclusive. Rows at it or after it may be part of the last batch.

        Raises:
            TimeoutError: The position stood still for ``request.timeout.ms``.
        """
        name = partition_of(partition)

        def is_at_end() -> bool:
            found = self._core.position(name)
            return found is not None and found.offset >= end_offset

        limit_s = self._timeout_s(None)
        while True:
            before = self._core.position(name)
            batch: ArrowBatch | None = await self._next(False, limit_s, is_at_end)
            if batch is not None or is_at_end():
                break
            if before is not None and self._core.position(name) == before:
                text = f"{name}: no record came at offset {before.offset}, before {end_offset}, for {limit_s} s"
                raise TimeoutError(self._running().connections.described(text))
        if is_at_end():
            # Before the driver has its turn: a long poll for what comes later would hold up the next partition.
            self.pause([name])
        return batch

    def decode_until(self, end_offset: int | None) -> None:
        """Leave rows at an offset and after it out of what is fetched from now on; None for no bound."""
        self._decoders.decode_until(end_offset)

    async def poll_records(self, timeout_s: float | None = None) -> list[ConsumerRecord]:
        """As ``poll``, with an object per record, whose bytes are made on demand; empty when none came."""
        return await self._next(True, timeout_s) or []

    async def batches(self, *, idle_s: float | None = None) -> AsyncIterator[ArrowBatch]:
        """Batches one after the other; ends when none came for ``idle_s`` seconds, never when it is None."""
        while (batch := await self.poll(idle_s)) is not None:
            yield batch

    async def records(self, *, idle_s: float | None = None) -> AsyncIterator[ConsumerRecord]:
        """Records one after the other, as ``async for`` over the consumer itself; ends as ``batches`` does."""
        while found := await self.poll_records(idle_s):
            for record in found:
                yield record

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self.records()

    def wakeup(self) -> None:
        """End a ``poll`` that waits, or else the next one, with :class:`WakeupError`; may be called on any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and no poll waits
                self._loop.call_soon_threadsafe(self._wake_poll)

    def _wake_poll(self) -> None:
        self._is_woken = True
        if self._driver is not None:
            self._driver.is_ready.set()

    async def _next(
        self, as_records: bool, timeout_s: float | None, is_at_end: Callable[[], bool] = lambda: False
    ) -> Any:
        driver = self._running()
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        if self._group is not None:
            self._group.note_poll()
        is_subscribed = self._group is not None and self._group.selection is not None
        if not is_subscribed and not self._core.subscription.assigned:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "nothing to read: call subscribe() or assign() before poll()")
        if not self._core.is_polled:
            self._core.is_polled = True
            driver.wake()
        self._metrics.on_poll()
        try:
            with self._handed.polling():
                return await self._wait_for_rows(driver, as_records, deadline, is_at_end)
        finally:
            self._metrics.on_poll_end()

    async def _wait_for_rows(
        self, driver: ConsumerDriver, as_records: bool, deadline: float | None, is_at_end: Callable[[], bool]
    ) -> Any:
        while True:
            driver.is_ready.clear()
            self._running()
            if self._is_woken:
                self._is_woken = False
                raise WakeupError("wakeup() was called")
            if self._core.errors:
                raise self._core.errors.popleft()
            if is_at_end():
                return None
            keeps_rows = self._group is not None and self._group.keeps_rows
            found = None if keeps_rows else self._take(driver, as_records)
            if found is not None or is_at_end():
                return found
            try:
                async with asyncio.timeout_at(deadline):
                    await driver.is_ready.wait()
            except TimeoutError:
                return None

    def _take(self, driver: ConsumerDriver, as_records: bool) -> Any:
        core = self._core
        while (fetched := core.take_fetched()) is not None:
            decoder = self._decoders.of(fetched, as_records=as_records)
            if decoder is None:
                self._release(fetched, driver)
                continue
            try:
                rows = decoder.next_records() if as_records else decoder.next_batch()
            except LogError:
                core.refetch(fetched, driver.now_ms())
                driver.wake()
                raise
            epoch = decoder.last_epoch
            state = core.subscription.get(fetched.partition)
            before = None if state is None else state.position
            core.advance(fetched, decoder.next_offset, epoch if epoch >= 0 else None)
            if rows is None or decoder.is_finished:
                self._metrics.on_bytes(fetched.partition.topic, memoryview(fetched.records).nbytes)
                self._release(fetched, driver)
            if rows is not None:
                self._handed.hand_over(fetched.partition, before)
                if state is not None:
                    lag = state.lag(is_read_committed=core.options.is_read_committed)
                    self._metrics.on_records(fetched.partition, len(rows), lag, state.lead)
                return rows
        return None

    def _release(self, fetched: Fetched, driver: ConsumerDriver) -> None:
        self._core.release(fetched)
        self._decoders.release(fetched)
        driver.wake()

    def _questions_now(self) -> OffsetQuestions:
        self._running()
        assert self._questions is not None  # made with the driver
        return self._questions

    def _require_group(self) -> GroupSubscription:
        self._running()
        if self._group is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "group.id must be set")
        return self._group

    def _timeout_s(self, timeout_s: float | None) -> float:
        return self._config["request.timeout.ms"] / 1000 if timeout_s is None else timeout_s
