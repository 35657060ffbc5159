"""The simple assignor of share groups: every partition has members, every member about as many partitions.

Balance comes first, then keeping what members have.

Source: ``org.apache.kafka.coordinator.group.assignor.SimpleAssignor`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlog.coordinator.group.assignors.specification import Assignment, GroupSpec
from kraftlog.types import Uuid

__all__ = ["assign_simple"]

_Partition = tuple[Uuid, int]


def assign_simple(group: GroupSpec, assignable: dict[Uuid, Sequence[int]]) -> dict[str, Assignment]:
    """The target of each member.

    Args:
        group: Members with what they have.
        assignable: Partitions by topic id; others are left out.
    """
    held: dict[str, dict[_Partition, None]] = {member_id: {} for member_id in group.members}
    if group.is_homogeneous:
        topics = list(next(iter(group.members.values())).topics) if group.members else []
        _spread(group, list(group.members), topics, assignable, held)
    else:
        for topic_id in assignable:
            subscribers = [member_id for member_id, member in group.members.items() if topic_id in member.topics]
            # Members with few partitions of the topics before come first, since the first ones get the extra ones.
            subscribers.sort(key=lambda member_id: len(held[member_id]))
            _spread(group, subscribers, [topic_id], assignable, held)
    targets: dict[str, Assignment] = {}
    for member_id, partitions in held.items():
        target: dict[Uuid, list[int]] = {}
        for topic_id, index in sorted(partitions):
            target.setdefault(topic_id, []).append(index)
        targets[member_id] = target
    return targets


def _spread(
    group: GroupSpec,
    member_ids: Sequence[str],
    topics: Sequence[Uuid],
    assignable: dict[Uuid, Sequence[int]],
    held: dict[str, dict[_Partition, None]],
) -> None:
    """Give the partitions of some topics to members who all subscribe to them."""
    partitions = [(topic_id, index) for topic_id in topics for index in assignable.get(topic_id, ())]
    if not partitions or not member_ids:
        return
    sharing = -(-len(member_ids) // len(partitions))
    share_count, extra_count = divmod(sharing * len(partitions), len(member_ids))
    owners: dict[_Partition, int] = dict.fromkeys(partitions, 0)
    had = {
        member_id: [
            (topic_id, index)
            for topic_id, indexes in group.members[member_id].assigned.items()
            for index in indexes
            if (topic_id, index) in owners
        ]
        for member_id in member_ids
    }
    # Who has more keeps more, so that an extra partition stays where one is.
    ordered = sorted(member_ids, key=lambda member_id: -len(had[member_id]))
    quotas = {member_id: share_count + (number < extra_count) for number, member_id in enumerate(ordered)}
    for member_id in ordered:
        for partition in had[member_id]:
            if quotas[member_id] and owners[partition] < sharing:
                held[member_id][partition] = None
                owners[partition] += 1
                quotas[member_id] -= 1
    for partition in partitions:
        for member_id in sorted(member_ids, key=lambda member_id: -quotas[member_id]):
            if owners[partition] == sharing:
                break
            if quotas[member_id] and partition not in held[member_id]:
                held[member_id][partition] = None
                owners[partition] += 1
                quotas[member_id] -= 1
    _fill_empty(partitions, member_ids, owners, held)


def _fill_empty(
    partitions: Sequence[_Partition],
    member_ids: Sequence[str],
    owners: dict[_Partition, int],
    held: dict[str, dict[_Partition, None]],
) -> None:
    """A partition that nobody could take, since who had room has it already, goes to the member with the fewest."""
    for partition in partitions:
        if not owners[partition]:
            member_id = min(member_ids, key=lambda member_id: len(held[member_id]))
            held[member_id][partition] = None
            owners[partition] += 1
