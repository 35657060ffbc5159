"""Computes the target assignment of a consumer group.

Source: ``org.apache.kafka.coordinator.group.modern.TargetAssignmentBuilder``.
"""

from __future__ import annotations

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.group.assignors import Assignment, Assignor, GroupSpec, MemberSpec
from kraftlog.coordinator.group.assignors.java_order import string_order
from kraftlog.coordinator.group.consumer_group import ConsumerGroup
from kraftlog.coordinator.group.consumer_records import target_epoch_record, target_record
from kraftlog.coordinator.group.topics import Topics
from kraftlog.types import Uuid

__all__ = ["target_records"]


def target_records(group: ConsumerGroup, topics: Topics, assign: Assignor, now_ms: int) -> list[CoordinatorRecord]:
    """Records of a new target for the group's epoch: the parts that differ, then the epoch."""
    counts: dict[Uuid, int] = {}
    members: dict[str, MemberSpec] = {}
    for member_id in string_order(group.members):
        member = group.members[member_id]
        subscribed = []
        for name in sorted(group.names_of(member)):
            topic = topics.by_name(name)
            if topic is not None:
                subscribed.append(topic.topic_id)
                counts[topic.topic_id] = topic.partition_count
        members[member_id] = MemberSpec(
            topics=subscribed, assigned=group.targets.get(member_id, {}), instance_id=member.instance_id
        )
    targets = assign(GroupSpec(members=members, partition_counts=counts, is_homogeneous=group.is_homogeneous()))
    records = []
    for member_id in members:
        target = targets.get(member_id, {})
        known = group.targets.get(member_id)
        if known is None or _as_sets(known) != _as_sets(target):
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(group.group_id, group.epoch, now_ms))
    return records


def _as_sets(assignment: Assignment) -> dict[Uuid, frozenset[int]]:
    return {topic_id: frozenset(partitions) for topic_id, partitions in assignment.items()}
