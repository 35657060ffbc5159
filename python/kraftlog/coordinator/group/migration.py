"""A group changes its protocol while its members go on (KIP-848, ``group.consumer.migration.policy``).

Source: ``GroupMetadataManager.convertToConsumerGroup``, ``convertToClassicGroup``, ``ConsumerGroup.fromClassicGroup``
and ``ClassicGroup.fromConsumerGroup`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kraftlog.coordinator.group.changes import Change
from kraftlog.coordinator.group.classic_group import ClassicGroup
from kraftlog.coordinator.group.config import GroupConfig
from kraftlog.coordinator.group.consumer_group import ConsumerGroup
from kraftlog.coordinator.group.consumer_member import ClassicMetadata, ConsumerMember
from kraftlog.coordinator.group.consumer_records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from kraftlog.coordinator.group.embedded_protocol import (
    assignment_bytes,
    partitions_by_id,
    read_assignment,
    read_subscription,
    subscription_version,
)
from kraftlog.coordinator.group.member import Member, Protocols
from kraftlog.coordinator.group.topics import Topics
from kraftlog.errors import ErrorCode, KafkaError

__all__ = ["can_downgrade", "downgrade", "upgrade"]

_CONSUMER = "consumer"


def upgrade(classic: ClassicGroup, config: GroupConfig, topics: Topics, change: Change) -> None:
    """Make a classic group with members a consumer group; its members go on with the classic protocol.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND; the group cannot be converted. Nothing has changed.
    """
    problem = None
    if not config.group_consumer_migration_policy.allows_upgrade:
        problem = "online upgrade is disabled"
    elif classic.protocol_type != _CONSUMER:
        problem = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > config.group_consumer_max_size:
        problem = "the group size exceeds the consumer group maximum size"
    members: list[ConsumerMember] = []
    if problem is None:
        try:
            members = [_to_consumer(classic, member, topics) for member in classic.members.values()]
        except KafkaError as error:
            problem = error.message or "the embedded consumer protocol is malformed"
    if problem is not None:
        text = f"Cannot upgrade classic group {classic.group_id} to consumer group because {problem}."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
    group_id, epoch = classic.group_id, classic.generation_id
    names = {name for member in members for name in member.topics}
    change.write(classic.tombstone())
    change.write(*(member_record(group_id, member) for member in members))
    change.write(epoch_record(group_id, epoch, topics.group_hash(names)))
    change.write(
        *(
            target_record(group_id, member.member_id, {t: tuple(parts) for t, parts in member.assigned.items()})
            for member in members
        )
    )
    change.write(target_epoch_record(group_id, epoch, 0))
    change.write(*(current_record(group_id, member) for member in members))


def _to_consumer(classic: ClassicGroup, member: Member, topics: Topics) -> ConsumerMember:
    chosen = classic.protocol_name
    metadata = member.metadata_for(chosen) if chosen and member.supports(chosen) else member.protocols[0][1]
    subscription = read_subscription(metadata)
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
            " assignor before re-attempting the upgrade",
        )
    epoch = classic.generation_id
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        epoch=epoch,
        previous_epoch=epoch,
        assigned={
            topic_id: dict.fromkeys(sorted(partitions), epoch)
            for topic_id, partitions in partitions_by_id(assignment.assigned_partitions, topics).items()
        },
    )


def can_downgrade(group: ConsumerGroup, leaving: Collection[str], config: GroupConfig) -> bool:
    """Whether all members that stay use the classic protocol, and the group may become a classic one."""
    staying = [member for member in group.members.values() if member.member_id not in leaving]
    return (
        bool(staying)
        and all(member.classic is not None for member in staying)
        and config.group_consumer_migration_policy.allows_downgrade
        and len(staying) <= config.group_max_size
    )


def downgrade(
    group: ConsumerGroup, leaving: Collection[str], topics: Topics, change: Change, now_ms: int
) -> Mapping[str, Protocols]:
    """Make a consumer group a classic one without those who leave; the caller starts its rebalance.

    Returns:
        What each member offers; the group's record keeps the chosen protocol alone.
    """
    staying = [member for member in group.members.values() if member.member_id not in leaving]
    classic = ClassicGroup(group.group_id, now_ms=now_ms)
    for member in staying:
        metadata = member.classic or ClassicMetadata(0, ())
        version = subscription_version(metadata.protocols[0][1])
        classic.add(
            Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=metadata.session_timeout_ms,
                protocol_type=_CONSUMER,
                protocols=metadata.protocols,
                assignment=assignment_bytes(member.assigned, topics, version),
                deadline_ms=now_ms + metadata.session_timeout_ms,
            )
        )
    classic.generation_id = group.epoch
    classic.protocol_name = classic.select_protocol()
    change.write(*group_tombstones(group), classic.metadata_record())
    return {member.member_id: member.protocols for member in classic.members.values()}
