"""Topics that are created because a client used them: auto-created topics and the coordinators' own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kraftlog.errors import ErrorCode
from kraftlog.partitioner import coordinator_partition
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kraftlog.wire.messages.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from kraftlog.runtime.metadata.controller_channel import ControllerChannel
    from kraftlog.runtime.metadata.metadata_quorum import MetadataQuorum

__all__ = ["TopicCreation", "TopicCreationSettings"]

USE_BROKER_DEFAULT = -1
_FINE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreationSettings:
    """Settings of the coordinators' topics, under the names of Kafka's keys with underscores."""

    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_state_topic_min_isr: int
    request_timeout_ms: int


class PartitionOpening(Protocol):
    """Opens the logs of the partitions that are assigned to this node."""

    async def wait_until_open(self, topics: Iterable[str], indexes: Iterable[int] | None = None) -> None:
        """Wait until partitions, all or those with these indexes, are open, offline or gone again."""
        ...

    def open_first(self, topic: str, indexes: Collection[int]) -> None:
        """Open these partitions of a topic before others when it is created; none: in any order."""
        ...


class TopicCreation:
    """Creates topics at the active controller.

    Args:
        settings: Of the coordinators' topics.
        channel: The way to the active controller.
        metadata: Knows when this node has the topics.
        opening: Opens what this node is assigned of the topics.
    """

    def __init__(
        self,
        settings: TopicCreationSettings,
        channel: ControllerChannel,
        metadata: MetadataQuorum,
        opening: PartitionOpening,
    ) -> None:
        self._settings = settings
        self._channel = channel
        self._metadata = metadata
        self._opening = opening

    async def create(self, names: Sequence[str]) -> dict[str, int]:
        """Create topics with the broker's defaults, all at once, and wait until this node has them.

        Returns:
            The error code of each that could not be created; one that another client created meanwhile is no error.
        """
        if not names:
            return {}
        created, errors = await self._create([self._topic(name) for name in names])
        await self._opening.wait_until_open(created)
        return errors

    async def create_for(self, name: str, keys: Sequence[str]) -> int:
        """Create a coordinator's topic for the sake of some keys, such as group ids.

        Returns:
            Its error code, once the metadata has it; the partitions of the keys are the first ones that are opened.
        """
        topic = self._topic(name)
        indexes = {coordinator_partition(key, topic.num_partitions) for key in keys}
        self._opening.open_first(name, indexes)
        try:
            _, errors = await self._create([topic])
        finally:
            self._opening.open_first(name, ())
        return errors.get(name, 0)

    async def wait_until_open(self, names: Iterable[str], indexes: Iterable[int] | None = None) -> None:
        """Wait until partitions of topics, or those with these indexes, are open here if they are assigned here."""
        await self._opening.wait_until_open(names, indexes)

    async def _create(self, topics: list[CreateTopicsRequest.CreatableTopic]) -> tuple[list[str], dict[str, int]]:
        """What was created, and the errors; the metadata has what was created."""
        request = CreateTopicsRequest(topics=topics, timeout_ms=self._settings.request_timeout_ms)
        response = await self._channel.request(request)
        created = [topic.name for topic in response.topics if not topic.error_code]
        await self._metadata.wait_for_topics(created)
        errors = {topic.name: topic.error_code for topic in response.topics if topic.error_code not in _FINE}
        return created, errors

    def _topic(self, name: str) -> CreateTopicsRequest.CreatableTopic:
        """A coordinator's topic as Kafka creates it, or another one with the broker's defaults."""
        settings = self._settings
        if name == CONSUMER_OFFSETS_TOPIC:
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.offsets_topic_segment_bytes),
            }
            partitions, replicas = settings.offsets_topic_num_partitions, settings.offsets_topic_replication_factor
        elif name == TRANSACTION_STATE_TOPIC:
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(settings.transaction_state_log_min_isr),
                "segment.bytes": str(settings.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            }
            partitions = settings.transaction_state_log_num_partitions
            replicas = settings.transaction_state_log_replication_factor
        elif name == SHARE_GROUP_STATE_TOPIC:
            configs = {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "compression.type": "producer",
                "min.insync.replicas": str(settings.share_coordinator_state_topic_min_isr),
                "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
            }
            partitions = settings.share_coordinator_state_topic_num_partitions
            replicas = settings.share_coordinator_state_topic_replication_factor
        else:
            return CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=USE_BROKER_DEFAULT, replication_factor=USE_BROKER_DEFAULT
            )
        # Unlike Kafka, which waits until there are as many brokers as replicas are configured.
        alive = sum(1 for broker in self._metadata.image.cluster.brokers.values() if not broker.fenced)
        return CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=max(1, min(replicas, alive)),
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=name, value=text) for name, text in configs.items()],
        )
