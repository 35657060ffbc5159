"""The state of one classic group; the rules that change it are in ``membership.py``.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance -> ...
    any -> Empty when the last member is gone, any -> Dead when the group is deleted

Source: ``org.apache.kafka.coordinator.group.classic.ClassicGroup``.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from enum import Enum

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.group.member import Member, Protocols
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.group_coordinator_records import GroupMetadataKey, GroupMetadataValue

__all__ = ["ClassicGroup", "GroupState", "subscribed_topics"]

_GROUP_METADATA_VALUE_VERSION = 3


class GroupState(Enum):
    """Names as DescribeGroups and ListGroups print them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_PREVIOUS_STATES = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}
"""The states from which each state can be entered."""


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Topics named by a consumer-protocol subscription, None when the bytes are not one."""
    try:
        (count,) = struct.unpack_from(">i", subscription, 2)
        position = 6
        topics = set()
        if count < 0 or count * 2 > len(subscription):
            return None
        for _ in range(count):
            (length,) = struct.unpack_from(">h", subscription, position)
            position += 2
            if length < 0 or position + length > len(subscription):
                return None
            topics.add(subscription[position : position + length].decode("utf-8", "replace"))
            position += length
    except struct.error:
        return None
    return frozenset(topics)


class ClassicGroup:
    """Members, generation and state of one group; no decisions beyond its own consistency.

    Attributes:
        joining_count: Members whose JoinGroup waits for an answer.
    """

    __slots__ = (
        "_protocol_counts",
        "current_state_timestamp_ms",
        "generation_id",
        "group_id",
        "initial_join_deadline_ms",
        "joining_count",
        "leader_id",
        "members",
        "new_member_added",
        "pending_members",
        "protocol_name",
        "protocol_type",
        "rebalance_deadline_ms",
        "state",
        "static_members",
        "sync_append_id",
        "sync_deadline_ms",
    )

    def __init__(self, group_id: str, *, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, int] = {}
        self.current_state_timestamp_ms = now_ms
        self.rebalance_deadline_ms: int | None = None
        self.initial_join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        self.sync_append_id: int | None = None
        self.new_member_added = False
        self.joining_count = 0
        self._protocol_counts: Counter[str] = Counter()

    def transition_to(self, state: GroupState, *, now_ms: int) -> None:
        """Enter ``state``; but for loading, the one place where the state changes."""
        if self.state not in _PREVIOUS_STATES[state]:
            msg = f"group {self.group_id} cannot change from {self.state.value} to {state.value}"
            raise AssertionError(msg)
        self.state = state
        self.current_state_timestamp_ms = now_ms

    def add(self, member: Member) -> None:
        """Put in a member; the first one sets the group's protocol type and leads."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._protocol_counts.update(member.protocol_names)
        self.joining_count += member.join_token is not None
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Take out a member; of the others, the one that joined first leads."""
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._protocol_counts.subtract(member.protocol_names)
        self.joining_count -= member.join_token is not None
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replace what a member of the group offers."""
        self._protocol_counts.subtract(member.protocol_names)
        member.protocols = protocols
        self._protocol_counts.update(member.protocol_names)

    def await_join(self, member: Member, token: object) -> None:
        """Keep the request of a member that joins until it can be answered."""
        self.joining_count += member.join_token is None
        member.join_token = token

    def take_join(self, member: Member) -> object | None:
        """The request that waits for an answer, which the caller gives."""
        token = member.join_token
        self.joining_count -= token is not None
        member.join_token = None
        return token

    def replace_static(self, old_id: str, new_id: str) -> None:
        """Give a static member another id, with its place and, if it leads, the lead."""
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        self.static_members[member.group_instance_id or ""] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id

    def membership_error(self, member_id: str, instance_id: str | None) -> int:
        """Whether this member may act: 0, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return int(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                return int(ErrorCode.FENCED_INSTANCE_ID)
        return int(ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID)

    def supports_protocols(self, protocol_type: str, names: frozenset[str]) -> bool:
        """Whether a member with these protocols can be in the group."""
        if not self.members:
            return bool(protocol_type) and bool(names)
        if protocol_type != self.protocol_type:
            return False
        return any(self._protocol_counts[name] == len(self.members) for name in names)

    def candidate_protocols(self) -> frozenset[str]:
        """Protocols that every member supports."""
        return frozenset(name for name, count in self._protocol_counts.items() if count and count == len(self.members))

    def select_protocol(self) -> str:
        """The supported protocol most members want first; earliest voted for wins a tie."""
        candidates = self.candidate_protocols()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def all_members_joined(self) -> bool:
        """Whether the rebalance need not wait any longer."""
        return not self.pending_members and self.joining_count == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout any member asked for."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members' metadata are subscriptions of consumers."""
        return self.protocol_type == "consumer"

    def topics(self) -> frozenset[str] | None:
        """Topics subscribed to by a group of consumers; None when they are unknown, or the members are none."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        result: set[str] = set()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata_for(self.protocol_name))
            if topics is None:
                return None
            result |= topics
        return frozenset(result)

    def subscription_check(self) -> Callable[[str], bool]:
        """Tells whether a member consumes a topic; of consumers with unknown subscriptions, every topic is consumed."""
        topics = self.topics()
        if topics is None:
            return lambda _topic: self.uses_consumer_protocol
        return topics.__contains__

    def metadata_record(self, assignments: dict[str, bytes] | None = None) -> CoordinatorRecord:
        """The group as ``__consumer_offsets`` keeps it; ``assignments`` in place of the members' own."""
        protocol = self.protocol_name or ""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.current_state_timestamp_ms,
            members=tuple(
                GroupMetadataValue.MemberMetadata(
                    member_id=m.member_id,
                    group_instance_id=m.group_instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout=m.rebalance_timeout_ms,
                    session_timeout=m.session_timeout_ms,
                    subscription=m.metadata_for(protocol),
                    assignment=m.assignment if assignments is None else assignments.get(m.member_id, b""),
                )
                for m in self.members.values()
            ),
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value, _GROUP_METADATA_VALUE_VERSION)

    def creation_record(self) -> CoordinatorRecord:
        """The group without members and protocol type, which a first join writes before it can succeed."""
        value = GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=self.current_state_timestamp_ms,
            members=(),
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value, _GROUP_METADATA_VALUE_VERSION)

    def tombstone(self) -> CoordinatorRecord:
        """The record that makes the group forgotten."""
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)

    def load(self, value: GroupMetadataValue, *, now_ms: int) -> None:
        """Become what a replayed record says."""
        self.members.clear()
        self.static_members.clear()
        self._protocol_counts.clear()
        self.joining_count = 0
        self.leader_id = None
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        for m in value.members:
            protocols = ((value.protocol or "", bytes(m.subscription)),)
            member = Member(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout_ms=m.rebalance_timeout if m.rebalance_timeout >= 0 else m.session_timeout,
                session_timeout_ms=m.session_timeout,
                protocol_type=value.protocol_type,
                protocols=protocols,
                assignment=bytes(m.assignment),
                deadline_ms=now_ms + m.session_timeout,
            )
            self.add(member)
        self.protocol_type = value.protocol_type or None
        self.leader_id = value.leader
        self.generation_id = value.generation
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.current_state_timestamp_ms = value.current_state_timestamp
