"""Topics that are created because a client used them: auto-created topics and the coordinators' own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC
from kraftlog.wire.messages.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from kraftlog.runtime.metadata.controller_channel import ControllerChannel
    from kraftlog.runtime.metadata.metadata_quorum import MetadataQuorum

__all__ = ["TopicCreation", "TopicCreationSettings"]

USE_BROKER_DEFAULT = -1
_FINE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreationSettings:
    """Settings of ``__consumer_offsets``, under the names of Kafka's keys with underscores."""

    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    request_timeout_ms: int


class TopicCreation:
    """Creates topics at the active controller.

    Args:
        settings: Of the coordinators' topics.
        channel: The way to the active controller.
        metadata: Knows when this node has the topics.
        wait_until_open: Waits until this node has opened what it was assigned of the topics.
    """

    def __init__(
        self,
        settings: TopicCreationSettings,
        channel: ControllerChannel,
        metadata: MetadataQuorum,
        wait_until_open: Callable[[Iterable[str]], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._channel = channel
        self._metadata = metadata
        self._wait_until_open = wait_until_open

    async def create(self, names: Sequence[str]) -> dict[str, int]:
        """Create topics with the broker's defaults, all at once, and wait until this node has them.

        Returns:
            The error code of each that could not be created; one that another client created meanwhile is no error.
        """
        if not names:
            return {}
        request = CreateTopicsRequest(
            topics=[
                self._consumer_offsets()
                if name == CONSUMER_OFFSETS_TOPIC
                else CreateTopicsRequest.CreatableTopic(
                    name=name, num_partitions=USE_BROKER_DEFAULT, replication_factor=USE_BROKER_DEFAULT
                )
                for name in names
            ],
            timeout_ms=self._settings.request_timeout_ms,
        )
        response = await self._channel.request(request)
        created = [topic.name for topic in response.topics if not topic.error_code]
        await self._metadata.wait_for_topics(created)
        await self._wait_until_open(created)
        return {topic.name: topic.error_code for topic in response.topics if topic.error_code not in _FINE}

    def _consumer_offsets(self) -> CreateTopicsRequest.CreatableTopic:
        """``__consumer_offsets`` as Kafka creates it, its replication factor no larger than the number of brokers."""
        alive = sum(1 for broker in self._metadata.image.cluster.brokers.values() if not broker.fenced)
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self._settings.offsets_topic_segment_bytes),
        }
        return CreateTopicsRequest.CreatableTopic(
            name=CONSUMER_OFFSETS_TOPIC,
            num_partitions=self._settings.offsets_topic_num_partitions,
            replication_factor=max(1, min(self._settings.offsets_topic_replication_factor, alive)),
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=name, value=text) for name, text in configs.items()],
        )
