"""The consumer groups of one shard: requests in, answers and records out (KIP-848)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.group.changes import Change, Changes
from kraftlog.coordinator.group.classic_group import ClassicGroup, GroupState
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.coordinator.group.consumer_descriptions import describe
from kraftlog.coordinator.group.consumer_group import ConsumerGroup
from kraftlog.coordinator.group.consumer_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from kraftlog.coordinator.group.consumer_membership import ConsumerMembership, GroupSettings
from kraftlog.coordinator.group.consumer_records import apply_record, group_id_of, group_tombstones, recorded
from kraftlog.coordinator.group.consumer_requests import Heartbeat, check_heartbeat, heartbeat_response
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
from kraftlog.wire.messages.list_groups import ListGroupsResponse

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
        classic: The classic groups of the shard, by id; no id is in both.
    """

    def __init__(
        self,
        config: GroupConfig,
        group_settings: GroupSettings,
        topics: Topics,
        rng: random.Random,
        writes: WriteLog,
        classic: dict[str, ClassicGroup],
    ) -> None:
        self._config = config
        self._topics = topics
        self._writes = writes
        self._classic = classic
        self._changes = Changes(writes)
        self.timers = Timers()
        self._membership = ConsumerMembership(
            config, group_settings, topics, self.timers, rng, expire=self._on_expired, resolve=self._on_resolve
        )
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
            group = self._classic[group_id] = ClassicGroup(group_id, now_ms=0)
        group.load(value, now_ms=0)

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
                self._membership.ensure_sessions(group_id, now_ms)
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
        group = self._group_to_join(heartbeat, change)
        member, has_assignment = self._membership.heartbeat(group, heartbeat, client, change, now_ms)
        interval_ms = self._membership.heartbeat_interval_ms(group.group_id)
        return heartbeat_response(member, interval_ms, has_assignment=has_assignment)

    def _group_to_join(self, heartbeat: Heartbeat, change: Change) -> ConsumerGroup:
        group_id = heartbeat.group_id
        if heartbeat.epoch != JOIN_EPOCH or group_id in self.groups:
            return self.existing(group_id)
        classic = self._classic.get(group_id)
        if classic is not None:
            if classic.state is not GroupState.EMPTY or classic.pending_members:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
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

    def _fence(self, group: ConsumerGroup, member_ids: list[str], change: Change, _now_ms: int) -> None:
        self._membership.remove(group, member_ids, change)

    # -- time ---------------------------------------------------------------------------------------------------

    def _on_expired(self, group_id: str, member_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is not None and member_id in group.members:
            self.change(
                group_id, lambda change: self._fence(group, [member_id], change, now_ms), lambda _code: None, now_ms
            )

    def _on_resolve(self, group_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is not None:
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
