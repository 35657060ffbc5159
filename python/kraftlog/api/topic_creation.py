"""Topics that come into being because somebody asked for them: auto-created ones and the coordinators' own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from kraftlog.node.node import Node

__all__ = ["CONSUMER_OFFSETS", "create_topics_automatically"]

CONSUMER_OFFSETS = "__consumer_offsets"
USE_BROKER_DEFAULT = -1


def _consumer_offsets_topic(node: Node) -> CreateTopicsRequest.CreatableTopic:
    """``__consumer_offsets`` as Kafka creates it, its replication factor no larger than the brokers there are."""
    config = node.config
    alive = sum(1 for broker in node.metadata.image.cluster.brokers.values() if not broker.fenced)
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
    }
    return CreateTopicsRequest.CreatableTopic(
        name=CONSUMER_OFFSETS,
        num_partitions=config.get_int("offsets.topic.num.partitions"),
        replication_factor=max(1, min(config.get_int("offsets.topic.replication.factor"), alive)),
        configs=[CreateTopicsRequest.CreatableTopicConfig(name=name, value=text) for name, text in settings.items()],
    )


async def create_topics_automatically(node: Node, names: Sequence[str]) -> dict[str, int]:
    """Create topics with the broker's defaults, all at once, and wait until this node has them.

    Returns:
        The error code of each that could not be created; one that somebody else created meanwhile is no error.
    """
    if not names:
        return {}
    request = CreateTopicsRequest(
        topics=[
            _consumer_offsets_topic(node)
            if name == CONSUMER_OFFSETS
            else CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=USE_BROKER_DEFAULT, replication_factor=USE_BROKER_DEFAULT
            )
            for name in names
        ],
        timeout_ms=node.config.get_int("request.timeout.ms"),
    )
    response = await node.controllers.request(request)
    await node.metadata.wait_for_topics(topic.name for topic in response.topics if not topic.error_code)
    fine = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    return {topic.name: topic.error_code for topic in response.topics if topic.error_code not in fine}
