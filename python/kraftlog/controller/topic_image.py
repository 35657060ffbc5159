"""One topic and one partition as the metadata log has them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from kraftlog.controller.directory import DIRECTORY_MIGRATING
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import PartitionChangeRecord, PartitionRecord

__all__ = [
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "RECOVERED",
    "RECOVERING",
    "PartitionImage",
    "TopicImage",
]

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
RECOVERED: Final = 0
RECOVERING: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """What the metadata has of one partition but its index; a change makes a new value, equal partitions share one."""

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

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the first replica leads it."""
        return self.leader == self.replicas[0]

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, broker_id: int) -> Uuid:
        """Log directory of a broker's replica."""
        return self.directories[self.replicas.index(broker_id)]

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionImage:
        """The partition a PartitionRecord creates."""
        replicas = tuple(record.replicas)
        return cls(
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
        elif record.replicas is not None and set(self.directories) <= {DIRECTORY_MIGRATING}:
            changes["directories"] = (DIRECTORY_MIGRATING,) * len(record.replicas)
        if record.leader != NO_LEADER_CHANGE:
            changes["leader"] = record.leader
            changes["leader_epoch"] = self.leader_epoch + 1
        if record.leader_recovery_state >= 0:
            changes["leader_recovery_state"] = record.leader_recovery_state
        return replace(self, **changes)  # type: ignore[arg-type]

    def to_record(self, topic_id: Uuid, index: int, version: int) -> PartitionRecord:
        """The record that creates the partition of this index, as a snapshot holds it."""
        return PartitionRecord(
            partition_id=index,
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
