"""The committed topics as the coordinator of groups sees them."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from kraftlog._kraftlog import TopicPattern, xxh3_64
from kraftlog.coordinator.group.topics import TopicMetadata
from kraftlog.types import Uuid

if TYPE_CHECKING:
    from kraftlog.controller.delta import MetadataDelta
    from kraftlog.controller.image import MetadataImage
    from kraftlog.controller.topic_image import TopicImage
    from kraftlog.runtime.coordinator.shard_registry import CommittedMetadata

__all__ = ["GroupTopics"]

_HASH_FORMAT = b"\x00"


class GroupTopics:
    """Topics by name and id, and the hash over those a group subscribes to.

    The hash is that of Kafka (``org.apache.kafka.coordinator.group.Utils``), so that a group whose records Kafka wrote
    sees no change of its topics here.
    """

    def __init__(self, metadata: CommittedMetadata) -> None:
        self._metadata = metadata
        self._hashes: dict[str, int] = {}
        self._version = metadata.image.offset
        self._created_version = metadata.image.offset
        self._racks = {broker_id: broker.rack for broker_id, broker in metadata.image.cluster.brokers.items()}
        metadata.add_listener(self._on_metadata)

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        is_moved = self._follow_racks(image, delta.changed_brokers)
        if not (is_moved or delta.created_topics or delta.deleted_topics or delta.changed_partitions):
            return
        self._version = image.offset
        self._hashes.clear()
        if delta.created_topics:
            self._created_version = image.offset

    def _follow_racks(self, image: MetadataImage, broker_ids: Iterable[int]) -> bool:
        """Whether one of these brokers is in another rack now; fencing, for one, moves no broker."""
        is_moved = False
        for broker_id in broker_ids:
            broker = image.cluster.brokers.get(broker_id)
            rack = None if broker is None else broker.rack
            is_moved |= self._racks.get(broker_id) != rack
            self._racks[broker_id] = rack
        return is_moved

    @property
    def version(self) -> int:
        """Offset of the metadata that last changed a topic, or the rack of a broker."""
        return self._version

    @property
    def created_version(self) -> int:
        """Offset of the metadata that last created a topic."""
        return self._created_version

    def by_name(self, name: str) -> TopicMetadata | None:
        """The topic of this name."""
        return _metadata(self._metadata.image.topics.by_name(name))

    def by_id(self, topic_id: Uuid) -> TopicMetadata | None:
        """The topic with this id."""
        return _metadata(self._metadata.image.topics.by_id(topic_id))

    def names(self) -> Iterable[str]:
        """Every topic, internal ones as well."""
        return self._metadata.image.topics.names

    def group_hash(self, names: Collection[str]) -> int:
        """Kafka's hash over the topics of a group that exist; 0 without any."""
        topics = self._metadata.image.topics
        known = sorted((name for name in names if topics.by_name(name) is not None), key=_java_order)
        if not known:
            return 0
        return xxh3_64(b"".join(struct.pack("<q", self._topic_hash(name)) for name in known))

    def _topic_hash(self, name: str) -> int:
        if name not in self._hashes:
            topic = self._metadata.image.topics.by_name(name)
            self._hashes[name] = 0 if topic is None else xxh3_64(self._topic_bytes(topic))
        return self._hashes[name]

    def _topic_bytes(self, topic: TopicImage) -> bytes:
        brokers = self._metadata.image.cluster.brokers
        most, least = struct.unpack(">qq", topic.topic_id)
        parts = [_HASH_FORMAT, struct.pack("<qq", most, least), _text(topic.name)]
        parts.append(struct.pack("<i", len(topic.partitions)))
        for index in range(len(topic.partitions)):
            parts.append(struct.pack("<i", index))
            partition = topic.partitions[index]
            known = (brokers.get(replica) for replica in partition.replicas)
            racks = [broker.rack for broker in known if broker is not None and broker.rack is not None]
            parts.extend(
                struct.pack("<i", len(_units(rack)) // 2) + _text(rack) for rack in sorted(racks, key=_java_order)
            )
        return b"".join(parts)

    @staticmethod
    def compile(pattern: str) -> TopicPattern:
        """Compile a regular expression in the syntax of Rust's ``regex``, which is close to RE2.

        Raises:
            ValueError: It does not parse, or is too large as text or when compiled.
        """
        return TopicPattern(pattern)


def _metadata(topic: TopicImage | None) -> TopicMetadata | None:
    return None if topic is None else TopicMetadata(topic.name, topic.topic_id, len(topic.partitions))


def _units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _text(text: str) -> bytes:
    """A string as hash4j puts it into a hash: UTF-16 units, then their number."""
    units = _units(text)
    return units + struct.pack("<i", len(units) // 2)
