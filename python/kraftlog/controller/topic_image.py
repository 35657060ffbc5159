"""Topics and partitions as the metadata log has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kraftlog.controller.delta import MetadataDelta
from kraftlog.errors import CorruptRecordError
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

__all__ = [
    "DIRECTORY_LOST",
    "DIRECTORY_MIGRATING",
    "DIRECTORY_UNASSIGNED",
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "RECOVERED",
    "RECOVERING",
    "PartitionImage",
    "TopicImage",
    "TopicsImage",
]

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
RECOVERED: Final = 0
RECOVERING: Final = 1

DIRECTORY_UNASSIGNED: Final = Uuid(bytes(16))
DIRECTORY_LOST: Final = Uuid(bytes(15) + b"\x01")
DIRECTORY_MIGRATING: Final = Uuid(bytes(15) + b"\x02")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """One partition; a change makes a new value."""

    partition: int
    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_recovery_state: int = RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0

    @property
    def has_leader(self) -> bool:
        """Whether somebody leads it."""
        return self.leader != NO_LEADER

    def directory(self, broker_id: int) -> Uuid:
        """Log directory of a broker's replica."""
        return self.directories[self.replicas.index(broker_id)]

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionImage:
        """The partition a PartitionRecord creates."""
        replicas = tuple(record.replicas)
        return cls(
            partition=record.partition_id,
            replicas=replicas,
            directories=tuple(record.directories) or (DIRECTORY_MIGRATING,) * len(replicas),
            isr=tuple(record.isr),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader=record.leader,
            leader_recovery_state=record.leader_recovery_state,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )

    def merge(self, record: PartitionChangeRecord) -> PartitionImage:
        """The partition after a change; a leader field, even with the same leader, raises the leader epoch."""
        changes: dict[str, object] = {"partition_epoch": self.partition_epoch + 1}
        for field_name, value in (
            ("isr", record.isr),
            ("replicas", record.replicas),
            ("removing_replicas", record.removing_replicas),
            ("adding_replicas", record.adding_replicas),
            ("elr", record.eligible_leader_replicas),
            ("last_known_elr", record.last_known_elr),
        ):
            if value is not None:
                changes[field_name] = tuple(value)
        if record.directories:
            changes["directories"] = tuple(record.directories)
        if record.leader != NO_LEADER_CHANGE:
            changes["leader"] = record.leader
            changes["leader_epoch"] = self.leader_epoch + 1
        if record.leader_recovery_state >= 0:
            changes["leader_recovery_state"] = record.leader_recovery_state
        return replace(self, **changes)  # type: ignore[arg-type]

    def to_record(self, topic_id: Uuid, version: int) -> PartitionRecord:
        """The record that creates this partition, as a snapshot holds it."""
        return PartitionRecord(
            partition_id=self.partition,
            topic_id=topic_id,
            replicas=self.replicas,
            isr=self.isr,
            removing_replicas=self.removing_replicas,
            adding_replicas=self.adding_replicas,
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=self.directories if version >= 1 else (),
            eligible_leader_replicas=(self.elr or None) if version >= 2 else None,
            last_known_elr=(self.last_known_elr or None) if version >= 2 else None,
        )


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; ``partitions`` grows and changes in place."""

    name: str
    topic_id: Uuid
    partitions: dict[int, PartitionImage] = field(default_factory=dict)

    def copy(self) -> TopicImage:
        """The same topic with a map of its own."""
        return TopicImage(self.name, self.topic_id, dict(self.partitions))


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
        partition = PartitionImage.from_record(record)
        topic.partitions[partition.partition] = partition
        delta.changed_partitions[topic.topic_id, partition.partition] = partition

    def replay_partition_change(self, record: PartitionChangeRecord, delta: MetadataDelta) -> None:
        """A partition changes."""
        topic = self._existing(record.topic_id, f"a change of partition {record.partition_id}")
        before = topic.partitions.get(record.partition_id)
        if before is None:
            raise CorruptRecordError(
                f"a change names partition {topic.name}-{record.partition_id}, which does not exist"
            )
        partition = before.merge(record)
        topic.partitions[partition.partition] = partition
        delta.changed_partitions[topic.topic_id, partition.partition] = partition

    def replay_remove_topic(self, record: RemoveTopicRecord, delta: MetadataDelta) -> TopicImage:
        """A topic is deleted; returns it as it was."""
        topic = self._existing(record.topic_id, "a removal")
        del self._by_id[topic.topic_id]
        if self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
        for index in topic.partitions:
            delta.changed_partitions.pop((topic.topic_id, index), None)
        if delta.created_topics.pop(topic.topic_id, None) is None:
            delta.deleted_topics[topic.topic_id] = topic
        return topic

    def replay_clear_elr(self, record: ClearElrRecord, delta: MetadataDelta) -> None:
        """Eligible leader replicas are forgotten, of one topic or (empty name) of all."""
        for topic in self.all():
            if record.topic_name and topic.name != record.topic_name:
                continue
            for index, partition in topic.partitions.items():
                if partition.elr or partition.last_known_elr:
                    cleared = replace(partition, elr=(), last_known_elr=())
                    topic.partitions[index] = cleared
                    delta.changed_partitions[topic.topic_id, index] = cleared

    def _existing(self, topic_id: Uuid, what: str) -> TopicImage:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise CorruptRecordError(f"{what} names topic id {topic_id}, which does not exist")
        return topic
