"""Committed offsets of all groups of one shard.

Source: ``org.apache.kafka.coordinator.group.OffsetMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.types import Uuid
from kraftlog.wire.messages.group_coordinator_records import OffsetCommitKey, OffsetCommitValue

__all__ = ["CommittedOffset", "OffsetStore"]

_EMPTY: Mapping[tuple[str, int], CommittedOffset] = MappingProxyType({})
_VALUE_VERSION = 4
_VALUE_VERSION_WITH_EXPIRY = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """What a group committed for a partition; ``expire_timestamp_ms`` is -1 unless the client set it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: Uuid = Uuid.ZERO

    def to_record(self, group_id: str, topic: str, partition: int) -> CoordinatorRecord:
        """The record that keeps this; version 1 is the only one with an expiry of its own."""
        value = OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            expire_timestamp=self.expire_timestamp_ms,
            topic_id=self.topic_id,
        )
        version = _VALUE_VERSION if self.expire_timestamp_ms < 0 else _VALUE_VERSION_WITH_EXPIRY
        return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value, version)

    @classmethod
    def from_value(cls, value: OffsetCommitValue) -> CommittedOffset:
        """What a replayed record says."""
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=value.expire_timestamp,
            topic_id=value.topic_id,
        )


class OffsetStore:
    """Offsets by group, then by (topic, partition)."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], CommittedOffset]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def of(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """All offsets of a group; empty when it has none."""
        return self._groups.get(group_id, _EMPTY)

    def apply(self, record: CoordinatorRecord) -> None:
        """Take in a committed OffsetCommit record or tombstone."""
        key = record.key
        if record.value is not None:
            offsets = self._groups.setdefault(key.group, {})
            offsets[(key.topic, key.partition)] = CommittedOffset.from_value(record.value)
            return
        remaining = self._groups.get(key.group)
        if remaining is not None:
            remaining.pop((key.topic, key.partition), None)
            if not remaining:
                del self._groups[key.group]

    def tombstones(
        self, group_id: str, keep: frozenset[tuple[str, int]] = frozenset()
    ) -> tuple[CoordinatorRecord, ...]:
        """Records that forget all offsets of a group but those in ``keep``."""
        return tuple(
            CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
            for topic, partition in self.of(group_id)
            if (topic, partition) not in keep
        )
