"""Members of a consumer group that use the classic protocol (KIP-848, online migration).

Such a member joins and syncs at any time and alone; its generation is its member epoch. The coordinator tells it to
join again when it has to move towards a new target.

Source: ``GroupMetadataManager.classicGroupJoinToConsumerGroup`` and its neighbours in Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kraftlog.coordinator.group.changes import Change
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig, MigrationPolicy
from kraftlog.coordinator.group.consumer_group import ConsumerGroup
from kraftlog.coordinator.group.consumer_member import JOIN_EPOCH, ClassicMetadata, ConsumerMember, MemberState
from kraftlog.coordinator.group.consumer_membership import ConsumerMembership
from kraftlog.coordinator.group.consumer_requests import Heartbeat
from kraftlog.coordinator.group.embedded_protocol import (
    assignment_bytes,
    partitions_by_id,
    read_subscription,
    subscription_version,
)
from kraftlog.coordinator.group.topics import Topics
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kraftlog.wire.messages.leave_group import LeaveGroupRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["ClassicMembers"]

_KNOWN_ID_VERSION = 4  # of JoinGroup (KIP-394)
_CONSUMER = "consumer"


class ClassicMembers:
    """The classic protocol in consumer groups."""

    def __init__(self, config: GroupConfig, topics: Topics, membership: ConsumerMembership) -> None:
        self._config = config
        self._topics = topics
        self._membership = membership

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, client: ClientInfo, change: Change, now_ms: int
    ) -> JoinGroupResponse:
        """Join, or take the next step towards the target.

        Raises:
            KafkaError: The group takes no such member, or the member is unknown or fenced.
        """
        self._check_join(group, request)
        is_new = not request.member_id
        member_id = request.member_id or self._membership.new_member_id()
        if is_new and request.group_instance_id is None and client.api_version >= _KNOWN_ID_VERSION:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        if request.group_instance_id is None:
            before = group.members.get(member_id) or ConsumerMember(member_id=member_id)
        else:
            lookup = Heartbeat(
                group_id=group.group_id,
                member_id=member_id,
                epoch=JOIN_EPOCH if is_new else 1,
                instance_id=request.group_instance_id,
            )
            before = self._membership.static_member(group, member_id, lookup, change, is_classic=True)
        protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
        subscription = read_subscription(protocols[0][1])
        member = replace(
            before,
            instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
            rack_id=before.rack_id if subscription.rack_id is None else subscription.rack_id,
            rebalance_timeout_ms=before.rebalance_timeout_ms
            if request.rebalance_timeout_ms == -1
            else request.rebalance_timeout_ms,
            topics=tuple(sorted(set(subscription.topics))),
            regex="",
            client_id=client.client_id,
            client_host=client.client_host,
            classic=ClassicMetadata(request.session_timeout_ms, protocols),
        )
        owned = partitions_by_id(subscription.owned_partitions, self._topics)
        updated = self._membership.update(group, before, member, owned, change, now_ms)
        self._membership.cancel_classic_step("join", group.group_id, member_id)
        self._membership.restart_session(group.group_id, member_id, now_ms)
        self._membership.watch_classic_step("sync", group.group_id, updated, now_ms)
        return JoinGroupResponse(
            generation_id=updated.epoch,
            protocol_type=_CONSUMER,
            protocol_name=protocols[0][0],
            leader="",
            member_id=member_id,
        )

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        if self._config.group_consumer_migration_policy is MigrationPolicy.DISABLED:
            text = f"Classic members cannot join consumer group {group.group_id}: online migration is disabled."
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
        size = self._config.group_consumer_max_size
        if len(group.members) >= size and request.member_id not in group.members:
            text = f"The consumer group has reached its maximum capacity of {size} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        names = {protocol.name for protocol in request.protocols}
        others = [m for m in group.members.values() if m.classic is not None and m.member_id != request.member_id]
        for member in others:
            names &= {name for name, _ in member.classic.protocols} if member.classic else set()
        if request.protocol_type != _CONSUMER or not names:
            text = f"Member {request.member_id}'s protocols are not supported."
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> SyncGroupResponse:
        """The member's partitions, in the version it speaks.

        Raises:
            KafkaError: It is unknown, fenced, of another generation, or has to join again.
        """
        member = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
        classic = member.classic
        first_name, first_metadata = classic.protocols[0] if classic is not None else ("", b"")
        if request.protocol_type not in (None, _CONSUMER) or request.protocol_name not in (None, first_name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._membership.watch_classic_step("join", group.group_id, member, now_ms)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._membership.cancel_classic_step("sync", group.group_id, member.member_id)
        self._membership.restart_session(group.group_id, member.member_id, now_ms)
        return SyncGroupResponse(
            protocol_type=_CONSUMER,
            protocol_name=first_name,
            assignment=assignment_bytes(member.assigned, self._topics, subscription_version(first_metadata)),
        )

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> int:
        """NONE, or REBALANCE_IN_PROGRESS when the member has to join again.

        Raises:
            KafkaError: It is unknown, fenced or of another generation.
        """
        member = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
        self._membership.restart_session(group.group_id, member.member_id, now_ms)
        if (
            member.epoch >= group.target_epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
            and (member.state is not MemberState.UNRELEASED_PARTITIONS or self._waits(group, member))
        ):
            return int(ErrorCode.NONE)
        self._membership.watch_classic_step("join", group.group_id, member, now_ms)
        return int(ErrorCode.REBALANCE_IN_PROGRESS)

    @staticmethod
    def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Whether another member still owns a partition of this one's target."""
        return any(
            group.is_owned(topic_id, partition) and partition not in member.assigned.get(topic_id, {})
            for topic_id, partitions in group.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    def leaving(self, group: ConsumerGroup, request: LeaveGroupRequest, api_version: int) -> Sequence[tuple[str, int]]:
        """Per member that shall leave its id and the error, in the order of the request."""
        if api_version < 3:
            return [self._leaving(group, request.member_id, None)]
        return [self._leaving(group, each.member_id, each.group_instance_id) for each in request.members]

    @staticmethod
    def _leaving(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[str, int]:
        if instance_id is None:
            # An administrator removes members of both protocols.
            is_known = member_id in group.members
            return member_id, int(ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID)
        known = group.static_member(instance_id)
        if known is None:
            return member_id, int(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_id and known.member_id != member_id:
            return member_id, int(ErrorCode.FENCED_INSTANCE_ID)
        return known.member_id, int(ErrorCode.NONE)

    @staticmethod
    def _member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int) -> ConsumerMember:
        if instance_id is not None:
            known = group.static_member(instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known.member_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = group.member(member_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
        if generation_id != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member
