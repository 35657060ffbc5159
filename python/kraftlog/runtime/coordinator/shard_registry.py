"""The shards of one coordinator on this node: one for each partition of its topic that this node leads.

A shard is loaded from its partition when this node becomes leader, and unloaded when it no longer is, or leads in
another epoch. The registry serves any coordinator: which topic, which shard and which records come from its caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kraftlog.coordinator.shard import Shard
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.partitioner import coordinator_partition
from kraftlog.runtime.coordinator.shard_runner import CoordinatorPartition, ShardRunner, ShardShell

if TYPE_CHECKING:
    from kraftlog.controller.delta import MetadataDelta
    from kraftlog.controller.image import MetadataImage

__all__ = ["CommittedMetadata", "PartitionLookup", "ShardRegistry", "TaskGroup", "TopicCreator"]

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)

_KEYS_MAX = 64


class CommittedMetadata(Protocol):
    """The committed metadata and its changes."""

    @property
    def image(self) -> MetadataImage:
        """What is committed."""
        ...

    def add_listener(self, listener: Callable[[MetadataImage, MetadataDelta], None]) -> None:
        """Call ``listener`` after each commit that changed something."""
        ...


class PartitionLookup(Protocol):
    """Finds partitions of this node."""

    def get_by_name(self, topic: str, index: int) -> CoordinatorPartition | None:
        """The partition, if it is on this node."""
        ...


class TopicCreator(Protocol):
    """Creates the coordinator's topic."""

    async def create_for(self, name: str, keys: Sequence[str]) -> int:
        """Create a coordinator's topic; its error code, once the metadata has it.

        Partitions of these keys are the first ones that are opened.
        """
        ...

    async def wait_until_open(self, names: Iterable[str], indexes: Iterable[int] | None = None) -> None:
        """Wait until partitions of topics, or those with these indexes, are open here if they are assigned here."""
        ...


