"""Records of consumer groups in ``__consumer_offsets``, to and from the state of a group.

Source: ``org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.group.assignors import Assignment
from kraftlog.coordinator.group.consumer_group import ConsumerGroup, ResolvedRegex
from kraftlog.coordinator.group.consumer_member import ClassicMetadata, ConsumerMember, MemberState, PartitionEpochs
from kraftlog.types import Uuid
from kraftlog.wire.messages.group_coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

__all__ = [
    "CONSUMER_GROUP_KEYS",
    "apply_record",
    "current_record",
    "epoch_record",
    "group_id_of",
    "group_tombstones",
    "member_record",
    "member_tombstones",
    "recorded",
    "regex_record",
    "regex_tombstone",
    "target_epoch_record",
    "target_record",
]

_MemberValue = ConsumerGroupMemberMetadataValue
_CurrentValue = ConsumerGroupCurrentMemberAssignmentValue
_TargetValue = ConsumerGroupTargetAssignmentMemberValue
_LEFT_EPOCH = -1

CONSUMER_GROUP_KEYS = (
    ConsumerGroupMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupPartitionMetadataKey,
)


# -- records of states ------------------------------------------------------------------------------------------------


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The group epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """What a member asked for."""
    classic = member.classic
    value = _MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else _MemberValue.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                _MemberValue.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """How far a member has come."""
    value = _CurrentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_to_partitions(member.assigned),
        partitions_pending_revocation=_to_partitions(member.pending_revocation),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, value)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """A member's part of the target assignment."""
    value = _TargetValue(
        topic_partitions=[
            _TargetValue.TopicPartition(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in target.items()
        ]
    )
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """For which group epoch the target assignment was computed, and when."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """Topics that match a regular expression."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Forgets a regular expression."""
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_tombstones(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """Forget a member: current assignment, target, subscription, in this order."""
    return tuple(
        CoordinatorRecord(key(group_id=group_id, member_id=member_id), None)
        for key in (
            ConsumerGroupCurrentMemberAssignmentKey,
            ConsumerGroupTargetAssignmentMemberKey,
            ConsumerGroupMemberMetadataKey,
        )
    )


def group_tombstones(group: ConsumerGroup) -> tuple[CoordinatorRecord, ...]:
    """Forget a group with all its members, in the order in which Kafka writes it."""
    group_id = group.group_id
    members = list(group.members)
    return tuple(
        CoordinatorRecord(key, None)
        for key in (
            *(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=m) for m in members),
            *(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=m) for m in members),
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
            *(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=m) for m in members),
            *(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=r) for r in group.regexes),
            ConsumerGroupPartitionMetadataKey(group_id=group_id),
            ConsumerGroupMetadataKey(group_id=group_id),
        )
    )


def _to_partitions(epochs: PartitionEpochs) -> list[_CurrentValue.TopicPartitions]:
    return [
        _CurrentValue.TopicPartitions(
            topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values())
        )
        for topic_id, partitions in epochs.items()
    ]


# -- states of records ------------------------------------------------------------------------------------------------


def group_id_of(record: CoordinatorRecord) -> str:
    """The group a record of a consumer group is about."""
    group_id: str = record.key.group_id
    return group_id


def recorded(group: ConsumerGroup | None, key: object) -> CoordinatorRecord:
    """The record that now stands for ``key``, a tombstone when there is none."""
    if group is not None:
        match key:
            case ConsumerGroupMetadataKey() if group.is_stored:
                return epoch_record(group.group_id, group.epoch, group.metadata_hash)
            case ConsumerGroupTargetAssignmentMetadataKey() if group.target_epoch:
                return target_epoch_record(group.group_id, group.target_epoch, group.target_timestamp_ms)
            case ConsumerGroupMemberMetadataKey() if key.member_id in group.members:
                return member_record(group.group_id, group.members[key.member_id])
            case ConsumerGroupCurrentMemberAssignmentKey() if key.member_id in group.members:
                return current_record(group.group_id, group.members[key.member_id])
            case ConsumerGroupTargetAssignmentMemberKey() if key.member_id in group.targets:
                return target_record(group.group_id, key.member_id, group.targets[key.member_id])
            case ConsumerGroupRegularExpressionKey() if key.regular_expression in group.regexes:
                regex = key.regular_expression
                return regex_record(group.group_id, regex, group.regexes[regex])
    return CoordinatorRecord(key, None)


def apply_record(group: ConsumerGroup, record: CoordinatorRecord) -> None:
    """Take in a record of this group; a tombstone of the epoch is the caller's."""
    key, value = record.key, record.value
    match key:
        case ConsumerGroupMetadataKey() if value is not None:
            group.epoch, group.metadata_hash, group.is_stored = value.epoch, value.metadata_hash, True
        case ConsumerGroupTargetAssignmentMetadataKey():
            group.target_epoch = 0 if value is None else value.assignment_epoch
            group.target_timestamp_ms = 0 if value is None else value.assignment_timestamp
        case ConsumerGroupMemberMetadataKey():
            if value is None:
                group.remove(key.member_id)
            else:
                group.put(_with_metadata(group.members.get(key.member_id), key.member_id, value))
        case ConsumerGroupCurrentMemberAssignmentKey():
            _apply_current(group, key.member_id, value)
        case ConsumerGroupTargetAssignmentMemberKey():
            if value is None:
                group.targets.pop(key.member_id, None)
            else:
                group.targets[key.member_id] = {p.topic_id: tuple(p.partitions) for p in value.topic_partitions}
        case ConsumerGroupRegularExpressionKey():
            if value is None:
                group.regexes.pop(key.regular_expression, None)
            else:
                resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
                group.regexes[key.regular_expression] = resolved


def _with_metadata(member: ConsumerMember | None, member_id: str, value: _MemberValue) -> ConsumerMember:
    known = ConsumerMember(member_id=member_id) if member is None else member
    classic = value.classic_member_metadata
    return ConsumerMember(
        member_id=member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=tuple(sorted(value.subscribed_topic_names)),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMetadata(
            classic.session_timeout_ms, tuple((p.name, bytes(p.metadata)) for p in classic.supported_protocols)
        ),
        epoch=known.epoch,
        previous_epoch=known.previous_epoch,
        state=known.state,
        assigned=known.assigned,
        pending_revocation=known.pending_revocation,
    )


def _apply_current(group: ConsumerGroup, member_id: str, value: _CurrentValue | None) -> None:
    known = group.members.get(member_id)
    if value is None:
        if known is not None:
            group.put(known.at_epoch(_LEFT_EPOCH, MemberState.STABLE, {}, {}))
        return
    member = ConsumerMember(member_id=member_id) if known is None else known
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    moved = member.at_epoch(
        value.member_epoch,
        state,
        _from_partitions(value.assigned_partitions, value.member_epoch),
        _from_partitions(value.partitions_pending_revocation, value.member_epoch),
    )
    group.put(replace(moved, previous_epoch=value.previous_member_epoch))


def _from_partitions(listed: Sequence[_CurrentValue.TopicPartitions], epoch: int) -> dict[Uuid, dict[int, int]]:
    """Partitions with their epochs; records before 4.3 have none, the member epoch stands for them."""
    return {
        part.topic_id: {
            partition: part.assignment_epochs[number]
            if part.assignment_epochs and number < len(part.assignment_epochs)
            else epoch
            for number, partition in enumerate(part.partitions)
        }
        for part in listed
    }
