"""Heartbeats of consumer groups: joining, staying, leaving and moving towards the target assignment (KIP-848).

Source: ``org.apache.kafka.coordinator.group.GroupMetadataManager`` of Kafka 4.3.1.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from kraftlog.coordinator.group.assignors import ASSIGNORS
from kraftlog.coordinator.group.changes import Change
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.coordinator.group.consumer_group import ConsumerGroup
from kraftlog.coordinator.group.consumer_member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
)
from kraftlog.coordinator.group.consumer_records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    regex_tombstone,
    target_record,
)
from kraftlog.coordinator.group.consumer_requests import Heartbeat
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.coordinator.group.reconciliation import OwnedPartitions, Reconciliation
from kraftlog.coordinator.group.regex_subscriptions import RegexStatus, RegexSubscriptions
from kraftlog.coordinator.group.target_assignment import target_records
from kraftlog.coordinator.group.topics import Topics
from kraftlog.coordinator.timers import Timers
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid

__all__ = ["ConsumerMembership", "GroupSettings"]

GroupSettings = Callable[[str], Mapping[str, str]]
EPOCH_WITHOUT_TOPICS = 1
"""The configuration resource of a group, by group id."""


class ConsumerMembership:
    """The rules of consumer groups over the groups of one shard.

    Args:
        config: Limits and times of the broker.
        group_settings: Settings of single groups.
        topics: The committed topics.
        timers: Of the shard.
        rng: Source of member ids.
        events: Counts rebalances.
        expire: Called with group id, member id and time when a member's time is over.
        resolve: Called with group id and time when regular expressions are to be resolved, in a change of its own.
    """

    def __init__(
        self,
        config: GroupConfig,
        group_settings: GroupSettings,
        topics: Topics,
        timers: Timers,
        rng: random.Random,
        events: GroupEvents,
        *,
        expire: Callable[[str, str, int], None],
        resolve: Callable[[str, int], None],
    ) -> None:
        self._config = config
        self._group_settings = group_settings
        self._topics = topics
        self._timers = timers
        self._rng = rng
        self._events = events
        self._expire = expire
        self.regexes = RegexSubscriptions(config, topics, timers, events, resolve)
        self.groups: dict[str, ConsumerGroup] = {}

    # -- heartbeat ----------------------------------------------------------------------------------------------

    def heartbeat(
        self, group: ConsumerGroup, request: Heartbeat, client: ClientInfo, change: Change, now_ms: int
    ) -> tuple[ConsumerMember, bool]:
        """Join, or stay.

        Returns:
            The member, and whether the answer names its partitions.

        Raises:
            KafkaError: The member is unknown or fenced, or the group is full.
        """
        member_id = request.member_id or self.new_member_id()
        is_joining = request.epoch == JOIN_EPOCH
        if is_joining:
            self._check_size(group, member_id)
        if request.instance_id is None:
            before = self._dynamic_member(group, member_id, request)
        else:
            before = self.static_member(group, member_id, request, change)
        member = replace(
            before,
            instance_id=before.instance_id if request.instance_id is None else request.instance_id,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=before.rebalance_timeout_ms
            if request.rebalance_timeout_ms == -1
            else request.rebalance_timeout_ms,
            assignor=before.assignor if request.assignor is None else request.assignor,
            topics=before.topics if request.topics is None else request.topics,
            regex=before.regex if request.regex is None else request.regex,
            client_id=client.client_id,
            client_host=client.client_host,
            classic=None,
        )
        updated = self.update(group, before, member, request.owned, change, now_ms)
        self.restart_session(group.group_id, member_id, now_ms)
        has_assignment = is_joining or request.is_full or _has_changed(before, updated)
        return updated, has_assignment

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Time between heartbeats that the members of a group are given, milliseconds."""
        return self._config.consumer_setting("heartbeat_interval", self._group_settings(group_id))

    def new_member_id(self) -> str:
        """A uuid in Kafka's own text form."""
        return str(Uuid(self._rng.randbytes(16)))

    def _check_size(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self._config.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _dynamic_member(self, group: ConsumerGroup, member_id: str, request: Heartbeat) -> ConsumerMember:
        if request.epoch == JOIN_EPOCH:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        member = group.member(member_id)
        _check_epoch(member, request)
        return member

    def static_member(
        self, group: ConsumerGroup, member_id: str, request: Heartbeat, change: Change, *, is_classic: bool = False
    ) -> ConsumerMember:
        """The member with the request's instance id; at epoch 0 a new member id takes the place of the old one.

        Raises:
            KafkaError: UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH.
        """
        known = group.static_member(request.instance_id)
        if request.epoch == JOIN_EPOCH:
            if known is None:
                return group.members.get(member_id) or ConsumerMember(member_id=member_id)
            if not is_classic and known.classic is None and known.epoch != STATIC_LEAVE_EPOCH:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {request.instance_id} cannot join the group because"
                    f" the instance id is owned by {known.member_id} member.",
                )
            return self._replace(group, known, member_id, change)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
        if known.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {request.instance_id} was fenced by member"
                f" {known.member_id}.",
            )
        if not is_classic:
            _check_epoch(known, request)
        return known

    def _replace(self, group: ConsumerGroup, known: ConsumerMember, member_id: str, change: Change) -> ConsumerMember:
        target = group.targets.get(known.member_id, {})
        self.cancel_timers(group.group_id, known.member_id)
        change.write(*member_tombstones(group.group_id, known.member_id))
        member = replace(known, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        change.write(
            member_record(group.group_id, member),
            target_record(group.group_id, member_id, target),
            current_record(group.group_id, member),
        )
        return group.members[member_id]

    # -- from a member's new subscription to its next partitions --------------------------------------------------

    def update(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        member: ConsumerMember,
        owned: OwnedPartitions | None,
        change: Change,
        now_ms: int,
        *,
        may_assign: bool = True,
    ) -> ConsumerMember:
        """Store a member, raise the group epoch and compute a target if needed, and move the member a step.

        Args:
            group: Its group.
            before: The member as it was; of a new member all but its id is absent.
            member: The member with what it asks for now.
            owned: Partitions it says it owns, None when it says nothing.
            change: Takes the records.
            now_ms: Now.
            may_assign: Whether a new target may be computed.
        """
        names_changed = member.topics != before.topics
        if member != before or member.member_id not in group.members:
            change.write(member_record(group.group_id, member))
            group = self.groups[group.group_id]
        status = self.regexes.update(group, before, member, change, now_ms)
        has_changed = names_changed or status is not RegexStatus.UNCHANGED
        self._update_epoch(group, change, is_due=names_changed or status is RegexStatus.CHANGED_AND_RESOLVED)
        if may_assign:
            self._update_target(group, change, now_ms)
        return self._reconcile(
            group, group.members[member.member_id], owned, change, now_ms, has_subscription_changed=has_changed
        )

    def _update_epoch(self, group: ConsumerGroup, change: Change, *, is_due: bool) -> None:
        if not is_due and group.checked_version == self._topics.version:
            return
        group.checked_version = self._topics.version
        metadata_hash = self._topics.group_hash(group.subscribed_names())
        if is_due or metadata_hash != group.metadata_hash:
            self._events.consumer_rebalances += 1
            change.write(epoch_record(group.group_id, group.epoch + 1, metadata_hash))

    def _update_target(self, group: ConsumerGroup, change: Change, now_ms: int) -> None:
        if group.target_epoch >= group.epoch:
            return
        interval_ms = self._config.consumer_setting("assignment_interval", self._group_settings(group.group_id))
        # The target of epoch 1 is that of a group without any topic yet; what the first topics bring is never delayed.
        is_young = group.target_timestamp_ms <= now_ms < group.target_timestamp_ms + interval_ms
        if group.target_epoch > EPOCH_WITHOUT_TOPICS and is_young:
            return
        name = group.preferred_assignor() or self._config.group_consumer_assignors[0]
        assign = ASSIGNORS.get(name, ASSIGNORS[self._config.group_consumer_assignors[0]])
        try:
            records = target_records(group, self._topics, assign, now_ms)
        except (LookupError, ValueError) as error:
            text = f"Failed to compute a new target assignment for epoch {group.epoch}: {error}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error
        change.write(*records)

    def _reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        owned: OwnedPartitions | None,
        change: Change,
        now_ms: int,
        *,
        has_subscription_changed: bool,
    ) -> ConsumerMember:
        if member.is_reconciled_to(group.target_epoch) and not has_subscription_changed:
            return member
        topics = (self._topics.by_name(name) for name in group.names_of(member))
        moved = Reconciliation(
            target_epoch=group.target_epoch,
            target=group.targets.get(member.member_id, {}),
            subscribed=frozenset(topic.topic_id for topic in topics if topic is not None),
            is_owned=group.is_owned,
            owned=owned,
            has_subscription_changed=has_subscription_changed,
        ).step(member)
        if moved == member:
            return member
        change.write(current_record(group.group_id, moved))
        if moved.classic is None:
            self._watch_revocation(group.group_id, moved, now_ms)
        return moved

    # -- leaving ------------------------------------------------------------------------------------------------

    def leave(self, group: ConsumerGroup, request: Heartbeat, change: Change) -> ConsumerMember:
        """Find who leaves; a static member that leaves for a while is noted as such, anyone else is the caller's.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        if request.instance_id is None:
            return group.member(request.member_id)
        member = self.static_member(group, request.member_id, request, change, is_classic=True)
        if request.epoch == STATIC_LEAVE_EPOCH:
            away = replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation={})
            change.write(current_record(group.group_id, away))
        return member

    def remove(self, group: ConsumerGroup, member_ids: list[str], change: Change) -> None:
        """Take members out; the group epoch rises."""
        group_id = group.group_id
        regexes = {group.members[member_id].regex for member_id in member_ids} - {""}
        for member_id in member_ids:
            self.cancel_timers(group_id, member_id)
            change.write(*member_tombstones(group_id, member_id))
        for regex in sorted(regexes):
            if regex not in group.subscribed_regexes and regex in group.regexes:
                change.write(regex_tombstone(group_id, regex))
        metadata_hash = self._topics.group_hash(group.subscribed_names())
        change.write(epoch_record(group_id, group.epoch + 1, metadata_hash))

    # -- time ---------------------------------------------------------------------------------------------------

    def restart_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        """A member was heard; a classic one has its own session timeout."""
        member = self.groups[group_id].members[member_id]
        timeout_ms = (
            self._config.consumer_setting("session_timeout", self._group_settings(group_id))
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        self._timers.schedule(
            ("session", group_id, member_id),
            now_ms + timeout_ms,
            lambda at_ms: self._expire(group_id, member_id, at_ms),
        )

    def watch_classic_step(self, kind: str, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Remove a classic member that does not ``join`` or ``sync`` again within its rebalance timeout."""
        key = (kind, group_id, member.member_id)
        if key not in self._timers:
            at_ms = now_ms + member.rebalance_timeout_ms
            self._timers.schedule(key, at_ms, lambda at_ms: self._expire(group_id, member.member_id, at_ms))

    def cancel_classic_step(self, kind: str, group_id: str, member_id: str) -> None:
        """The member did what it was waited for."""
        self._timers.cancel((kind, group_id, member_id))

    def _watch_revocation(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        key = ("revocation", group_id, member.member_id)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.cancel(key)
            return
        epoch = member.epoch

        def on_timeout(at_ms: int) -> None:
            group = self.groups.get(group_id)
            current = None if group is None else group.members.get(member.member_id)
            # A change that began to revoke may have been taken back, and the member was not told of it.
            if current is None or current.epoch != epoch or current.state is not MemberState.UNREVOKED_PARTITIONS:
                return
            self._expire(group_id, member.member_id, at_ms)

        self._timers.schedule(key, now_ms + member.rebalance_timeout_ms, on_timeout)

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        """Forget all deadlines of a member."""
        for kind in ("session", "revocation", "join", "sync"):
            self._timers.cancel((kind, group_id, member_id))

    def ensure_timers(self, group_id: str, now_ms: int) -> None:
        """Give every member the timers that it needs: a change that took them away was taken back."""
        group = self.groups.get(group_id)
        for member_id, member in () if group is None else group.members.items():
            if ("session", group_id, member_id) not in self._timers:
                self.restart_session(group_id, member_id, now_ms)
            if member.classic is None and ("revocation", group_id, member_id) not in self._timers:
                self._watch_revocation(group_id, member, now_ms)

    def start_timers(self, now_ms: int) -> None:
        """Begin all sessions and revocations anew: the shard was loaded."""
        for group in self.groups.values():
            for member in group.members.values():
                self.restart_session(group.group_id, member.member_id, now_ms)
                if member.classic is None:
                    self._watch_revocation(group.group_id, member, now_ms)
                elif member.epoch < group.target_epoch:
                    self.watch_classic_step("join", group.group_id, member, now_ms)


def _check_epoch(member: ConsumerMember, request: Heartbeat) -> None:
    if request.epoch == member.epoch:
        return
    if request.epoch > member.epoch:
        relation = "larger"
    elif request.epoch != member.previous_epoch or not member.has_all(request.owned):
        relation = "smaller"
    else:
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({request.epoch}) than the one known by the group"
        f" coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _has_changed(before: ConsumerMember, after: ConsumerMember) -> bool:
    return {topic_id: part.keys() for topic_id, part in before.assigned.items()} != {
        topic_id: part.keys() for topic_id, part in after.assigned.items()
    }
