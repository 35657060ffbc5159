"""Assignment of members with different subscriptions.

Topics with many partitions per subscriber are handed out first, each partition to the least loaded subscriber; then
partitions move, topic by topic, from the most loaded to the least loaded subscribers until no move helps.

Source: ``UniformHeterogeneousAssignmentBuilder`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftlog.coordinator.group.assignors.java_order import uuid_sort_key
from kraftlog.coordinator.group.assignors.specification import Assignment, GroupSpec
from kraftlog.types import Uuid

__all__ = ["HeterogeneousAssignment"]

_MAX_ROUNDS = 16
_NOBODY = -1


class _LoadLevels:
    """Subscribers of one topic by load: who takes the next partition, and who gives the next one away.

    The least loaded members form a range at the start of the sorted list that grows to the right each time all of it
    has taken one more partition. The most loaded ones form a range at the end that grows to the left. Loads are read
    when a range grows; members inside a range are counted by the range's level.
    """

    __slots__ = (
        "_high_end",
        "_high_level",
        "_high_start",
        "_loads",
        "_low_end",
        "_low_level",
        "_members",
        "_next_high",
        "_next_low",
    )

    def __init__(self, members: Iterable[int], loads: list[int]) -> None:
        self._loads = loads
        self._members = sorted(members, key=lambda member: (loads[member], member))
        self._low_end = 0
        self._low_level = loads[self._members[0]] - 1
        self._next_low = 0
        self._high_start = self._high_end = len(self._members)
        self._high_level = loads[self._members[-1]] + 1
        self._next_high = len(self._members) - 1

    @property
    def spread(self) -> int:
        """The difference between the highest and the lowest load at the start."""
        return self._loads[self._members[-1]] - self._loads[self._members[0]]

    def is_balanced(self) -> bool:
        """Whether the levels of both ranges differ by one at most."""
        return self._high_level - self._low_level <= 1

    def take_least_loaded(self) -> int:
        """The member that takes the next partition."""
        if self._next_low >= self._low_end:
            self._low_level += 1
            while self._low_end < len(self._members) and self._load_at(self._low_end) == self._low_level:
                self._low_end += 1
            self._next_low = 0
        member = self._members[self._next_low]
        self._next_low += 1
        return member

    def take_most_loaded(self) -> int | None:
        """The member that gives the next partition away, None when nobody is left."""
        if self._next_high < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                self._high_level = self._load_at(self._high_start - 1)
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._load_at(self._high_start - 1) == self._high_level:
                self._high_start -= 1
            self._next_high = self._high_end - 1
        if self._next_high < 0:
            return None
        member = self._members[self._next_high]
        self._next_high -= 1
        return member

    def exclude_last_most_loaded(self) -> None:
        """Leave out the member that ``take_most_loaded`` returned last: it has no partition of the topic."""
        position, last = self._next_high + 1, self._high_end - 1
        members = self._members
        members[position], members[last] = members[last], members[position]
        self._high_end -= 1

    def _load_at(self, position: int) -> int:
        return self._loads[self._members[position]]


class HeterogeneousAssignment:
    """One computation; ``build`` may be called once."""

    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self._member_ids = list(group.members)
        self._loads = [0] * len(self._member_ids)
        self._subscribers: dict[Uuid, list[int]] = {}
        for number, member in enumerate(group.members.values()):
            for topic_id in member.topics:
                self._subscribers.setdefault(topic_id, []).append(number)
        self._owners: dict[Uuid, list[int]] = {
            topic_id: [_NOBODY] * group.partition_counts[topic_id] for topic_id in self._subscribers
        }

    def build(self) -> dict[str, Assignment]:
        """The targets of all members; without any subscription an empty result."""
        if not self._subscribers:
            return {}
        self._keep_assigned()
        self._assign_remaining()
        self._balance()
        return self._targets()

    def _keep_assigned(self) -> None:
        for number, member in enumerate(self._group.members.values()):
            topics = frozenset(member.topics)
            for topic_id, partitions in member.assigned.items():
                if topic_id not in topics:
                    continue
                self._loads[number] += len(partitions)
                owners = self._owners[topic_id]
                for partition in partitions:
                    owners[partition] = number

    def _sorted(self, topic_ids: Iterable[Uuid]) -> list[Uuid]:
        counts = self._group.partition_counts

        def key(topic_id: Uuid) -> tuple[float, int, tuple[int, int]]:
            subscriber_count = len(self._subscribers[topic_id])
            return -(counts[topic_id] / subscriber_count), subscriber_count, uuid_sort_key(topic_id)

        return sorted(topic_ids, key=key)

    def _assign_remaining(self) -> None:
        free: Mapping[Uuid, list[int]] = {
            topic_id: [partition for partition, owner in enumerate(owners) if owner == _NOBODY]
            for topic_id, owners in self._owners.items()
        }
        for topic_id in self._sorted(topic_id for topic_id, partitions in free.items() if partitions):
            levels = _LoadLevels(self._subscribers[topic_id], self._loads)
            for partition in free[topic_id]:
                self._give(topic_id, partition, levels.take_least_loaded())

    def _give(self, topic_id: Uuid, partition: int, member: int) -> None:
        owners = self._owners[topic_id]
        if owners[partition] != _NOBODY:
            self._loads[owners[partition]] -= 1
        owners[partition] = member
        self._loads[member] += 1

    def _balance(self) -> None:
        topics = self._sorted(topic_id for topic_id, members in self._subscribers.items() if len(members) > 1)
        last_changed = -1
        for _ in range(_MAX_ROUNDS):
            for position, topic_id in enumerate(topics):
                if position == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed == -1:
                    last_changed = position

    def _balance_topic(self, topic_id: Uuid) -> bool:
        levels = _LoadLevels(self._subscribers[topic_id], self._loads)
        if levels.spread <= 1:
            return False
        remaining: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            remaining.setdefault(owner, []).append(partition)
        has_moved = False
        while not levels.is_balanced():
            giver = levels.take_most_loaded()
            while giver is not None and not remaining.get(giver):
                levels.exclude_last_most_loaded()
                giver = levels.take_most_loaded()
            if giver is None:
                break
            partition = remaining[giver].pop()
            taker = levels.take_least_loaded()
            if levels.is_balanced():
                break
            self._give(topic_id, partition, taker)
            has_moved = True
        return has_moved

    def _targets(self) -> dict[str, Assignment]:
        targets: dict[str, dict[Uuid, list[int]]] = {member_id: {} for member_id in self._member_ids}
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                targets[self._member_ids[owner]].setdefault(topic_id, []).append(partition)
        return dict(targets)
