"""The uniform assignor: as even as subscriptions allow, keeping what balance allows to keep.

Source: ``UniformAssignor`` and ``UniformHomogeneousAssignmentBuilder`` of Kafka 4.3.1.
"""

from __future__ import annotations

from kraftlog.coordinator.group.assignors.heterogeneous import HeterogeneousAssignment
from kraftlog.coordinator.group.assignors.java_order import copied_capacity, grown_capacity, int_order, uuid_order
from kraftlog.coordinator.group.assignors.specification import Assignment, GroupSpec
from kraftlog.types import Uuid

__all__ = ["assign_uniform"]


def assign_uniform(group: GroupSpec) -> dict[str, Assignment]:
    """One algorithm for members with the same subscription, another for a mix."""
    if not group.members:
        return {}
    if group.is_homogeneous:
        return _assign_homogeneous(group)
    return HeterogeneousAssignment(group).build()


def _assign_homogeneous(group: GroupSpec) -> dict[str, Assignment]:
    subscribed = next(iter(group.members.values())).topics
    if not subscribed:
        return {}
    topics = uuid_order(subscribed, copied_capacity(len(subscribed)))
    held = {
        (topic_id, partition)
        for member in group.members.values()
        for topic_id, partitions in member.assigned.items()
        for partition in partitions
    }
    unassigned = [
        (topic_id, partition)
        for topic_id in topics
        for partition in range(group.partition_counts[topic_id])
        if (topic_id, partition) not in held
    ]
    total = sum(group.partition_counts[topic_id] for topic_id in topics)
    minimum_quota, extra_count = divmod(total, len(group.members))
    targets: dict[str, dict[Uuid, list[int]]] = {}
    quotas: list[tuple[str, int]] = []
    for number, (member_id, member) in enumerate(group.members.items()):
        takes_extra = extra_count > 0
        quota = minimum_quota + takes_extra
        kept: dict[Uuid, list[int]] = {}
        for topic_id in uuid_order(member.assigned, grown_capacity(len(member.assigned))):
            if topic_id not in group.partition_counts or topic_id not in subscribed:
                continue
            partitions = int_order(member.assigned[topic_id])
            if quota:
                kept[topic_id] = partitions[:quota]
            unassigned.extend((topic_id, partition) for partition in partitions[quota:])
            quota -= min(quota, len(partitions))
        targets[member_id] = kept
        # An extra partition stays with a member that already holds it; otherwise the last members get the extra ones.
        if quota and takes_extra and len(group.members) - number > extra_count:
            quota -= 1
            takes_extra = False
        extra_count -= takes_extra
        if quota:
            quotas.append((member_id, quota))
    position = 0
    for member_id, quota in quotas:
        for topic_id, partition in unassigned[position : position + quota]:
            targets[member_id].setdefault(topic_id, []).append(partition)
        position += quota
    return dict(targets)
