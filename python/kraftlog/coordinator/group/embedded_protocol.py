"""What consumers put into the messages of the classic protocol: a version, then a subscription or an assignment.

Source: ``org.apache.kafka.clients.consumer.internals.ConsumerProtocol``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from kraftlog.coordinator.group.consumer_member import PartitionEpochs
from kraftlog.coordinator.group.topics import Topics
from kraftlog.errors import ErrorCode, KafkaError, ProtocolError
from kraftlog.types import Uuid
from kraftlog.wire.messages.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription

__all__ = ["assignment_bytes", "partitions_by_id", "read_assignment", "read_subscription", "subscription_version"]

_VERSION = struct.Struct(">h")


def subscription_version(data: bytes) -> int:
    """The version that a subscription begins with, at most the highest known one.

    Raises:
        KafkaError: INCONSISTENT_GROUP_PROTOCOL; there is none.
    """
    if len(data) < _VERSION.size or data[0] & 0x80:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "Malformed embedded consumer protocol.")
    return int(min(_VERSION.unpack_from(data)[0], ConsumerProtocolSubscription.VERSIONS[1]))


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """A subscription.

    Raises:
        KafkaError: INCONSISTENT_GROUP_PROTOCOL; the bytes are none.
    """
    version = subscription_version(data)
    try:
        return ConsumerProtocolSubscription.decode(data[_VERSION.size :], version)
    except ProtocolError as error:
        text = f"Malformed embedded consumer protocol: {error}"
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from error


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """An assignment; empty bytes are an empty one.

    Raises:
        KafkaError: INCONSISTENT_GROUP_PROTOCOL; the bytes are none.
    """
    if not data:
        return ConsumerProtocolAssignment()
    version = subscription_version(data)
    try:
        return ConsumerProtocolAssignment.decode(data[_VERSION.size :], version)
    except ProtocolError as error:
        text = f"Malformed embedded consumer protocol: {error}"
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from error


def assignment_bytes(assigned: PartitionEpochs, topics: Topics, version: int) -> bytes:
    """An assignment in the version of the member's subscription."""
    parts = []
    for topic_id, partitions in assigned.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            part = ConsumerProtocolAssignment.TopicPartition(topic=topic.name, partitions=sorted(partitions))
            parts.append(part)
    return _VERSION.pack(version) + ConsumerProtocolAssignment(assigned_partitions=parts).encode(version)


def partitions_by_id(
    parts: Iterable[ConsumerProtocolAssignment.TopicPartition | ConsumerProtocolSubscription.TopicPartition],
    topics: Topics,
) -> Mapping[Uuid, frozenset[int]]:
    """Partitions of topics that exist, by topic id."""
    found: dict[Uuid, frozenset[int]] = {}
    for part in parts:
        topic = topics.by_name(part.topic)
        if topic is not None:
            found[topic.topic_id] = frozenset(part.partitions)
    return found
