"""The group coordinator's shell: one ``GroupShard`` for each ``__consumer_offsets`` partition led.

A shard is loaded from its partition when this node becomes leader, and dropped when it no longer is. Whatever its state
machine wants appended in one turn of the loop becomes one batch; requests are answered once that is committed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kraftlog.coordinator.effects import AppendRecords, GroupConfig, Respond
from kraftlog.coordinator.shard import GroupShard
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.partitioner import coordinator_partition
from kraftlog.runtime.coordinator.record_codec import encode_group_records, read_group_records
from kraftlog.runtime.metadata.topic_creation import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from kraftlog.controller.delta import MetadataDelta
    from kraftlog.controller.image import MetadataImage
    from kraftlog.node.node import Node
    from kraftlog.runtime.replica.partition import Partition

__all__ = ["Groups", "ShardRunner"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_BYTES_MAX = 512 * 1024
MINUTE_MS = 60_000
# By the ids that offsets.topic.compression.codec and record batches have.
_CODECS: tuple[Literal["none", "gzip", "snappy", "lz4", "zstd"], ...] = ("none", "gzip", "snappy", "lz4", "zstd")

Call = Callable[[GroupShard, "asyncio.Future[Any]", int], None]
"""Asks a shard for something: (shard, the future it answers, now_ms)."""


class ShardRunner:
    """Drives one shard on the loop.

    Args:
        node: Whose clock, loop and settings are used.
        partition: Where the shard's records live; this node leads it.
        config: Of the groups.
    """

    def __init__(self, node: Node, partition: Partition, config: GroupConfig) -> None:
        self._node = node
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.shard = GroupShard(config, rng=random.Random())
        self.is_loaded = False
        self._compression = _CODECS[node.config.get_int("offsets.topic.compression.codec")]
        self._is_closed = False
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms: int | None = None
        self._waiting: set[asyncio.Future[Any]] = set()

    async def load(self) -> None:
        """Replay the partition; requests are refused with COORDINATOR_LOAD_IN_PROGRESS until this is done."""
        loaded_count = 0
        async for records in read_group_records(self._node.loop, self.partition.log):
            if self._is_closed:
                return
            now_ms = self._node.now_ms()
            for record in records:
                self.shard.replay(record, now_ms=now_ms)
            loaded_count += len(records)
        self.shard.finish_loading(self._node.now_ms())
        self.is_loaded = True
        self._schedule()
        if loaded_count:
            logger.info("loaded %d group records from %s", loaded_count, self.partition)

    def ask(self, call: Call) -> asyncio.Future[Any]:
        """Hand a request to the shard; the future ends with the response, or KafkaError NOT_COORDINATOR."""
        future: asyncio.Future[Any] = self._node.loop.create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        call(self.shard, future, self._node.now_ms())
        self._schedule()
        return future

    def call(self, function: Callable[[GroupShard, int], T]) -> T:
        """Ask the shard for something that it answers at once; its effects follow."""
        answer = function(self.shard, self._node.now_ms())
        self._schedule()
        return answer

    def close(self) -> None:
        """Stop; whoever waits is sent to look for the coordinator again."""
        self._is_closed = True
        self.is_loaded = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._node.loop.call_soon(self._drive)

    def _drive(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        appends: list[AppendRecords] = []
        for effect in self.shard.take_effects():
            if isinstance(effect, Respond):
                future: Any = effect.token
                if not future.done():
                    future.set_result(effect.response)
            else:
                appends.append(effect)
        self._append(appends)
        self._arm_timer()

    def _append(self, appends: list[AppendRecords]) -> None:
        """Append in order, as few batches as fit."""
        append_ids: list[int] = []
        records: list[tuple[bytes, bytes | None]] = []
        size_bytes = 0
        for append in appends:
            encoded = encode_group_records(append.records)
            encoded_bytes = sum(len(key) + len(value or b"") + 32 for key, value in encoded)
            if records and size_bytes + encoded_bytes > BATCH_BYTES_MAX:
                self._append_batch(append_ids, records)
                append_ids, records, size_bytes = [], [], 0
            append_ids.append(append.append_id)
            records.extend(encoded)
            size_bytes += encoded_bytes
        if records:
            self._append_batch(append_ids, records)

    def _append_batch(self, append_ids: list[int], records: list[tuple[bytes, bytes | None]]) -> None:
        from kraftlog._kraftlog import encode_batch

        now_ms = self._node.now_ms()
        batch = encode_batch([(now_ms, key, value, ()) for key, value in records], compression=self._compression)

        def on_done(future: asyncio.Future[int]) -> None:
            error_code = 0 if future.cancelled() else _append_error(future.exception())
            if self._is_closed:
                return
            for append_id in append_ids:
                self.shard.on_appended(append_id, error_code)
            self._schedule()

        self.partition.append_coordinator(batch).add_done_callback(on_done)

    def _arm_timer(self) -> None:
        at_ms = self.shard.next_timeout_ms()
        if at_ms == self._timer_at_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at_ms = at_ms
        if at_ms is not None:
            delay_s = max(0, at_ms - self._node.now_ms()) / 1000
            self._timer = self._node.loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.shard.handle_timeout(self._node.now_ms())
        self._drive()


def _append_error(error: BaseException | None) -> int:
    """What a client is told when the coordinator could not store something, as Kafka maps it."""
    if error is None:
        return ErrorCode.NONE
    if not isinstance(error, KafkaError):
        return (
            ErrorCode.COORDINATOR_NOT_AVAILABLE if isinstance(error, KraftlogError) else ErrorCode.UNKNOWN_SERVER_ERROR
        )
    match error.code:
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case code:
            return code


class Groups:
    """All shards of this node.

    Args:
        node: Its partitions must be loaded when ``start`` is called.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._runners: dict[int, ShardRunner] = {}
        self._creation: asyncio.Task[Any] | None = None
        config = node.config
        self.config = GroupConfig(
            group_min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            group_max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            group_max_size=config.get_int("group.max.size"),
            group_initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * MINUTE_MS,
            offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        )

    async def start(self) -> None:
        """Load the shards this node leads and follow the metadata from here on."""
        self._follow(self._node.metadata.image)
        self._node.metadata.add_listener(self._on_metadata)

    async def stop(self) -> None:
        """Send everybody away; what was answered is in the log."""
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()
        await self._node.tasks.cancel_all()

    # -- finding a shard ----------------------------------------------------------------------------------------

    def partition_count(self) -> int:
        """Partitions of ``__consumer_offsets``; 0 while it does not exist."""
        topic = self._node.metadata.image.topics.by_name(CONSUMER_OFFSETS)
        return 0 if topic is None else len(topic.partitions)

    async def ensure_topic(self) -> None:
        """Create ``__consumer_offsets`` unless it exists; those who ask meanwhile wait for the same creation."""
        if self.partition_count():
            return
        if self._creation is None or self._creation.done():
            self._creation = self._node.tasks.spawn(self._node.topic_creation.create([CONSUMER_OFFSETS]))
        errors = await asyncio.shield(self._creation)
        if errors:
            text = f"{CONSUMER_OFFSETS} cannot be created: {ErrorCode.name_of(errors[CONSUMER_OFFSETS])}"
            logger.warning("%s", text)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)

    def runner(self, group_id: str) -> ShardRunner:
        """The loaded shard of a group.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE before ``__consumer_offsets`` exists, NOT_COORDINATOR when another
                node leads the partition, COORDINATOR_LOAD_IN_PROGRESS while it is replayed.
        """
        count = self.partition_count()
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        runner = self._runners.get(coordinator_partition(group_id, count))
        if runner is None or not runner.partition.is_leader:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not runner.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return runner

    def runners(self) -> list[ShardRunner]:
        """Every shard of this node, loaded or not."""
        return list(self._runners.values())

    # -- following the metadata ---------------------------------------------------------------------------------

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        topic = image.topics.by_name(CONSUMER_OFFSETS)
        topic_id = None if topic is None else topic.topic_id
        if any(changed_id == topic_id for changed_id, _ in delta.changed_partitions) or any(
            gone.name == CONSUMER_OFFSETS for gone in delta.deleted_topics.values()
        ):
            self._follow(image)
        names = [gone.name for gone in delta.deleted_topics.values() if image.topics.by_name(gone.name) is None]
        if names:
            for runner in self._runners.values():
                if runner.is_loaded:
                    runner.call(lambda shard, _now_ms: shard.forget_topics(names))

    def _follow(self, image: MetadataImage) -> None:
        """Load shards of partitions led now, drop those of partitions no longer led."""
        topic = image.topics.by_name(CONSUMER_OFFSETS)
        led: dict[int, Partition] = {}
        for index in () if topic is None else topic.partitions:
            partition = self._node.partitions.get_by_name(CONSUMER_OFFSETS, index)
            if partition is not None and partition.is_leader:
                led[index] = partition
        for index, runner in list(self._runners.items()):
            partition = led.get(index)
            if partition is not runner.partition or partition.leader_epoch != runner.leader_epoch:
                runner.close()
                del self._runners[index]
        for index, partition in led.items():
            if index not in self._runners:
                runner = ShardRunner(self._node, partition, self.config)
                self._runners[index] = runner
                self._node.tasks.spawn(self._load(index, runner))

    async def _load(self, index: int, runner: ShardRunner) -> None:
        try:
            await runner.load()
        except KraftlogError:
            # Its groups are not to be had; the partition stays in "loading" for them, the other shards go on.
            logger.exception("cannot load the groups of %s-%d", CONSUMER_OFFSETS, index)
