"""The share groups of one shard: heartbeats, time-outs, descriptions and the share partitions they use (KIP-932).

What has to be done at the share coordinator leaves as an event; the shell reports when it is done.

Source: ``org.apache.kafka.coordinator.group.GroupMetadataManager`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.group.assignors.simple import assign_simple
from kraftlog.coordinator.group.assignors.specification import Assignment, GroupSpec, MemberSpec
from kraftlog.coordinator.group.changes import Change, Changes
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.coordinator.group.consumer_requests import size_problem
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.coordinator.group.share_group import ShareGroup, ShareMember, StatePartitions
from kraftlog.coordinator.group.share_records import (
    apply_record,
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    recorded,
    state_record,
    target_epoch_record,
    target_record,
)
from kraftlog.coordinator.group.topics import Topics
from kraftlog.coordinator.timers import Timers
from kraftlog.coordinator.write_log import WriteLog
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kraftlog.wire.messages.group_coordinator_records import ShareGroupMetadataKey
from kraftlog.wire.messages.join_group import JoinGroupResponse
from kraftlog.wire.messages.list_groups import ListGroupsResponse
from kraftlog.wire.messages.share_group_describe import ShareGroupDescribeResponse
from kraftlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

__all__ = ["ShareGroups", "ShareStatesDue"]

_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_MEMBER_ID_LENGTH_MAX: Final = 36
_RETRY_MS: Final = 30_000
_Response = ShareGroupHeartbeatResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStatesDue:
    """Share partitions whose state has to be set up; report with ``on_states_initialized``."""

    group_id: str
    state_epoch: int
    topics: Mapping[Uuid, tuple[str, frozenset[int]]]


class ShareGroups:
    """Share groups beside the other groups of a shard.

    Args:
        config: Limits and times of the broker.
        group_settings: Settings of single groups.
        topics: The committed topics.
        writes: The shard's queue of answers and appends.
        events: Counts rebalances.
        is_other_type: Whether a group of this id has another type.
    """

    def __init__(
        self,
        config: GroupConfig,
        group_settings: Callable[[str], Mapping[str, str]],
        topics: Topics,
        writes: WriteLog,
        events: GroupEvents,
        *,
        is_other_type: Callable[[str], bool],
    ) -> None:
        self._config = config
        self._group_settings = group_settings
        self._topics = topics
        self._writes = writes
        self._events = events
        self._is_other_type = is_other_type
        self._changes = Changes(writes)
        self._started_ms: dict[tuple[str, Uuid], int] = {}
        self.timers = Timers()
        self.groups: dict[str, ShareGroup] = {}

    # -- records ------------------------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord) -> None:
        """Take in a record of a group, while loading or when it is written."""
        group_id = record.key.group_id
        if isinstance(record.key, ShareGroupMetadataKey) and record.value is None:
            self.groups.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is None:
            if record.value is None:
                return
            group = self.groups[group_id] = ShareGroup(group_id)
        apply_record(group, record)

    def finish_loading(self, now_ms: int) -> None:
        """Start the clocks: every record has been replayed."""
        for group in self.groups.values():
            for member_id in group.members:
                self._restart_session(group.group_id, member_id, now_ms)

    def _change(
        self, group_id: str, decide: Callable[[Change], None], then: Callable[[int], None], now_ms: int
    ) -> None:
        change = Change(lambda key: recorded(self.groups.get(key.group_id), key), self.apply)
        try:
            decide(change)
        except BaseException:
            change.take_back()
            self._drop_if_void(group_id)
            raise

        def on_appended(error_code: int) -> None:
            if error_code:
                self._drop_if_void(group_id)
                group = self.groups.get(group_id)
                for member_id in () if group is None else group.members:
                    if ("share", group_id, member_id) not in self.timers:
                        self._restart_session(group_id, member_id, now_ms)
            then(error_code)

        self._changes.submit(change, on_appended)

    def _drop_if_void(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is not None and not group.members and not group.is_stored:
            del self.groups[group_id]

    # -- heartbeat ----------------------------------------------------------------------------------------------

    def heartbeat(self, token: object, request: ShareGroupHeartbeatRequest, client: ClientInfo, now_ms: int) -> None:
        """Answered by an effect once what it changed, and what it depends on, is committed."""
        answers: list[_Response] = []

        def then(error_code: int) -> None:
            self._writes.respond(token, _Response(error_code=error_code) if error_code else answers[0])
            if not error_code:
                self._begin_states(request.group_id, now_ms)

        def decide(change: Change) -> None:
            if request.member_epoch == _LEAVE_EPOCH:
                answers.append(self._leave(request, change))
            else:
                answers.append(self._stay(request, client, change, now_ms))

        try:
            check_heartbeat(request)
            self._change(request.group_id, decide, then, now_ms)
        except KafkaError as error:
            self._writes.respond(token, _Response(error_code=error.code, error_message=error.message))

    def _leave(self, request: ShareGroupHeartbeatRequest, change: Change) -> _Response:
        group = self.existing(request.group_id)
        self._remove(group, group.member(request.member_id), change)
        return _Response(member_id=request.member_id, member_epoch=_LEAVE_EPOCH)

    def _remove(self, group: ShareGroup, member: ShareMember, change: Change) -> None:
        self.timers.cancel(("share", group.group_id, member.member_id))
        change.write(*member_tombstones(group.group_id, member.member_id))
        metadata_hash = self._topics.group_hash(group.subscribed_names())
        change.write(epoch_record(group.group_id, group.epoch + 1, metadata_hash))

    def _stay(self, request: ShareGroupHeartbeatRequest, client: ClientInfo, change: Change, now_ms: int) -> _Response:
        is_joining = request.member_epoch == _JOIN_EPOCH
        group = self._group_to_join(request.group_id, is_joining=is_joining)
        before = self._member(group, request, is_joining=is_joining)
        names = request.subscribed_topic_names
        member = replace(
            before,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            topics=before.topics if names is None else tuple(sorted(set(names))),
            client_id=client.client_id,
            client_host=client.client_host,
        )
        if member != before or member.member_id not in group.members:
            change.write(member_record(group.group_id, member))
        is_due = member.topics != before.topics or self._has_unassigned(group)
        self._update_epoch(group, change, is_due=is_due)
        self._update_target(group, change, now_ms)
        updated = self._move(group, group.members[member.member_id], change)
        self._restart_session(group.group_id, member.member_id, now_ms)
        # A member that gives its subscription does not know what the coordinator knows: it may have missed an answer.
        is_full = is_joining or names is not None
        has_assignment = is_full or _as_sets(updated.assigned) != _as_sets(before.assigned)
        return _Response(
            member_id=updated.member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=self._setting(group.group_id, "heartbeat_interval"),
            assignment=_assignment(updated) if has_assignment else None,
        )

    def _group_to_join(self, group_id: str, *, is_joining: bool) -> ShareGroup:
        if not is_joining or group_id in self.groups or self._is_other_type(group_id):
            return self.existing(group_id)
        group = self.groups[group_id] = ShareGroup(group_id)
        return group

    def refuse_classic(self, token: object, group_id: str) -> bool:
        """Refuse a classic member that joins with the id of a share group; False for other ids."""
        if group_id not in self.groups:
            return False
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        self._writes.respond(token, JoinGroupResponse(error_code=code, generation_id=-1))
        return True

    def refuse_consumer(self, token: object, group_id: str) -> bool:
        """Refuse a heartbeat of a consumer group with the id of a share group; False for other ids."""
        if group_id not in self.groups:
            return False
        text = f"Group {group_id} is not a consumer group."
        code = ErrorCode.GROUP_ID_NOT_FOUND
        self._writes.respond(token, ConsumerGroupHeartbeatResponse(error_code=code, error_message=text))
        return True

    def existing(self, group_id: str) -> ShareGroup:
        """A share group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, also for a group of another type.
        """
        group = self.groups.get(group_id)
        if group is not None:
            return group
        kind = "is not a share group" if self._is_other_type(group_id) else "not found"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {kind}.")

    def _member(self, group: ShareGroup, request: ShareGroupHeartbeatRequest, *, is_joining: bool) -> ShareMember:
        known = group.members.get(request.member_id)
        if is_joining:
            limit = self._config.group_share_max_size
            if known is None and len(group.members) >= limit:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {limit} members.",
                )
            return known or ShareMember(member_id=request.member_id)
        member = group.member(request.member_id)
        epoch = request.member_epoch
        if epoch > member.epoch or (epoch < member.epoch and epoch != member.previous_epoch):
            relation = "larger" if epoch > member.epoch else "smaller"
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a {relation} member epoch ({epoch}) than the one known by the group"
                f" coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
        return member

    def _update_epoch(self, group: ShareGroup, change: Change, *, is_due: bool) -> None:
        if not is_due and group.checked_version == self._topics.version:
            return
        group.checked_version = self._topics.version
        metadata_hash = self._topics.group_hash(group.subscribed_names())
        if is_due or metadata_hash != group.metadata_hash:
            self._events.share_rebalances += 1
            change.write(epoch_record(group.group_id, group.epoch + 1, metadata_hash))

    def _has_unassigned(self, group: ShareGroup) -> bool:
        """Whether share partitions were set up since the target was computed for the current epoch."""
        if group.target_epoch < group.epoch:
            return False
        assignable = self._assignable(group)
        return not {(topic_id, index) for topic_id, indexes in assignable.items() for index in indexes} <= (
            group.assigned_targets()
        )

    def _assignable(self, group: ShareGroup) -> dict[Uuid, list[int]]:
        """Partitions of subscribed topics whose share state is set up."""
        found: dict[Uuid, list[int]] = {}
        for name in sorted(group.subscribed_names()):
            topic = self._topics.by_name(name)
            if topic is not None:
                _, indexes = group.initialized.get(topic.topic_id, ("", frozenset()))
                found[topic.topic_id] = sorted(index for index in indexes if index < topic.partition_count)
        return found

    def _update_target(self, group: ShareGroup, change: Change, now_ms: int) -> None:
        if group.target_epoch >= group.epoch:
            return
        interval_ms = self._setting(group.group_id, "assignment_interval")
        if group.target_epoch and group.target_timestamp_ms <= now_ms < group.target_timestamp_ms + interval_ms:
            return
        assignable = self._assignable(group)
        members = {
            member.member_id: MemberSpec(
                topics=[topic.topic_id for name in member.topics if (topic := self._topics.by_name(name)) is not None],
                assigned=group.targets.get(member.member_id, {}),
            )
            for member in group.members.values()
        }
        counts = {topic_id: len(indexes) for topic_id, indexes in assignable.items()}
        spec = GroupSpec(members=members, partition_counts=counts, is_homogeneous=group.is_homogeneous())
        targets = assign_simple(spec, dict(assignable))
        for member_id, target in targets.items():
            known = group.targets.get(member_id)
            if known is None or _as_sets(known) != _as_sets(target):
                change.write(target_record(group.group_id, member_id, target))
        change.write(target_epoch_record(group.group_id, group.epoch, now_ms))

    def _move(self, group: ShareGroup, member: ShareMember, change: Change) -> ShareMember:
        """Give a member its target in one step: share groups have no revocation."""
        if member.epoch == group.target_epoch:
            return member
        target = group.targets.get(member.member_id, {})
        moved = replace(member, epoch=group.target_epoch, previous_epoch=member.epoch, assigned=target)
        change.write(current_record(group.group_id, moved))
        return group.members[member.member_id]

    # -- time ---------------------------------------------------------------------------------------------------

    def _setting(self, group_id: str, name: str) -> int:
        return self._config.share_setting(name, self._group_settings(group_id))

    def _restart_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        self.timers.schedule(
            ("share", group_id, member_id),
            now_ms + self._setting(group_id, "session_timeout"),
            lambda at_ms: self._on_expired(group_id, member_id, at_ms),
        )

    def _on_expired(self, group_id: str, member_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None:
            self._change(group_id, lambda change: self._remove(group, member, change), lambda _code: None, now_ms)

    # -- share partitions ---------------------------------------------------------------------------------------

    def _begin_states(self, group_id: str, now_ms: int) -> None:
        """Have the state of subscribed partitions set up that have none yet."""
        group = self.groups.get(group_id)
        if group is None:
            return
        due: StatePartitions = {}
        for name in group.subscribed_names():
            topic = self._topics.by_name(name)
            if topic is None or topic.topic_id in group.deleting:
                continue
            _, done = group.initialized.get(topic.topic_id, ("", frozenset()))
            missing = frozenset(range(topic.partition_count)) - done
            _, begun = group.initializing.get(topic.topic_id, ("", frozenset()))
            started_ms = self._started_ms.get((group_id, topic.topic_id))
            if started_ms is not None and now_ms < started_ms + _RETRY_MS:
                missing -= begun
            if missing:
                due[topic.topic_id] = (name, missing)
        if not due:
            return
        for topic_id in due:
            self._started_ms[group_id, topic_id] = now_ms
        record = state_record(group_id, _joined(group.initializing, due), group.initialized, group.deleting)
        state_epoch = group.epoch

        def committed(error_code: int) -> None:
            if not error_code:
                self._writes.emit(ShareStatesDue(group_id=group_id, state_epoch=state_epoch, topics=due))

        self._change(group_id, _writer(record), committed, now_ms)

    def on_states_initialized(self, group_id: str, done: StatePartitions, failed: StatePartitions, now_ms: int) -> None:
        """Take the outcome of ``ShareStatesDue``: what was set up may be assigned, the rest is tried again."""
        group = self.groups.get(group_id)
        if group is None:
            return
        for topic_id in (*done, *failed):
            self._started_ms.pop((group_id, topic_id), None)
        initializing = _without(_without(group.initializing, done), failed)
        known: StatePartitions = {
            topic_id: part for topic_id, part in done.items() if self._topics.by_id(topic_id) is not None
        }
        self._change(
            group_id,
            lambda change: change.write(
                state_record(group_id, initializing, _joined(group.initialized, known), group.deleting)
            ),
            lambda _code: None,
            now_ms,
        )

    def forget_topics(self) -> None:
        """Drop the share partitions of topics that are gone."""
        for group_id, group in list(self.groups.items()):
            gone = {
                topic_id
                for topic_id in (*group.initialized, *group.initializing, *group.deleting)
                if self._topics.by_id(topic_id) is None
            }
            if gone:
                record = state_record(
                    group_id,
                    {topic_id: part for topic_id, part in group.initializing.items() if topic_id not in gone},
                    {topic_id: part for topic_id, part in group.initialized.items() if topic_id not in gone},
                    {topic_id: name for topic_id, name in group.deleting.items() if topic_id not in gone},
                )
                self._change(group_id, _writer(record), lambda _code: None, 0)

    # -- administration -----------------------------------------------------------------------------------------

    def begin_alter(self, token: object, group_id: str, partitions: StatePartitions, now_ms: int) -> None:
        """Prepare new start offsets of an empty group, which is made if need be.

        Answered with the state epoch (positive) to write them with, or with the negative error code.
        """
        group = self.groups.get(group_id)
        if group is None and self._is_other_type(group_id):
            return self._writes.respond(token, -int(ErrorCode.GROUP_ID_NOT_FOUND))
        if group is not None and group.members:
            return self._writes.respond(token, -int(ErrorCode.NON_EMPTY_GROUP))
        made = group or ShareGroup(group_id)
        self.groups[group_id] = made
        epoch = made.epoch + 1 if made.is_stored else made.epoch

        def decide(change: Change) -> None:
            change.write(epoch_record(group_id, epoch, made.metadata_hash))
            change.write(
                state_record(group_id, _joined(made.initializing, partitions), made.initialized, made.deleting)
            )

        return self._change(
            group_id, decide, lambda code: self._writes.respond(token, -code if code else epoch), now_ms
        )

    def begin_deletion(self, token: object, group_id: str, topic_ids: Iterable[Uuid] | None, now_ms: int) -> None:
        """Prepare to delete the state of topics, or of all topics of an empty group.

        Answered with the share partitions to delete, or with the error code.
        """
        group = self.groups.get(group_id)
        if group is None:
            return self._writes.respond(token, int(ErrorCode.GROUP_ID_NOT_FOUND))
        if group.members:
            return self._writes.respond(token, int(ErrorCode.NON_EMPTY_GROUP))
        held = _joined(group.initializing, group.initialized)
        wanted = set(held) if topic_ids is None else set(topic_ids)
        found = {topic_id: part for topic_id, part in held.items() if topic_id in wanted}
        if not found:
            return self._writes.respond(token, found)
        record = state_record(
            group_id,
            {topic_id: part for topic_id, part in group.initializing.items() if topic_id not in found},
            {topic_id: part for topic_id, part in group.initialized.items() if topic_id not in found},
            {**group.deleting, **{topic_id: name for topic_id, (name, _) in found.items()}},
        )
        return self._change(group_id, _writer(record), lambda code: self._writes.respond(token, code or found), now_ms)

    def finish_deletion(
        self, token: object, group_id: str, topic_ids: Iterable[Uuid], now_ms: int, *, is_whole_group: bool
    ) -> None:
        """The state of topics is gone; answered with 0 or an error code once that, or the group's end, is stored."""
        group = self.groups.get(group_id)
        if group is None:
            return self._writes.respond(token, int(ErrorCode.GROUP_ID_NOT_FOUND))
        if is_whole_group and group.members:
            return self._writes.respond(token, int(ErrorCode.NON_EMPTY_GROUP))
        gone = set(topic_ids)
        deleting = {topic_id: name for topic_id, name in group.deleting.items() if topic_id not in gone}
        records = (
            group_tombstones(group)
            if is_whole_group
            else (state_record(group_id, group.initializing, group.initialized, deleting),)
        )
        return self._change(
            group_id, lambda change: change.write(*records), lambda code: self._writes.respond(token, code), now_ms
        )

    def list_groups(self) -> Iterable[ListGroupsResponse.ListedGroup]:
        """Every share group."""
        return (
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id, protocol_type="share", group_state=group.state, group_type="share"
            )
            for group in tuple(self.groups.values())
        )

    def describe(self, token: object, group_id: str) -> None:
        """Answered with a ``DescribedGroup`` once everything it shows is committed."""

        def then(_error_code: int) -> None:
            described: Any = ShareGroupDescribeResponse
            try:
                group = self.existing(group_id)
            except KafkaError as error:
                answer = described.DescribedGroup(
                    group_id=group_id, error_code=error.code, error_message=error.message, group_state="Dead"
                )
                return self._writes.respond(token, answer)
            answer = described.DescribedGroup(
                group_id=group_id,
                group_state=group.state,
                group_epoch=group.epoch,
                assignment_epoch=group.target_epoch,
                assignor_name="simple",
                members=[
                    described.Member(
                        member_id=member.member_id,
                        rack_id=member.rack_id,
                        member_epoch=member.epoch,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        subscribed_topic_names=member.topics,
                        assignment=described.Assignment(
                            topic_partitions=[
                                described.TopicPartitions(
                                    topic_id=topic_id, topic_name=topic.name, partitions=list(indexes)
                                )
                                for topic_id, indexes in member.assigned.items()
                                if (topic := self._topics.by_id(topic_id)) is not None
                            ]
                        ),
                    )
                    for member in group.members.values()
                ],
            )
            return self._writes.respond(token, answer)

        self._writes.after_pending(then)


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Refuse a request whose fields contradict each other.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    problem = None
    if not request.member_id.strip():
        problem = "MemberId can't be empty."
    elif len(request.member_id) > _MEMBER_ID_LENGTH_MAX:
        problem = f"MemberId can't be longer than {_MEMBER_ID_LENGTH_MAX} characters."
    elif not request.group_id.strip():
        problem = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId can't be empty."
    elif request.member_epoch == _JOIN_EPOCH and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < _LEAVE_EPOCH:
        problem = f"MemberEpoch is invalid: {request.member_epoch}."
    problem = problem or size_problem(request.subscribed_topic_names)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _writer(record: CoordinatorRecord) -> Callable[[Change], None]:
    return lambda change: change.write(record)


def _assignment(member: ShareMember) -> _Response.Assignment:
    return _Response.Assignment(
        topic_partitions=[
            _Response.TopicPartitions(topic_id=topic_id, partitions=list(indexes))
            for topic_id, indexes in member.assigned.items()
        ]
    )


def _as_sets(assignment: Assignment) -> dict[Uuid, frozenset[int]]:
    return {topic_id: frozenset(indexes) for topic_id, indexes in assignment.items()}


def _joined(held: StatePartitions, added: StatePartitions) -> StatePartitions:
    found = dict(held)
    for topic_id, (name, indexes) in added.items():
        found[topic_id] = (name, found.get(topic_id, (name, frozenset()))[1] | indexes)
    return found


def _without(held: StatePartitions, gone: StatePartitions) -> StatePartitions:
    found = {}
    for topic_id, (name, indexes) in held.items():
        rest = indexes - gone.get(topic_id, ("", frozenset()))[1]
        if rest:
            found[topic_id] = (name, rest)
    return found
