"""Answers to the members of classic groups."""

from __future__ import annotations

from kraftlog.coordinator.group.classic_group import ClassicGroup
from kraftlog.coordinator.group.member import Member
from kraftlog.wire.messages.join_group import JoinGroupResponse
from kraftlog.wire.messages.sync_group import SyncGroupResponse

__all__ = ["join_error", "join_result", "sync_result"]

_NO_GENERATION = -1


def join_error(code: int, member_id: str) -> JoinGroupResponse:
    """A join that is refused, or whose member is gone."""
    return JoinGroupResponse(
        error_code=code, generation_id=_NO_GENERATION, protocol_name="", leader="", member_id=member_id
    )


def join_result(
    group: ClassicGroup, member: Member, *, leader: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """A join that succeeded; the answer to the leader lists all members.

    Args:
        group: In the generation that the member joined.
        member: Who joined.
        leader: The id to give in place of the leader's.
        skip_assignment: Whether a leader keeps the assignment as it is (KIP-814).
    """
    protocol = group.protocol_name or ""
    leader_id = group.leader_id or "" if leader is None else leader
    members = group.members.values() if leader_id == member.member_id else ()
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=tuple(
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=m.member_id, group_instance_id=m.group_instance_id, metadata=m.metadata_for(protocol)
            )
            for m in members
        ),
    )


def sync_result(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """The member's part of the assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
