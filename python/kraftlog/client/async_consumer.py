"""``kraftlog.AsyncConsumer``: records of a cluster as Arrow batches, on the caller's event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from kraftlog._kraftlog import ArrowBatch, ConsumerRecord, check_columns
from kraftlog.client.config import ClientConfig, consumer_options
from kraftlog.client.connections import Connections
from kraftlog.client.driver import ConsumerDriver
from kraftlog.client.group_membership import GroupMembership, MembershipHooks
from kraftlog.client.group_offsets import GroupOffsets
from kraftlog.client.group_protocol import membership_kinds
from kraftlog.client.offset_questions import OffsetQuestions
from kraftlog.client.record_decoders import RecordDecoders
from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.client.state.fetch_answer import Fetched
from kraftlog.client.state.handed_rows import HandedRows
from kraftlog.client.state.offset_lookup import EARLIEST, LATEST
from kraftlog.client.state.position import (
    OffsetAndEpoch,
    OffsetAndMetadata,
    OffsetAndTime,
    PartitionInput,
    partition_of,
)
from kraftlog.client.transactions import GroupMetadata
from kraftlog.config_input import ConfigInput, config_properties
from kraftlog.errors import ErrorCode, KafkaError, LogError, NodeClosedError, ProtocolError
from kraftlog.types import TopicPartition

__all__ = ["AsyncConsumer", "RebalanceListener"]

_logger = logging.getLogger("kraftlog.client")
RebalanceListener: TypeAlias = Callable[[Collection[TopicPartition]], None]


class AsyncConsumer:
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
        self._group: GroupOffsets | None = None
        self._questions: OffsetQuestions | None = None
        self._is_fetching_committed = False
        self._commit_due_ms = 0
        self._membership: GroupMembership | None = None
        self._subscribed: tuple[str, ...] = ()
        self._listeners: dict[str, RebalanceListener | None] = {}
        self._last_poll_s = 0.0
        self._handed = HandedRows(self._core.subscription)
        self._has_failed = False
        self._joining: asyncio.Task[None] | None = None

    def _version_of(self, node_id: int, api_key: int) -> int | None:
        return None if self._driver is None else self._driver.connections.version(node_id, api_key)

    # Life

    async def start(self) -> None:
        """Begin, without ``async with``; ``close`` has to be awaited then."""
        connections = Connections(self._config, asyncio.get_running_loop())
        driver = self._driver = ConsumerDriver(self._core, connections)
        self._questions = OffsetQuestions(self._core, driver, self._config)
        if self._config["group.id"]:
            self._core.has_group = True
            self._group = GroupOffsets(
                self._config["group.id"],
                connections,
                driver.any_node,
                retry_backoff_s=self._config["retry.backoff.ms"] / 1000,
                is_read_committed=self._core.options.is_read_committed,
            )
            driver.before_turn = self._before_turn
            self._commit_due_ms = driver.now_ms() + self._config["auto.commit.interval.ms"]
        driver.start()

    async def close(self) -> None:
        """Commit positions if ``enable.auto.commit`` is true, leave, and end all connections.

        When a block of ``async with`` ends with an exception, the rows of the last poll are not committed.
        """
        driver = self._driver
        if driver is None:
            return
        try:
            if self._group is not None and self._config["enable.auto.commit"]:
                await self._commit_quietly("commit before the end", 5.0, with_handed=not self._has_failed)
            if self._membership is not None:
                await self._membership.leave()
        finally:
            self._driver = None
            await driver.close()

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
        topics: Collection[str],
        *,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Share the partitions of topics with the other members of the group.

        With ``group.protocol=auto`` the broker assigns partitions where it offers that (KIP-848), else the members do.

        Args:
            topics: Names.
            on_assign: Called on the event loop with partitions that are new.
            on_revoke: Called before partitions go to another member; positions are committed before if
                ``enable.auto.commit`` is true.
            on_lost: Called with partitions that another member has already.

        Raises:
            KafkaError: There is no ``group.id``.
            TypeError: ``topics`` is one name instead of several.
        """
        if isinstance(topics, str):
            message = f"topics are a list of names: subscribe([{topics!r}])"
            raise TypeError(message)
        self._require_group()
        self._subscribed = tuple(topics)
        self._listeners = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        if self._membership is not None:
            self._membership.subscribe(topics)
        elif self._joining is None or self._joining.done():
            self._last_poll_s = asyncio.get_running_loop().time()
            self._joining = self._running().spawn(self._be_member())

    async def _be_member(self) -> None:
        hooks = MembershipHooks(
            self._on_revoke,
            lambda partitions: self._tell("lost", partitions),
            lambda partitions: self._tell("assign", partitions),
            lambda: self._last_poll_s,
        )
        driver, group = self._running(), self._require_group()
        kinds = await membership_kinds(self._config, group, driver)
        for kind in kinds:
            self._membership = kind(self._config, group, self._core, driver, hooks)
            self._membership.subscribe(self._subscribed)
            try:
                await self._membership.run()
            except KafkaError as error:
                if error.code != ErrorCode.UNSUPPORTED_VERSION or kind is kinds[-1]:
                    raise

    def _tell(self, event: str, partitions: Collection[TopicPartition]) -> None:
        listener = self._listeners.get(event)
        if listener is not None:
            listener(partitions)

    async def _on_revoke(self, partitions: Collection[TopicPartition]) -> None:
        if self._config["enable.auto.commit"]:
            await self._commit_quietly("commit before partitions are given up", None, with_handed=False)
        self._tell("revoke", partitions)

    # Positions

    def assign(self, partitions: Collection[PartitionInput]) -> None:
        """Read these partitions and no others; those that stay keep their positions.

        A partition without a position begins at its committed offset, else by ``auto.offset.reset``.
        """
        if self._subscribed:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the consumer is subscribed: its group assigns partitions")
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
        found = await self._ask_offsets(dict.fromkeys(map(partition_of, partitions), timestamp), None)
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
            KafkaError: A broker refuses the client, its credentials or a topic.
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

    async def _next(
        self, as_records: bool, timeout_s: float | None, is_at_end: Callable[[], bool] = lambda: False
    ) -> Any:
        driver = self._running()
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        self._last_poll_s = loop.time()
        self._handed.take_back()
        if not self._core.is_polled:
            self._core.is_polled = True
            driver.wake()
        while True:
            driver.is_ready.clear()
            if self._core.errors:
                raise self._core.errors.popleft()
            if is_at_end():
                return None
            found = self._take(driver, as_records)
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
                self._release(fetched, driver)
            if rows is not None:
                self._handed.hand_over(fetched.partition, before)
                return rows
        return None

    def _release(self, fetched: Fetched, driver: ConsumerDriver) -> None:
        self._core.release(fetched)
        self._decoders.release(fetched)
        driver.wake()

    # Offsets by question

    async def offsets_for_times(
        self, timestamps: Mapping[PartitionInput, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        """The first offset whose record has a timestamp (milliseconds) or a later one; None where there is none."""
        return await self._ask_offsets({partition_of(name): time for name, time in timestamps.items()}, timeout_s)

    async def beginning_offsets(
        self, partitions: Collection[PartitionInput], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        found = await self._ask_offsets(dict.fromkeys(map(partition_of, partitions), EARLIEST), timeout_s)
        return {name: answer.offset for name, answer in found.items() if answer is not None}

    async def end_offsets(
        self, partitions: Collection[PartitionInput], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The exclusive end of each partition: its high watermark, with read_committed its last stable offset."""
        found = await self._ask_offsets(dict.fromkeys(map(partition_of, partitions), LATEST), timeout_s)
        return {name: answer.offset for name, answer in found.items() if answer is not None}

    async def partitions_for(self, topic: str, *, timeout_s: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic.

        Raises:
            KafkaError: There is no such topic.
        """
        return await self._asked().partitions_for(topic, timeout_s)

    async def list_topics(self, *, timeout_s: float | None = None) -> dict[str, tuple[int, ...]]:
        """The partition numbers of each topic of the cluster, internal topics too.

        Raises:
            TimeoutError: No broker answered.
        """
        return await self._asked().list_topics(timeout_s)

    async def _ask_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        return await self._asked().offsets(timestamps, timeout_s)

    def _asked(self) -> OffsetQuestions:
        self._running()
        assert self._questions is not None  # made with the driver
        return self._questions

    # Commits

    async def commit(
        self,
        offsets: Mapping[PartitionInput, OffsetAndMetadata | int] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets of the group.

        Args:
            offsets: What to commit; None for the positions, with the leader epochs of the last records read.
            timeout_s: Seconds; ``request.timeout.ms`` when None.

        Raises:
            KafkaError: There is no ``group.id``, or the coordinator refuses.
        """
        if offsets is None:
            self._handed.take_back()
            await self._commit_positions(timeout_s, with_handed=True)
            return
        wanted = {
            partition_of(name): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for name, offset in offsets.items()
        }
        self._handed.note_commit(wanted)
        await self._commit(wanted, timeout_s)

    async def _commit_positions(self, timeout_s: float | None, *, with_handed: bool) -> None:
        positions = self._handed.positions(with_handed=with_handed)
        if positions:
            await self._commit(positions, timeout_s)

    async def _commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_s: float | None) -> None:
        group = self._require_group()
        member = self._membership

        async def commit_once() -> None:
            if member is None or member.generation < 0:
                await group.commit(offsets)
            else:
                await group.commit(
                    offsets,
                    generation=member.generation,
                    member_id=member.member_id,
                    instance_id=self._config["group.instance.id"],
                )

        await group.retried(commit_once, self._timeout_s(timeout_s))

    async def committed(
        self, partitions: Collection[PartitionInput], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed; partitions without an offset are left out.

        Raises:
            KafkaError: There is no ``group.id``, or the coordinator refuses.
        """
        group = self._require_group()
        names = [partition_of(partition) for partition in partitions]
        return await group.retried(lambda: group.committed(names), self._timeout_s(timeout_s))

    @property
    def group_metadata(self) -> GroupMetadata:
        """The membership, for :meth:`AsyncProducer.send_offsets_to_transaction`.

        Raises:
            KafkaError: There is no ``group.id``.
        """
        group_id, member = self._require_group().group_id, self._membership
        if member is None or member.generation < 0:
            return GroupMetadata(group_id)
        return GroupMetadata(group_id, member.generation, member.member_id, self._config["group.instance.id"])

    def _require_group(self) -> GroupOffsets:
        self._running()
        if self._group is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "group.id must be set")
        return self._group

    def _timeout_s(self, timeout_s: float | None) -> float:
        return self._config["request.timeout.ms"] / 1000 if timeout_s is None else timeout_s

    # What the driver calls

    def _before_turn(self, now_ms: int) -> int | None:
        driver = self._running()
        if self._core.uninitialized and not self._is_fetching_committed:
            self._is_fetching_committed = True
            driver.spawn(self._begin_at_committed())
        if not self._config["enable.auto.commit"]:
            return None
        if now_ms >= self._commit_due_ms:
            self._commit_due_ms = now_ms + self._config["auto.commit.interval.ms"]
            driver.spawn(self._commit_quietly("automatic commit"))
        return self._commit_due_ms - now_ms

    async def _begin_at_committed(self) -> None:
        driver, group = self._running(), self._require_group()
        names = self._core.uninitialized
        try:
            found = await group.retried(lambda: group.committed(names), self._timeout_s(None))
        finally:
            self._is_fetching_committed = False
        for name in names:
            offset = found.get(name)
            self._core.set_committed(
                name, None if offset is None else OffsetAndEpoch(offset.offset, offset.leader_epoch)
            )
        driver.wake()

    async def _commit_quietly(self, what: str, timeout_s: float | None = None, *, with_handed: bool = False) -> None:
        try:
            await self._commit_positions(timeout_s, with_handed=with_handed)
        except (KafkaError, ProtocolError) as error:
            _logger.warning("%s of group %s: %s", what, self._config["group.id"], error)
