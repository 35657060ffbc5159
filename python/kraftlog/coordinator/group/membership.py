"""Joining, syncing, staying in and leaving classic groups.

A request that has to wait keeps its token in the member and is answered by an effect later; all waiting ends
by a deadline that ``handle_timeout`` enforces.

Source: ``org.apache.kafka.coordinator.group.GroupMetadataManager`` (classic protocol), KIP-345 (static members),
KIP-394 (member id required), KIP-814 (skip assignment).
"""

from __future__ import annotations

import random
from dataclasses import replace

from kraftlog.coordinator.group.classic_group import ClassicGroup, GroupState
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.coordinator.group.member import Member
from kraftlog.coordinator.write_log import WriteLog
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kraftlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kraftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["Membership"]

_NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
_NO_GENERATION = -1
_SKIP_ASSIGNMENT_VERSION = 9  # of JoinGroup (KIP-814)


class Membership:
    """The rules of classic groups over the groups of one shard.

    Args:
        config: Limits and times.
        rng: Source of member ids.
        writes: The shard's queue of answers and appends.
    """

    def __init__(self, config: GroupConfig, rng: random.Random, writes: WriteLog) -> None:
        self._config = config
        self._rng = rng
        self._writes = writes
        self.groups: dict[str, ClassicGroup] = {}

    # -- join ---------------------------------------------------------------------------------------------------

    def join_group(self, token: object, request: JoinGroupRequest, client: ClientInfo, now_ms: int) -> None:
        """Take a JoinGroup request; the answer follows as an effect, at the latest when the rebalance ends."""

        def refuse(code: int, member_id: str = request.member_id) -> None:
            self._writes.respond(token, _join_error(code, member_id))

        code = self.join_error(request)
        if code:
            return refuse(code)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return refuse(ErrorCode.UNKNOWN_MEMBER_ID)
            group = ClassicGroup(request.group_id, now_ms=now_ms)
            self.groups[request.group_id] = group
        names = frozenset(protocol.name for protocol in request.protocols)
        if not group.supports_protocols(request.protocol_type, names):
            return refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self._is_full(group, request.member_id):
            return refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        if not request.member_id:
            return self._join_new(group, token, request, client, now_ms)
        return self._join_known(group, token, request, client, now_ms)

    def join_error(self, request: JoinGroupRequest) -> int:
        """What is wrong with a JoinGroup request, whatever the group is."""
        config = self._config
        if not request.group_id:
            return int(ErrorCode.INVALID_GROUP_ID)
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return int(ErrorCode.INVALID_SESSION_TIMEOUT)
        return int(ErrorCode.NONE)

    def dismiss(self, group: ClassicGroup) -> None:
        """Tell all members that wait to join again: the group changes its protocol (KIP-848)."""
        for member in group.members.values():
            if member.join_token is not None:
                self._writes.respond(member.join_token, _join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            if member.sync_token is not None:
                self._writes.respond(member.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            member.join_token = member.sync_token = None

    def begin_rebalance(self, group: ClassicGroup, now_ms: int) -> None:
        """All members of a group that was a consumer group have to join anew."""
        for member in group.members.values():
            member.deadline_ms = now_ms + member.session_timeout_ms
        self._prepare_rebalance(group, now_ms)

    def _is_full(self, group: ClassicGroup, member_id: str) -> bool:
        if member_id in group.members:
            return False
        if group.state is GroupState.PREPARING_REBALANCE:
            joined = sum(member.join_token is not None for member in group.members.values())
            return joined >= self._config.group_max_size
        return len(group.members) >= self._config.group_max_size

    def _new_member_id(self, prefix: str) -> str:
        text = f"{self._rng.getrandbits(128):032x}"
        return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _join_new(
        self, group: ClassicGroup, token: object, request: JoinGroupRequest, client: ClientInfo, now_ms: int
    ) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            new_id = self._new_member_id(instance_id)
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                return self._replace_static(group, old_id, new_id, token, request, client, now_ms)
            return self._add_and_rebalance(group, new_id, token, request, client, now_ms)
        new_id = self._new_member_id(client.client_id)
        if client.api_version >= 4:
            group.pending_members[new_id] = now_ms + request.session_timeout_ms
            return self._writes.respond(token, _join_error(ErrorCode.MEMBER_ID_REQUIRED, new_id))
        return self._add_and_rebalance(group, new_id, token, request, client, now_ms)

    def _join_known(
        self, group: ClassicGroup, token: object, request: JoinGroupRequest, client: ClientInfo, now_ms: int
    ) -> None:
        member_id = request.member_id
        if member_id in group.pending_members:
            if request.group_instance_id is not None:
                return self._writes.respond(token, _join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
            return self._add_and_rebalance(group, member_id, token, request, client, now_ms)
        code = group.membership_error(member_id, request.group_instance_id)
        if code:
            return self._writes.respond(token, _join_error(code, member_id))
        member = group.members[member_id]
        protocols = _protocols(request)
        unchanged = member.protocols == protocols
        if group.state is GroupState.PREPARING_REBALANCE:
            self._update_member(group, member, token, request, client, now_ms)
            return self._maybe_complete_join(group, now_ms)
        if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            return self._writes.respond(token, self._join_result(group, member))
        if group.state is GroupState.STABLE and unchanged and group.leader_id != member_id:
            return self._writes.respond(token, self._join_result(group, member))
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._update_member(group, member, token, request, client, now_ms)
            self._prepare_rebalance(group, now_ms)
            return self._maybe_complete_join(group, now_ms)
        return self._writes.respond(token, _join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))

    def _add_and_rebalance(
        self,
        group: ClassicGroup,
        member_id: str,
        token: object,
        request: JoinGroupRequest,
        client: ClientInfo,
        now_ms: int,
    ) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            rebalance_timeout_ms=_rebalance_timeout(request),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=_protocols(request),
            join_token=token,
            join_version=client.api_version,
            is_new=True,
            deadline_ms=now_ms + _NEW_MEMBER_JOIN_TIMEOUT_MS,
        )
        group.add(member)
        if group.state is GroupState.PREPARING_REBALANCE and group.initial_join_deadline_ms is not None:
            group.new_member_added = True
        self._prepare_rebalance(group, now_ms)
        self._maybe_complete_join(group, now_ms)

    def _update_member(
        self,
        group: ClassicGroup,
        member: Member,
        token: object,
        request: JoinGroupRequest,
        client: ClientInfo,
        now_ms: int,
    ) -> None:
        if member.join_token is not None:
            # A client that asks again has given up on its first request; it must not hang for ever.
            self._writes.respond(member.join_token, _join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        member.protocols = _protocols(request)
        member.rebalance_timeout_ms = _rebalance_timeout(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = client.client_id
        member.client_host = client.client_host
        member.join_token = token
        member.join_version = client.api_version
        member.deadline_ms = now_ms + member.session_timeout_ms
        if group.leader_id is None:
            group.leader_id = member.member_id

    def _replace_static(
        self,
        group: ClassicGroup,
        old_id: str,
        new_id: str,
        token: object,
        request: JoinGroupRequest,
        client: ClientInfo,
        now_ms: int,
    ) -> None:
        old_leader_id = group.leader_id
        member = group.members[old_id]
        before = replace(member, join_token=None, sync_token=None)
        for waiting, fenced in (
            (member.join_token, _join_error(ErrorCode.FENCED_INSTANCE_ID, old_id)),
            (member.sync_token, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)),
        ):
            if waiting is not None:
                self._writes.respond(waiting, fenced)
        member.join_token = member.sync_token = None
        group.replace_static(old_id, new_id)
        self._update_member(group, member, token, request, client, now_ms)
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            self._confirm_static(group, member, before, old_leader_id)
            return
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, now_ms)
        self._maybe_complete_join(group, now_ms)

    def _confirm_static(self, group: ClassicGroup, member: Member, before: Member, old_leader_id: str | None) -> None:
        """A restarted static member keeps its assignment unless the group's protocol changes: no rebalance.

        Its new id and metadata have to be durable first; if they cannot be stored, the member is what it was
        ``before`` (``GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin``).
        """

        def then(error_code: int) -> None:
            token = member.join_token
            member.join_token = None
            if error_code:
                if group.members.get(member.member_id) is member:
                    group.replace_static(member.member_id, before.member_id)
                    member.restore(before)
                if token is not None:
                    self._writes.respond(token, _join_error(error_code, ""))
                return
            if token is None:
                return
            if member.join_version >= _SKIP_ASSIGNMENT_VERSION:
                is_leader = group.leader_id == member.member_id
                response = self._join_result(group, member, skip_assignment=is_leader)
            else:
                # Before KIP-814 a leader that knew of its role would compute an assignment and send it: it gets the id
                # of the leader before it came back.
                response = self._join_result(group, member, leader=old_leader_id or "")
            self._writes.respond(token, response)

        self._writes.append((group.metadata_record(),), then)

    def _prepare_rebalance(self, group: ClassicGroup, now_ms: int) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            return
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.sync_deadline_ms = None
        if group.state is GroupState.EMPTY:
            delay = self._config.group_initial_rebalance_delay_ms
            timeout = group.rebalance_timeout_ms()
            group.rebalance_deadline_ms = now_ms + timeout
            group.initial_join_deadline_ms = now_ms + min(delay, timeout) if delay > 0 else None
            group.new_member_added = False
        else:
            group.initial_join_deadline_ms = None
            group.rebalance_deadline_ms = now_ms + group.rebalance_timeout_ms()
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms=now_ms)

    def _maybe_complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        if group.state is not GroupState.PREPARING_REBALANCE or group.initial_join_deadline_ms is not None:
            return
        if group.all_members_joined():
            self._complete_join(group, now_ms)

    def _complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        group.rebalance_deadline_ms = None
        group.initial_join_deadline_ms = None
        for member in [m for m in group.members.values() if m.join_token is None and not m.is_static]:
            group.remove(member.member_id)
        leader = group.members.get(group.leader_id or "")
        if leader is None or leader.join_token is None:
            joined = next((m.member_id for m in group.members.values() if m.join_token is not None), None)
            if joined is None and group.members:
                # Only silent static members are left: wait for them as long again.
                group.rebalance_deadline_ms = now_ms + group.rebalance_timeout_ms()
                return
            group.leader_id = joined
        group.generation_id += 1
        if not group.members:
            group.protocol_name = None
            group.leader_id = None
            group.transition_to(GroupState.EMPTY, now_ms=now_ms)
            self._writes.append((group.metadata_record({}),), lambda _code: None)
            return
        group.protocol_name = group.select_protocol()
        group.transition_to(GroupState.COMPLETING_REBALANCE, now_ms=now_ms)
        group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms()
        for member in group.members.values():
            token = member.join_token
            member.join_token = None
            member.is_new = False
            member.pending_syncs = True
            member.deadline_ms = now_ms + member.session_timeout_ms
            if token is not None:
                self._writes.respond(token, self._join_result(group, member))

    def _join_result(
        self, group: ClassicGroup, member: Member, *, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinGroupResponse:
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

    # -- sync ---------------------------------------------------------------------------------------------------

    def sync_group(self, token: object, request: SyncGroupRequest, now_ms: int) -> None:
        """Take a SyncGroup request; followers wait for the leader's assignment."""

        def refuse(code: int) -> None:
            self._writes.respond(token, SyncGroupResponse(error_code=code))

        group = self.groups.get(request.group_id)
        if group is None:
            return refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        code = group.membership_error(request.member_id, request.group_instance_id)
        if code:
            return refuse(code)
        if request.generation_id != group.generation_id:
            return refuse(ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (
            None,
            group.protocol_name,
        ):
            return refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member = group.members[request.member_id]
        if group.state is GroupState.PREPARING_REBALANCE:
            return refuse(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state is GroupState.STABLE:
            member.pending_syncs = False
            member.deadline_ms = now_ms + member.session_timeout_ms
            return self._writes.respond(token, _sync_result(group, member))
        if group.state is not GroupState.COMPLETING_REBALANCE:
            return refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.sync_token is not None:
            self._writes.respond(member.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        member.pending_syncs = False
        if request.member_id == group.leader_id and group.sync_append_id is None:
            self._store_assignment(group, {a.member_id: bytes(a.assignment) for a in request.assignments}, now_ms)
        return None

    def _store_assignment(self, group: ClassicGroup, assignments: dict[str, bytes], now_ms: int) -> None:
        generation_id = group.generation_id

        def then(error_code: int) -> None:
            group.sync_append_id = None
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return
            if error_code:
                self._answer_syncs(group, error_code)
                self._prepare_rebalance(group, now_ms)
                return
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            group.transition_to(GroupState.STABLE, now_ms=now_ms)
            for member in group.members.values():
                waiting = member.sync_token
                member.sync_token = None
                member.deadline_ms = now_ms + member.session_timeout_ms
                if waiting is not None:
                    self._writes.respond(waiting, _sync_result(group, member))

        group.sync_append_id = self._writes.append((group.metadata_record(assignments),), then)

    def _answer_syncs(self, group: ClassicGroup, error_code: int) -> None:
        for member in group.members.values():
            token = member.sync_token
            member.sync_token = None
            member.assignment = b""
            if token is not None:
                self._writes.respond(token, SyncGroupResponse(error_code=error_code))

    # -- heartbeat and leave ------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        """Answer a Heartbeat at once."""
        group = self.groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        code = group.membership_error(request.member_id, request.group_instance_id)
        if not code and group.state is GroupState.EMPTY:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if not code and request.generation_id != group.generation_id:
            code = ErrorCode.ILLEGAL_GENERATION
        if code:
            return HeartbeatResponse(error_code=code)
        member = group.members[request.member_id]
        member.deadline_ms = now_ms + member.session_timeout_ms
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE)

    def leave_group(self, request: LeaveGroupRequest, api_version: int, now_ms: int) -> LeaveGroupResponse:
        """Take members out; before version 3 one member, its error at the top level."""
        group = self.groups.get(request.group_id)
        if api_version < 3:
            if group is None:
                return LeaveGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            count = len(group.members)
            code = self._leave(group, request.member_id, None)
            self._after_leave(group, now_ms, has_lost_members=len(group.members) != count)
            return LeaveGroupResponse(error_code=code)
        results = []
        count = 0 if group is None else len(group.members)
        for identity in request.members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                code = self._leave(group, identity.member_id, identity.group_instance_id)
            results.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        if group is not None:
            self._after_leave(group, now_ms, has_lost_members=len(group.members) != count)
        return LeaveGroupResponse(members=tuple(results))

    def _leave(self, group: ClassicGroup, member_id: str, instance_id: str | None) -> int:
        if not member_id and instance_id is not None:
            # An administrator removes a static member by its instance id alone.
            member_id = group.static_members.get(instance_id, "")
            if not member_id:
                return int(ErrorCode.UNKNOWN_MEMBER_ID)
        elif group.pending_members.pop(member_id, None) is not None:
            return int(ErrorCode.NONE)
        else:
            code = group.membership_error(member_id, instance_id)
            if code:
                return code
        self._drop(group, member_id)
        return int(ErrorCode.NONE)

    def _drop(self, group: ClassicGroup, member_id: str) -> None:
        member = group.remove(member_id)
        if member is None:
            return
        if member.join_token is not None:
            self._writes.respond(member.join_token, _join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
        if member.sync_token is not None:
            self._writes.respond(member.sync_token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def _after_leave(self, group: ClassicGroup, now_ms: int, *, has_lost_members: bool) -> None:
        if has_lost_members and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, now_ms)
        self._maybe_complete_join(group, now_ms)

    # -- time ---------------------------------------------------------------------------------------------------

    def next_timeout_ms(self) -> int | None:
        """When ``handle_timeout`` is wanted next; None when nothing waits."""
        deadlines: list[int] = []
        for group in self.groups.values():
            deadlines.extend(group.pending_members.values())
            deadlines.extend(m.deadline_ms for m in group.members.values() if not m.is_awaited_by_client)
            if group.state is GroupState.PREPARING_REBALANCE:
                deadlines.extend(
                    d for d in (group.initial_join_deadline_ms, group.rebalance_deadline_ms) if d is not None
                )
            elif group.state is GroupState.COMPLETING_REBALANCE and group.sync_deadline_ms is not None:
                deadlines.append(group.sync_deadline_ms)
        return min(deadlines, default=None)

    def handle_timeout(self, now_ms: int) -> None:
        """End sessions and waits whose time is over; early or repeated calls do nothing."""
        for group in list(self.groups.values()):
            self._expire_members(group, now_ms)
            if group.state is GroupState.PREPARING_REBALANCE:
                self._expire_join(group, now_ms)
            elif group.state is GroupState.COMPLETING_REBALANCE:
                self._expire_sync(group, now_ms)

    def _expire_members(self, group: ClassicGroup, now_ms: int) -> None:
        pending = [member_id for member_id, deadline in group.pending_members.items() if deadline <= now_ms]
        for member_id in pending:
            del group.pending_members[member_id]
        silent = [m for m in group.members.values() if not m.is_awaited_by_client and m.deadline_ms <= now_ms]
        for member in silent:
            self._drop(group, member.member_id)
        if pending or silent:
            self._after_leave(group, now_ms, has_lost_members=bool(silent))

    def _expire_join(self, group: ClassicGroup, now_ms: int) -> None:
        initial = group.initial_join_deadline_ms
        rebalance = group.rebalance_deadline_ms
        if initial is not None and initial <= now_ms:
            if group.new_member_added and rebalance is not None and now_ms < rebalance:
                group.new_member_added = False
                delay = self._config.group_initial_rebalance_delay_ms
                group.initial_join_deadline_ms = min(now_ms + delay, rebalance)
                return
            group.initial_join_deadline_ms = None
            self._maybe_complete_join(group, now_ms)
        if group.state is GroupState.PREPARING_REBALANCE and rebalance is not None and rebalance <= now_ms:
            self._complete_join(group, now_ms)

    def _expire_sync(self, group: ClassicGroup, now_ms: int) -> None:
        if group.sync_deadline_ms is None or group.sync_deadline_ms > now_ms:
            return
        group.sync_deadline_ms = None
        for member in [m for m in group.members.values() if m.pending_syncs]:
            self._drop(group, member.member_id)
        self._prepare_rebalance(group, now_ms)
        self._maybe_complete_join(group, now_ms)


def _join_error(code: int, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, generation_id=_NO_GENERATION, protocol_name="", leader="", member_id=member_id
    )


def _sync_result(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def _protocols(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


def _rebalance_timeout(request: JoinGroupRequest) -> int:
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
