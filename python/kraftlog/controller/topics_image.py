"""All topics of the metadata log, and the records that change them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.partition_values import PartitionValues
from kraftlog.controller.topic_image import PartitionImage, TopicImage
from kraftlog.errors import CorruptRecordError
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

__all__ = ["TopicsImage"]


class TopicsImage:
    """All topics, by name and by id."""

    __slots__ = ("_by_id", "_by_name")

    def __init__(self, topics: Sequence[TopicImage] = ()) -> None:
        self._by_id: dict[Uuid, TopicImage] = {topic.topic_id: topic for topic in topics}
        self._by_name: dict[str, TopicImage] = {topic.name: topic for topic in topics}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[TopicImage]:
        return iter(self._by_id.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicsImage) and self._by_id == other._by_id

    __hash__ = None  # type: ignore[assignment]

    def by_name(self, name: str) -> TopicImage | None:
        """The topic of this name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: Uuid) -> TopicImage | None:
        """The topic with this id."""
        return self._by_id.get(topic_id)

    def all(self) -> list[TopicImage]:
        """Every topic, oldest first."""
        return list(self._by_id.values())

    @property
    def names(self) -> Mapping[str, TopicImage]:
        """Every topic by name; a live view."""
        return self._by_name

    def copy(self) -> TopicsImage:
        """The same topics with maps of their own."""
        return TopicsImage([topic.copy() for topic in self])

    def replay_topic(self, record: TopicRecord, delta: MetadataDelta) -> None:
        """A topic is created."""
        topic = TopicImage(record.name, record.topic_id)
        self._by_id[topic.topic_id] = topic
        self._by_name[topic.name] = topic
        delta.created_topics[topic.topic_id] = topic

    def replay_partition(self, record: PartitionRecord, delta: MetadataDelta) -> None:
        """A partition is created."""
        topic = self._existing(record.topic_id, f"partition {record.partition_id}")
        partition = _checked(PartitionImage.from_record(record), topic, record.partition_id)
        topic.partitions[record.partition_id] = partition
        delta.changed_partitions[topic.topic_id, record.partition_id] = partition

    def replay_partition_values(self, values: PartitionValues, delta: MetadataDelta) -> None:
        """Partitions of one topic are created or changed."""
        topic = self._existing(values.topic_id, f"partition {next(iter(values.by_index))}")
        topic.partitions.update(values.by_index)
        delta.changed_partitions.update(values.by_key)

    def replay_partition_change(self, record: PartitionChangeRecord, delta: MetadataDelta) -> None:
        """A partition changes."""
        topic = self._existing(record.topic_id, f"a change of partition {record.partition_id}")
        before = topic.partitions.get(record.partition_id)
        if before is None:
            raise CorruptRecordError(
                f"a change names partition {topic.name}-{record.partition_id}, which does not exist"
            )
        partition = _checked(before.merge(record), topic, record.partition_id)
        topic.partitions[record.partition_id] = partition
        delta.changed_partitions[topic.topic_id, record.partition_id] = partition

    def replay_remove_topic(self, record: RemoveTopicRecord, delta: MetadataDelta) -> TopicImage:
        """A topic is deleted; returns it as it was."""
        topic = self._existing(record.topic_id, "a removal")
        del self._by_id[topic.topic_id]
        if self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
        for index in topic.partitions if delta.changed_partitions else ():
            delta.changed_partitions.pop((topic.topic_id, index), None)
        if delta.created_topics.pop(topic.topic_id, None) is None:
            delta.deleted_topics[topic.topic_id] = topic
        return topic

    def replay_clear_elr(self, record: ClearElrRecord, delta: MetadataDelta) -> None:
        """Eligible leader replicas are forgotten, of one topic or (empty name) of all (RDLT-02)."""
        named = self._by_name.get(record.topic_name) if record.topic_name else None
        topics = self.all() if not record.topic_name else [] if named is None else [named]
        for topic in topics:
            for index, partition in topic.partitions.items():
                if partition.elr or partition.last_known_elr:
                    # As on Kafka's brokers and controllers, which otherwise disagree about AlterPartition.
                    cleared = replace(
                        partition, elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                    )
                    topic.partitions[index] = cleared
                    delta.changed_partitions[topic.topic_id, index] = cleared

    def _existing(self, topic_id: Uuid, what: str) -> TopicImage:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise CorruptRecordError(f"{what} names topic id {topic_id}, which does not exist")
        return topic


def _checked(partition: PartitionImage, topic: TopicImage, index: int) -> PartitionImage:
    """The partition, if each replica has a directory.

    Raises:
        CorruptRecordError: There are more or fewer directories than replicas.
    """
    if len(partition.directories) != len(partition.replicas):
        raise CorruptRecordError(
            f"partition {topic.name}-{index} has {len(partition.replicas)} replicas in {len(partition.directories)}"
            " directories"
        )
    return partition