class TaskGroup(Protocol):
    """Runs what takes several turns of the loop."""

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``coroutine`` on the running loop."""
        ...


class ShardRegistry(Generic[S]):
    """All shards of one coordinator.

    Args:
        topic: The coordinator's topic.
        make_shard: Makes an empty shard.
        shell: What its runners share.
        metadata: Says which partitions this node leads.
        partitions: Finds them; those assigned to this node exist when ``start`` is called.
        topics: Creates the topic when it is first needed.
        tasks: Load shards.
        has_fixed_count: Whether the number of partitions that the topic had first stays in force: keys keep their
            partitions when the topic grows, and no further shard is loaded, as in Kafka's TransactionStateManager.
    """

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[], S],
        shell: ShardShell,
        *,
        metadata: CommittedMetadata,
        partitions: PartitionLookup,
        topics: TopicCreator,
        tasks: TaskGroup,
        has_fixed_count: bool = False,
    ) -> None:
        self._topic = topic
        self._make_shard = make_shard
        self._shell = shell
        self._metadata = metadata
        self._partitions = partitions
        self._topics = topics
        self._tasks = tasks
        self._runners: dict[int, ShardRunner[S]] = {}
        self._creation: asyncio.Task[int] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._is_stopped = False
        self._has_fixed_count = has_fixed_count
        self._first_count: tuple[object, int] = (None, 0)

    def start(self) -> None:
        """Load the shards that this node leads and follow the metadata from here on."""
        self.partition_count()
        self.follow(self._metadata.image)
        self._metadata.add_listener(self._on_metadata)

    def stop(self) -> None:
        """Unload every shard; what was answered is in the log."""
        self._is_stopped = True
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()

    # -- finding a shard ----------------------------------------------------------------------------------------

    def partition_count(self) -> int:
        """Partitions over which keys are spread; 0 while the coordinator's topic does not exist."""
        topic = self._metadata.image.topics.by_name(self._topic)
        if topic is None or not self._has_fixed_count:
            return 0 if topic is None else len(topic.partitions)
        if self._first_count[0] != topic.topic_id:
            self._first_count = (topic.topic_id, len(topic.partitions))
        return self._first_count[1]

    @property
    def is_ready(self) -> bool:
        """Whether the coordinator's topic exists, and this node is not just creating it."""
        is_open = self._opening is None or self._opening.done()
        return bool(self.partition_count()) and not self._is_creating and is_open

    @property
    def _is_creating(self) -> bool:
        return self._creation is not None and not self._creation.done()

    async def ensure_topic(self, keys: Sequence[str] = ()) -> None:
        """Create the coordinator's topic unless it exists; concurrent callers wait for one creation.

        Args:
            keys: Return as soon as the shards of these keys are loaded, as far as this node leads them; without keys
                all partitions of this node are open afterwards.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE; it cannot be created.
        """
        if self.is_ready:
            return
        if not self.partition_count() and not self._is_creating:
            self._creation = self._tasks.spawn(self._create(keys))
        if self._creation is not None:
            error_code = await asyncio.shield(self._creation)
            if error_code:
                text = f"{self._topic} cannot be created: {ErrorCode.name_of(error_code)}"
                logger.warning("%s", text)
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        count = self.partition_count()
        if not keys or not count:
            if self._opening is not None:
                await asyncio.shield(self._opening)
            return
        indexes = {coordinator_partition(key, count) for key in islice(keys, _KEYS_MAX)}
        await self._topics.wait_until_open([self._topic], indexes)
        # A list, as a load that has ended leaves the dictionary.
        for load in [self._loads[index] for index in indexes & self._loads.keys()]:
            await asyncio.shield(load)

    async def _create(self, keys: Sequence[str]) -> int:
        error_code = await self._topics.create_for(self._topic, keys[:_KEYS_MAX])
        if not error_code:
            self._opening = self._tasks.spawn(self._topics.wait_until_open([self._topic]))
        return error_code

    def runner(self, key: str) -> ShardRunner[S]:
        """The loaded shard that coordinates ``key``, such as a group id.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE before the topic exists, NOT_COORDINATOR when another node leads the
                partition, COORDINATOR_LOAD_IN_PROGRESS while it is replayed.
        """
        count = self.partition_count()
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        runner = self._runners.get(coordinator_partition(key, count))
        if runner is None or not runner.partition.is_leader:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not runner.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return runner

    def runner_of(self, index: int) -> ShardRunner[S] | None:
        """The loaded shard of that partition, if this node coordinates it."""
        runner = self._runners.get(index)
        return runner if runner is not None and runner.is_loaded and runner.partition.is_leader else None

    def runners(self) -> list[ShardRunner[S]]:
        """Every shard of this node, loaded or not."""
        return list(self._runners.values())

    # -- following the metadata ---------------------------------------------------------------------------------

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        topic = image.topics.by_name(self._topic)
        topic_id = None if topic is None else topic.topic_id
        deleted = list(delta.deleted_topics.values())
        if any(changed_id == topic_id for changed_id, _ in delta.changed_partitions) or any(
            gone.name == self._topic for gone in deleted
        ):
            self.follow(image)
        while deleted:
            # A name that was deleted twice, with two ids, takes two turns.
            gone_ids = {gone.name: gone.topic_id for gone in deleted}
            deleted = [gone for gone in deleted if gone_ids[gone.name] != gone.topic_id]
            for runner in self._runners.values():
                if runner.is_loaded:
                    runner.call(lambda shard, _now_ms, ids=gone_ids: shard.forget_topics(ids))  # type: ignore[misc]

    def follow(self, image: MetadataImage) -> None:
        """Load shards of partitions that this node leads now, unload those of partitions it no longer leads."""
        topic = image.topics.by_name(self._topic)
        for index in {*(() if topic is None else topic.partitions), *self._runners}:
            self.follow_partition(image, index)

    def follow_partition(self, image: MetadataImage, index: int) -> None:
        """Load or unload the shard of one partition."""
        if self._is_stopped:
            return
        topic = image.topics.by_name(self._topic)
        is_there = topic is not None and index in topic.partitions
        partition = self._partitions.get_by_name(self._topic, index) if is_there else None
        led = partition if partition is not None and partition.is_leader else None
        runner = self._runners.get(index)
        if runner is not None and (led is not runner.partition or led.leader_epoch != runner.leader_epoch):
            runner.close()
            del self._runners[index]
            runner = None
        if led is not None and runner is None:
            self._runners[index] = made = ShardRunner(self._make_shard(), led, self._shell)
            self._loads[index] = load = self._tasks.spawn(self._load(index, made))
            load.add_done_callback(partial(self._loaded, index))

    def _loaded(self, index: int, load: asyncio.Task[None]) -> None:
        if self._loads.get(index) is load:
            del self._loads[index]

    async def _load(self, index: int, runner: ShardRunner[S]) -> None:
        topic = self._metadata.image.topics.by_name(self._topic)
        count = self.partition_count()
        if topic is not None and len(topic.partitions) != count:
            # Keys of this shard may hash to another partition now: what it has cannot be relied on.
            logger.error(
                "the shard of %s-%d is not loaded: the topic has %d partitions instead of %d",
                self._topic,
                index,
                len(topic.partitions),
                count,
            )
            runner.has_failed = True
            return
        try:
            await runner.load()
        except KraftlogError:
            # Its shard stays in "loading", and requests for it are refused so; the other shards go on.
            runner.has_failed = True
            logger.exception("cannot load the coordinator's shard of %s-%d", self._topic, index)
