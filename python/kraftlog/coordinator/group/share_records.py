"""Records of share groups in ``__consumer_offsets``, to and from the state of a group.

Source: ``org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers``.
"""

from __future__ import annotations

from dataclasses import replace

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.group.assignors import Assignment
from kraftlog.coordinator.group.share_group import ShareGroup, ShareMember, StatePartitions
from kraftlog.types import Uuid
from kraftlog.wire.messages.group_coordinator_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

__all__ = [
    "SHARE_GROUP_KEYS",
    "apply_record",
    "current_record",
    "epoch_record",
    "group_tombstones",
    "member_record",
    "member_tombstones",
    "recorded",
    "state_record",
    "target_epoch_record",
    "target_record",
]

_CurrentValue = ShareGroupCurrentMemberAssignmentValue
_StateValue = ShareGroupStatePartitionMetadataValue
_TargetValue = ShareGroupTargetAssignmentMemberValue

SHARE_GROUP_KEYS = (
    ShareGroupMetadataKey,
    ShareGroupMemberMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)


# -- records of states ------------------------------------------------------------------------------------------------


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The group epoch."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """What a member asked for."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
    )
    return CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """What a member has."""
    value = _CurrentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=0,
        assigned_partitions=[
            _CurrentValue.TopicPartitions(topic_id=topic_id, partitions=list(indexes))
            for topic_id, indexes in member.assigned.items()
        ],
    )
    return CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """A member's part of the target assignment."""
    value = _TargetValue(
        topic_partitions=[
            _TargetValue.TopicPartition(topic_id=topic_id, partitions=list(indexes))
            for topic_id, indexes in target.items()
        ]
    )
    return CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """For which group epoch the target assignment was computed, and when."""
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def state_record(
    group_id: str, initializing: StatePartitions, initialized: StatePartitions, deleting: dict[Uuid, str]
) -> CoordinatorRecord:
    """Which share partitions have a state at the share coordinator."""
    value = _StateValue(
        initializing_topics=_infos(initializing),
        initialized_topics=_infos(initialized),
        deleting_topics=[
            _StateValue.TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in deleting.items()
        ],
    )
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def _infos(partitions: StatePartitions) -> list[_StateValue.TopicPartitionsInfo]:
    return [
        _StateValue.TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
        for topic_id, (name, indexes) in partitions.items()
    ]


def member_tombstones(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """Forget a member: current assignment, target, subscription, in this order."""
    return tuple(
        CoordinatorRecord(key(group_id=group_id, member_id=member_id), None)
        for key in (
            ShareGroupCurrentMemberAssignmentKey,
            ShareGroupTargetAssignmentMemberKey,
            ShareGroupMemberMetadataKey,
        )
    )


def group_tombstones(group: ShareGroup) -> tuple[CoordinatorRecord, ...]:
    """Forget a group."""
    group_id = group.group_id
    return (
        *(record for member_id in group.members for record in member_tombstones(group_id, member_id)),
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), None),
    )


# -- states of records ------------------------------------------------------------------------------------------------


def recorded(group: ShareGroup | None, key: object) -> CoordinatorRecord:
    """The record that now stands for ``key``, a tombstone when there is none."""
    if group is not None:
        group_id = group.group_id
        match key:
            case ShareGroupMetadataKey() if group.is_stored:
                return epoch_record(group_id, group.epoch, group.metadata_hash)
            case ShareGroupTargetAssignmentMetadataKey() if group.target_epoch:
                return target_epoch_record(group_id, group.target_epoch, group.target_timestamp_ms)
            case ShareGroupMemberMetadataKey() if key.member_id in group.members:
                return member_record(group_id, group.members[key.member_id])
            case ShareGroupCurrentMemberAssignmentKey() if key.member_id in group.members:
                return current_record(group_id, group.members[key.member_id])
            case ShareGroupTargetAssignmentMemberKey() if key.member_id in group.targets:
                return target_record(group_id, key.member_id, group.targets[key.member_id])
            case ShareGroupStatePartitionMetadataKey():
                return state_record(group_id, group.initializing, group.initialized, group.deleting)
    return CoordinatorRecord(key, None)


def apply_record(group: ShareGroup, record: CoordinatorRecord) -> None:
    """Take in a record of this group; a tombstone of the epoch is the caller's."""
    key, value = record.key, record.value
    match key:
        case ShareGroupMetadataKey() if value is not None:
            group.epoch, group.metadata_hash, group.is_stored = value.epoch, value.metadata_hash, True
        case ShareGroupTargetAssignmentMetadataKey():
            group.target_epoch = 0 if value is None else value.assignment_epoch
            group.target_timestamp_ms = 0 if value is None else value.assignment_timestamp
        case ShareGroupMemberMetadataKey():
            _apply_member(group, key.member_id, value)
        case ShareGroupCurrentMemberAssignmentKey():
            _apply_current(group, key.member_id, value)
        case ShareGroupTargetAssignmentMemberKey():
            if value is None:
                group.targets.pop(key.member_id, None)
            else:
                group.targets[key.member_id] = {p.topic_id: tuple(p.partitions) for p in value.topic_partitions}
        case ShareGroupStatePartitionMetadataKey():
            _apply_state(group, value)


def _apply_member(group: ShareGroup, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
    if value is None:
        group.members.pop(member_id, None)
        return
    known = group.members.get(member_id) or ShareMember(member_id=member_id)
    group.members[member_id] = replace(
        known,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=tuple(sorted(value.subscribed_topic_names)),
    )


def _apply_current(group: ShareGroup, member_id: str, value: _CurrentValue | None) -> None:
    known = group.members.get(member_id)
    if value is None:
        if known is not None:
            group.members[member_id] = replace(known, epoch=-1, previous_epoch=-1, assigned={})
        return
    group.members[member_id] = replace(
        known or ShareMember(member_id=member_id),
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned={part.topic_id: tuple(part.partitions) for part in value.assigned_partitions},
    )


def _apply_state(group: ShareGroup, value: _StateValue | None) -> None:
    initializing = () if value is None else value.initializing_topics
    initialized = () if value is None else value.initialized_topics
    deleting = () if value is None else value.deleting_topics
    group.initializing = {info.topic_id: (info.topic_name, frozenset(info.partitions)) for info in initializing}
    group.initialized = {info.topic_id: (info.topic_name, frozenset(info.partitions)) for info in initialized}
    group.deleting = {info.topic_id: info.topic_name for info in deleting}
