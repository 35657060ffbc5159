"""The consumer groups of one shard: requests in, answers and records out (KIP-848)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.group.changes import Change, Changes
from kraftlog.coordinator.group.classic_group import ClassicGroup
from kraftlog.coordinator.group.classic_members import ClassicMembers
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.coordinator.group.consumer_descriptions import describe
from kraftlog.coordinator.group.consumer_group import ConsumerGroup
from kraftlog.coordinator.group.consumer_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from kraftlog.coordinator.group.consumer_membership import ConsumerMembership, GroupSettings
from kraftlog.coordinator.group.consumer_records import apply_record, group_id_of, group_tombstones, recorded
from kraftlog.coordinator.group.consumer_requests import Heartbeat, check_heartbeat, heartbeat_response
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.coordinator.group.membership import Membership
from kraftlog.coordinator.group.migration import can_downgrade, downgrade, upgrade
from kraftlog.coordinator.group.topics import Topics
from kraftlog.coordinator.timers import Timers
from kraftlog.coordinator.write_log import WriteLog
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from kraftlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kraftlog.wire.messages.group_coordinator_records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
)
from kraftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kraftlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kraftlog.wire.messages.list_groups import ListGroupsResponse
from kraftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["ConsumerGroups"]

_Response = ConsumerGroupHeartbeatResponse


class ConsumerGroups:
    """Consumer groups beside the classic groups of the same shard.

    Args:
        config: Limits and times of the broker.
        group_settings: Settings of single groups.
        topics: The committed topics.
        rng: Source of member ids.
        writes: The shard's queue of answers and appends.
        classic: The rules of the shard's classic groups; no id is in both.
        events: Counts rebalances.
    """

    def __init__(
        self,
        config: GroupConfig,
        group_settings: GroupSettings,
        topics: Topics,
        rng: random.Random,
        writes: WriteLog,
        classic: Membership,
        events: GroupEvents,
    ) -> None:
        self._config = config
        self._topics = topics
        self._writes = writes
        self._classic_membership = classic
        self._classic = classic.groups
        self._now_ms = 0
        self._changes = Changes(writes)
        self.timers = Timers()
        self._membership = ConsumerMembership(
            config, group_settings, topics, self.timers, rng, events, expire=self._on_expired, resolve=self._on_resolve
        )
        self._classic_members = ClassicMembers(config, topics, self._membership)
        self.groups = self._membership.groups

    # -- records ------------------------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord) -> None:
        """Take in a record of a group, while loading or when it is written."""
        if isinstance(record.key, GroupMetadataKey):
            self._apply_classic(record.key.group, record.value)
            return
        group_id = group_id_of(record)
        if isinstance(record.key, ConsumerGroupMetadataKey) and record.value is None:
            self.groups.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is None:
            if record.value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
            # A group that holds nothing but offsets counts as a simple classic group until a record says otherwise.
            known = self._classic.get(group_id)
            if known is not None and not known.members:
                del self._classic[group_id]
        apply_record(group, record)

    def _apply_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is None:
            self._classic.pop(group_id, None)
            return
        group = self._classic.get(group_id)
        if group is None:
            group = self._classic[group_id] = ClassicGroup(group_id, now_ms=self._now_ms)
        group.load(value, now_ms=self._now_ms)

    def _recorded(self, key: Any) -> CoordinatorRecord:
        if isinstance(key, GroupMetadataKey):
            classic = self._classic.get(key.group)
            return CoordinatorRecord(key, None) if classic is None else classic.metadata_record()
        return recorded(self.groups.get(key.group_id), key)

    def finish_loading(self, now_ms: int) -> None:
        """Start the clocks: every record has been replayed."""
        self._membership.start_timers(now_ms)

    def change(self, group_id: str, decide: Callable[[Change], None], then: Callable[[int], None], now_ms: int) -> None:
        """Append what ``decide`` writes; if it raises or the append fails, nothing has changed."""
        self._now_ms = now_ms
        change = Change(self._recorded, self.apply)
        try:
            decide(change)
        except BaseException:
            change.take_back()
            self._drop_if_void(group_id)
            raise

        def on_appended(error_code: int) -> None:
            if error_code:
                self._drop_if_void(group_id)
                self._membership.ensure_timers(group_id, now_ms)
                self._classic_membership.ensure_timers(group_id)
            then(error_code)

        self._changes.submit(change, on_appended)

    def _drop_if_void(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is not None and not group.members and not group.is_stored:
            del self.groups[group_id]

    # -- heartbeat ----------------------------------------------------------------------------------------------

    def heartbeat(self, token: object, request: ConsumerGroupHeartbeatRequest, client: ClientInfo, now_ms: int) -> None:
        """Answered by an effect once what it changed, and what it depends on, is committed."""
        answers: list[_Response] = []

        def then(error_code: int) -> None:
            self._writes.respond(token, _Response(error_code=error_code) if error_code else answers[0])

        try:
            check_heartbeat(request, client.api_version, self._config.group_consumer_assignors)
            heartbeat = Heartbeat.from_request(request)
            decide = self._leave if heartbeat.is_leaving else self._stay
            self.change(
                request.group_id, lambda change: answers.append(decide(heartbeat, client, change, now_ms)), then, now_ms
            )
        except KafkaError as error:
            response = _Response(error_code=error.code, error_message=error.message)
            self._writes.respond(token, response)

    def _stay(self, heartbeat: Heartbeat, client: ClientInfo, change: Change, now_ms: int) -> _Response:
        group = self._group_to_join(heartbeat, change, now_ms)
        member, has_assignment = self._membership.heartbeat(group, heartbeat, client, change, now_ms)
        self._membership.regexes.judge_by(group, client.may_describe)
        interval_ms = self._membership.heartbeat_interval_ms(group.group_id)
        return heartbeat_response(member, interval_ms, has_assignment=has_assignment)

    def _group_to_join(self, heartbeat: Heartbeat, change: Change, now_ms: int) -> ConsumerGroup:
        group_id = heartbeat.group_id
        if heartbeat.epoch != JOIN_EPOCH or group_id in self.groups:
            return self.existing(group_id)
        classic = self._classic.get(group_id)
        if classic is not None and classic.members:
            upgrade(classic, self._config, self._topics, change)
            self._classic_membership.dismiss(classic)
            for member_id in self.groups[group_id].members:
                self._membership.restart_session(group_id, member_id, now_ms)
            return self.groups[group_id]
        if classic is not None:
            change.write(classic.tombstone())
        group = self.groups[group_id] = ConsumerGroup(group_id)
        return group

    def existing(self, group_id: str) -> ConsumerGroup:
        """A consumer group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, also for a group of another type.
        """
        group = self.groups.get(group_id)
        if group is not None:
            return group
        if group_id in self._classic:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")

    def _leave(self, heartbeat: Heartbeat, _client: ClientInfo, change: Change, now_ms: int) -> _Response:
        group = self.existing(heartbeat.group_id)
        member = self._membership.leave(group, heartbeat, change)
        if heartbeat.epoch != STATIC_LEAVE_EPOCH:
            self._fence(group, [member.member_id], change, now_ms)
        return _Response(member_id=heartbeat.member_id, member_epoch=heartbeat.epoch)

    def _fence(self, group: ConsumerGroup, member_ids: list[str], change: Change, now_ms: int) -> None:
        if not can_downgrade(group, member_ids, self._config):
            self._membership.remove(group, member_ids, change)
            return
        for member_id in group.members:
            self._membership.cancel_timers(group.group_id, member_id)
        offered = downgrade(group, member_ids, self._topics, change, now_ms)
        classic = self._classic[group.group_id]
        for member_id, protocols in offered.items():
            classic.set_protocols(classic.members[member_id], protocols)
        self._classic_membership.begin_rebalance(classic, now_ms)

    # -- members with the classic protocol ------------------------------------------------------------------------

    def make_way(self, group_id: str, now_ms: int) -> None:
        """An empty consumer group is forgotten when a classic member joins; its offsets stay."""
        group = self.groups.get(group_id)
        if group is not None and not group.members:
            self.change(group_id, lambda change: change.write(*group_tombstones(group)), lambda _code: None, now_ms)

    def join(self, token: object, request: JoinGroupRequest, client: ClientInfo, now_ms: int) -> None:
        """A classic member joins a consumer group."""
        group = self.groups[request.group_id]
        answers: list[JoinGroupResponse] = []

        def respond(error_code: int) -> None:
            refused = JoinGroupResponse(error_code=error_code, generation_id=-1, member_id=request.member_id)
            self._writes.respond(token, refused if error_code else answers[0])

        try:
            self.change(
                group.group_id,
                lambda change: answers.append(self._classic_members.join(group, request, client, change, now_ms)),
                respond,
                now_ms,
            )
        except KafkaError as error:
            respond(error.code)

    def sync(self, token: object, request: SyncGroupRequest, now_ms: int) -> None:
        """A classic member asks for its partitions; answered once they are committed."""
        try:
            response = self._classic_members.sync(self.groups[request.group_id], request, now_ms)
        except KafkaError as error:
            response = SyncGroupResponse(error_code=error.code)
        self._writes.after_pending(
            lambda code: self._writes.respond(token, SyncGroupResponse(error_code=code) if code else response)
        )

    def classic_heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        """A classic member stays."""
        try:
            code = self._classic_members.heartbeat(self.groups[request.group_id], request, now_ms)
        except KafkaError as error:
            code = error.code
        return HeartbeatResponse(error_code=code)

    def leave_group(self, request: LeaveGroupRequest, api_version: int, now_ms: int) -> LeaveGroupResponse:
        """Classic members leave, or an administrator removes members of any protocol."""
        group = self.groups[request.group_id]
        outcome = self._classic_members.leaving(group, request, api_version)
        gone = list(dict.fromkeys(member_id for member_id, code in outcome if not code))
        if gone:
            self.change(
                group.group_id, lambda change: self._fence(group, gone, change, now_ms), lambda _code: None, now_ms
            )
        if api_version < 3:
            return LeaveGroupResponse(error_code=outcome[0][1])
        return LeaveGroupResponse(
            members=[
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
                for identity, (_, code) in zip(request.members, outcome, strict=True)
            ]
        )

    # -- time ---------------------------------------------------------------------------------------------------

    def _on_expired(self, group_id: str, member_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is not None and member_id in group.members:
            self.change(
                group_id, lambda change: self._fence(group, [member_id], change, now_ms), lambda _code: None, now_ms
            )

    def _on_resolve(self, group_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is None:
            self._membership.regexes.forget(group_id)
        elif self._membership.regexes.step(group, now_ms):
            self.change(
                group_id,
                lambda change: self._membership.regexes.resolve(group, change, now_ms),
                lambda _code: None,
                now_ms,
            )

    # -- describe, list, delete ---------------------------------------------------------------------------------

    def list_groups(self) -> Iterable[ListGroupsResponse.ListedGroup]:
        """Every consumer group."""
        return (
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type="consumer",
                group_state=group.state.value,
                group_type="consumer",
            )
            for group in tuple(self.groups.values())
        )

    def describe(self, token: object, group_id: str) -> None:
        """Answered with a ``DescribedGroup`` once everything it shows is committed."""

        def then(_error_code: int) -> None:
            group = self.groups.get(group_id)
            if group is not None:
                default = self._config.group_consumer_assignors[0]
                self._writes.respond(token, describe(group, self._topics, default))
                return
            kind = "is not a consumer group" if group_id in self._classic else "not found"
            self._writes.respond(
                token,
                ConsumerGroupDescribeResponse.DescribedGroup(
                    group_id=group_id,
                    error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                    error_message=f"Group {group_id} {kind}.",
                ),
            )

        self._writes.after_pending(then)

    def delete(
        self, group_id: str, offsets: tuple[CoordinatorRecord, ...], then: Callable[[int], None], now_ms: int
    ) -> None:
        """Delete an empty group; ``offsets`` are tombstones of its offsets, which go with it.

        ``then`` gets the outcome; offsets are the caller's to forget.
        """
        group = self.groups[group_id]
        if group.members:
            then(int(ErrorCode.NON_EMPTY_GROUP))
            return

        def decide(change: Change) -> None:
            change.records.extend(offsets)
            change.write(*group_tombstones(group))

        self.change(group_id, decide, then, now_ms)
