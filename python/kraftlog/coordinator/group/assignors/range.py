"""The range assignor: each topic in contiguous ranges over its sorted subscribers.

Source: ``org.apache.kafka.coordinator.group.assignor.RangeAssignor`` of Kafka 4.3.1, which looks at no previous target.
"""

from __future__ import annotations

from kraftlog.coordinator.group.assignors.specification import Assignment, GroupSpec
from kraftlog.types import Uuid

__all__ = ["assign_range"]


def _sort_key(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    # Java compares strings by UTF-16 units.
    return instance_id is None, (member_id if instance_id is None else instance_id).encode("utf-16-be", "surrogatepass")


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    """Members with an instance id come first, ordered by it, then the others by member id."""
    member_ids = sorted(group.members, key=lambda member_id: _sort_key(member_id, group.members[member_id].instance_id))
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in member_ids:
        for topic_id in group.members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    targets: dict[str, dict[Uuid, range]] = {member_id: {} for member_id in member_ids}
    for topic_id, topic_members in subscribers.items():
        quota, extra_count = divmod(group.partition_counts[topic_id], len(topic_members))
        start = 0
        for number, member_id in enumerate(topic_members):
            end = start + quota + (number < extra_count)
            if end > start:
                targets[member_id][topic_id] = range(start, end)
            start = end
    return {member_id: dict(target) for member_id, target in targets.items()}
