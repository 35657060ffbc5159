"""The shards of one coordinator on this node: one for each partition of its topic that this node leads.

A shard is loaded from its partition when this node becomes leader, and unloaded when it no longer is, or leads in
another epoch. The registry serves any coordinator: which topic, which shard and which records come from its caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
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

    async def create(self, names: Sequence[str]) -> dict[str, int]:
        """Create topics; the error code of each that could not be created."""
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
    ) -> None:
        self._topic = topic
        self._make_shard = make_shard
        self._shell = shell
        self._metadata = metadata
        self._partitions = partitions
        self._topics = topics
        self._tasks = tasks
        self._runners: dict[int, ShardRunner[S]] = {}
        self._creation: asyncio.Task[dict[str, int]] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Load the shards that this node leads and follow the metadata from here on."""
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
        """Partitions of the coordinator's topic; 0 while it does not exist."""
        topic = self._metadata.image.topics.by_name(self._topic)
        return 0 if topic is None else len(topic.partitions)

    async def ensure_topic(self) -> None:
        """Create the coordinator's topic unless it exists; concurrent callers wait for one creation.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE; it cannot be created.
        """
        if self.partition_count():
            return
        if self._creation is None or self._creation.done():
            self._creation = self._tasks.spawn(self._topics.create([self._topic]))
        errors = await asyncio.shield(self._creation)
        if errors:
            text = f"{self._topic} cannot be created: {ErrorCode.name_of(errors[self._topic])}"
            logger.warning("%s", text)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)

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
        if self._is_stopped:
            return
        topic = image.topics.by_name(self._topic)
        led: dict[int, CoordinatorPartition] = {}
        for index in () if topic is None else topic.partitions:
            partition = self._partitions.get_by_name(self._topic, index)
            if partition is not None and partition.is_leader:
                led[index] = partition
        for index, runner in list(self._runners.items()):
            partition = led.get(index)
            if partition is not runner.partition or partition.leader_epoch != runner.leader_epoch:
                runner.close()
                del self._runners[index]
        for index, partition in led.items():
            if index not in self._runners:
                runner = ShardRunner(self._make_shard(), partition, self._shell)
                self._runners[index] = runner
                self._tasks.spawn(self._load(index, runner))

    async def _load(self, index: int, runner: ShardRunner[S]) -> None:
        try:
            await runner.load()
        except KraftlogError:
            # Its shard stays in "loading", and requests for it are refused so; the other shards go on.
            logger.exception("cannot load the coordinator's shard of %s-%d", self._topic, index)
