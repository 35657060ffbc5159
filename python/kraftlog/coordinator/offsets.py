"""Committed offsets of all groups of one shard.

Source: ``org.apache.kafka.coordinator.group.OffsetMetadataManager``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kraftlog.coordinator.effects import CoordinatorRecord, TransactionEnd
from kraftlog.types import Uuid
from kraftlog.wire.messages.group_coordinator_records import OffsetCommitKey, OffsetCommitValue

__all__ = ["CommittedOffset", "OffsetStore"]

_EMPTY: Mapping[tuple[str, int], CommittedOffset] = MappingProxyType({})
_VALUE_VERSION = 4
_VALUE_VERSION_WITH_EXPIRY = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """What a group committed for a partition.

    Attributes:
        expire_timestamp_ms: -1 unless the client set it.
        number: Place in the order in which offsets were committed or made pending.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: Uuid = Uuid.ZERO
    number: int = field(default=0, compare=False)

    def to_record(self, group_id: str, topic: str, partition: int, producer_id: int = -1) -> CoordinatorRecord:
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
        key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        return CoordinatorRecord(key, value, version, producer_id)

    @classmethod
    def from_value(cls, value: OffsetCommitValue, number: int = 0) -> CommittedOffset:
        """What a replayed record says."""
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=value.expire_timestamp,
            topic_id=value.topic_id,
            number=number,
        )


class OffsetStore:
    """Offsets by group, then by (topic, partition); those of open transactions are pending beside them."""

    __slots__ = ("_groups", "_number", "_pending", "_pending_counts")

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self._pending: dict[int, dict[tuple[str, str, int], CommittedOffset]] = {}
        self._pending_counts: dict[str, Counter[tuple[str, int]]] = {}
        self._number = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def count(self) -> int:
        """Offsets of all groups, pending ones left out; any thread may call."""
        return sum(map(len, tuple(self._groups.values())))

    def of(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """All offsets of a group; empty when it has none."""
        return self._groups.get(group_id, _EMPTY)

    def pending_of(self, group_id: str) -> frozenset[tuple[str, int]]:
        """The partitions of a group whose offsets an open transaction may change (KIP-447)."""
        return frozenset(self._pending_counts.get(group_id, ()))

    def pending_groups(self) -> frozenset[str]:
        """The groups with pending offsets."""
        return frozenset(self._pending_counts)

    def _count_pending(self, group_id: str, topic: str, partition: int, change: int) -> None:
        counts = self._pending_counts.setdefault(group_id, Counter())
        counts[topic, partition] += change
        if not counts[topic, partition]:
            del counts[topic, partition]
            if not counts:
                del self._pending_counts[group_id]

    def put(
        self, group_id: str, positions: Iterable[tuple[tuple[str, int], int, int, str, Uuid]], commit_timestamp_ms: int
    ) -> None:
        """Take in committed positions that no transaction holds back and that have no expiry of their own.

        Args:
            group_id: Whose.
            positions: (topic and partition, offset, leader epoch, metadata, topic id) of each.
            commit_timestamp_ms: Of all of them.
        """
        offsets = self._groups.get(group_id)
        if offsets is None:
            offsets = self._groups[group_id] = {}
        for place, offset, leader_epoch, metadata, topic_id in positions:
            self._number += 1
            offsets[place] = CommittedOffset(
                offset=offset,
                leader_epoch=leader_epoch,
                metadata=metadata,
                commit_timestamp_ms=commit_timestamp_ms,
                topic_id=topic_id,
                number=self._number,
            )

    def apply(self, record: CoordinatorRecord) -> None:
        """Take in a committed OffsetCommit record or tombstone; one of a transaction waits for its end."""
        key = record.key
        if record.value is not None:
            self._number += 1
            offset = CommittedOffset.from_value(record.value, self._number)
            if record.producer_id >= 0:
                pending = self._pending.setdefault(record.producer_id, {})
                if (key.group, key.topic, key.partition) not in pending:
                    self._count_pending(key.group, key.topic, key.partition, 1)
                pending[key.group, key.topic, key.partition] = offset
            else:
                self._groups.setdefault(key.group, {})[key.topic, key.partition] = offset
            return
        remaining = self._groups.get(key.group)
        if remaining is not None:
            remaining.pop((key.topic, key.partition), None)
            if not remaining:
                del self._groups[key.group]
        if (key.topic, key.partition) not in self._pending_counts.get(key.group, ()):
            return
        for producer_id, pending in list(self._pending.items()):
            if pending.pop((key.group, key.topic, key.partition), None) is not None:
                self._count_pending(key.group, key.topic, key.partition, -1)
            if not pending:
                del self._pending[producer_id]

    def end(self, end: TransactionEnd) -> frozenset[str]:
        """Take in a marker: pending offsets of that producer are committed, or forgotten.

        Returns:
            The groups that have new offsets.
        """
        pending = self._pending.pop(end.producer_id, {})
        for group_id, topic, partition in pending:
            self._count_pending(group_id, topic, partition, -1)
        if not end.is_commit:
            return frozenset()
        for (group_id, topic, partition), offset in pending.items():
            offsets = self._groups.setdefault(group_id, {})
            held = offsets.get((topic, partition))
            # What was committed after the transaction's record, but before its marker, stays.
            if held is None or held.number < offset.number:
                offsets[topic, partition] = offset
        return frozenset(group_id for group_id, _, _ in pending)

    def tombstones(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """Records that forget all offsets of a group, pending ones as well."""
        return tuple(
            CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
            for topic, partition in dict.fromkeys((*self.of(group_id), *sorted(self.pending_of(group_id))))
        )

    def tombstones_of_topics(self, topics: Mapping[str, Uuid]) -> tuple[CoordinatorRecord, ...]:
        """Records that forget the offsets of deleted topics in all groups, pending ones as well.

        Args:
            topics: Ids by name. An offset that was committed for another id of that name stays.
        """
        found: dict[tuple[str, str, int], None] = {}
        for group_id, offsets in self._groups.items():
            for (topic, partition), committed in offsets.items():
                if topic in topics and committed.topic_id in {Uuid.ZERO, topics[topic]}:
                    found[group_id, topic, partition] = None
        for pending in self._pending.values():
            for (group_id, topic, partition), committed in pending.items():
                if topic in topics and committed.topic_id in {Uuid.ZERO, topics[topic]}:
                    found[group_id, topic, partition] = None
        return tuple(
            CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
            for group_id, topic, partition in found
        )
