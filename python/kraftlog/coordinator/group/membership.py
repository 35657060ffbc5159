"""Joining, syncing, staying in and leaving classic groups.

A request that has to wait keeps its token in the member and is answered by an effect later; all waiting ends
by a deadline that ``timers`` enforce.

Source: ``org.apache.kafka.coordinator.group.GroupMetadataManager`` (classic protocol), KIP-345 (static members),
KIP-394 (member id required), KIP-814 (skip assignment).
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from kraftlog.coordinator.group.classic_answers import join_error, join_result, sync_result
from kraftlog.coordinator.group.classic_group import ClassicGroup, GroupState
from kraftlog.coordinator.group.config import PROTOCOLS_MAX, ClientInfo, GroupConfig
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.coordinator.group.member import Member
from kraftlog.coordinator.timers import Timers
from kraftlog.coordinator.write_log import WriteLog
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kraftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["Membership"]

_NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
_SKIP_ASSIGNMENT_VERSION = 9  # of JoinGroup (KIP-814)


class Membership:
    """The rules of classic groups over the groups of one shard.

    Args:
        config: Limits and times.
        rng: Source of member ids.
        writes: The shard's queue of answers and appends.
        events: Counts rebalances.
    """

    def __init__(self, config: GroupConfig, rng: random.Random, writes: WriteLog, events: GroupEvents) -> None:
        self._config = config
        self._rng = rng
        self._writes = writes
        self._events = events
        self.groups: dict[str, ClassicGroup] = {}
        self.timers = Timers()

    # -- join ---------------------------------------------------------------------------------------------------

    def join_group(self, token: object, request: JoinGroupRequest, client: ClientInfo, now_ms: int) -> None:
        """Take a JoinGroup request; the answer follows as an effect, at the latest when the rebalance ends."""

        def refuse(code: int, member_id: str = request.member_id) -> None:
            self._writes.respond(token, join_error(code, member_id))

        code = self.request_error(request)
        if code:
            return refuse(code)
        group = self.groups.get(request.group_id)
        is_new = group is None
        if group is None:
            if request.member_id:
                return refuse(ErrorCode.UNKNOWN_MEMBER_ID)
            group = ClassicGroup(request.group_id, now_ms=now_ms)
        if self._is_full(group, request.member_id):
            # In a rebalance the first to join stay: one that comes too late is a member no longer.
            self._drop(group, request.member_id)
            self._maybe_complete_join(group, now_ms)
            return refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        names = frozenset([protocol.name for protocol in request.protocols])
        if not group.supports_protocols(request.protocol_type, names):
            return refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if is_new:
            self.groups[request.group_id] = group
            self._writes.append((group.creation_record(),), partial(self._on_created, group))
        if not request.member_id:
            return self._join_new(group, token, request, client, now_ms)
        return self._join_known(group, token, request, client, now_ms)

    def _on_created(self, group: ClassicGroup, error_code: int) -> None:
        """A group whose first record cannot be stored is forgotten, unless a generation of it began meanwhile."""
        if not error_code or group.generation_id or self.groups.get(group.group_id) is not group:
            return
        for member in group.members.values():
            token = group.take_join(member)
            if token is not None:
                self._writes.respond(token, join_error(error_code, ""))
        del self.groups[group.group_id]

    def request_error(self, request: JoinGroupRequest) -> int:
        """What is wrong with a JoinGroup request, whatever the group is."""
        config = self._config
        if not request.group_id:
            return int(ErrorCode.INVALID_GROUP_ID)
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return int(ErrorCode.INVALID_SESSION_TIMEOUT)
        if len(request.protocols) > PROTOCOLS_MAX:
            return int(ErrorCode.INVALID_REQUEST)
        return int(ErrorCode.NONE)

    def dismiss(self, group: ClassicGroup) -> None:
        """Tell all members that wait to join again: the group changes its protocol (KIP-848)."""
        for member in group.members.values():
            token = group.take_join(member)
            if token is not None:
                self._writes.respond(token, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            if member.sync_token is not None:
                self._writes.respond(member.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_token = None

    def begin_rebalance(self, group: ClassicGroup, now_ms: int) -> None:
        """All members of a group that was a consumer group have to join anew."""
        for member in group.members.values():
            self._restart_session(group, member, now_ms)
        self._prepare_rebalance(group, now_ms)

    def finish_loading(self, now_ms: int) -> None:
        """Start the clocks of loaded groups; one that has more members than it may have now joins anew."""
        for group in list(self.groups.values()):
            for member in group.members.values():
                self._restart_session(group, member, now_ms)
            if len(group.members) > self._config.group_max_size:
                self._prepare_rebalance(group, now_ms)

    def _is_full(self, group: ClassicGroup, member_id: str) -> bool:
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return False
        if group.state is GroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.join_token is not None
            return not is_waiting and group.joining_count >= self._config.group_max_size
        return member is None and len(group.members) >= self._config.group_max_size

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
            deadline_ms = now_ms + request.session_timeout_ms
            group.pending_members[new_id] = deadline_ms
            key = ("pending", group.group_id, new_id)
            self.timers.schedule(key, deadline_ms, partial(self._on_pending_end, group.group_id, new_id))
            return self._writes.respond(token, join_error(ErrorCode.MEMBER_ID_REQUIRED, new_id))
        return self._add_and_rebalance(group, new_id, token, request, client, now_ms)

    def _join_known(
        self, group: ClassicGroup, token: object, request: JoinGroupRequest, client: ClientInfo, now_ms: int
    ) -> None:
        member_id = request.member_id
        if member_id in group.pending_members:
            if request.group_instance_id is not None:
                return self._writes.respond(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
            return self._add_and_rebalance(group, member_id, token, request, client, now_ms)
        code = group.membership_error(member_id, request.group_instance_id)
        if code:
            return self._writes.respond(token, join_error(code, member_id))
        member = group.members[member_id]
        protocols = _protocols(request)
        unchanged = member.protocols == protocols
        if group.state is GroupState.PREPARING_REBALANCE:
            self._update_member(group, member, token, request, client, now_ms)
            return self._maybe_complete_join(group, now_ms)
        if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            return self._writes.respond(token, join_result(group, member))
        if group.state is GroupState.STABLE and unchanged and group.leader_id != member_id:
            return self._writes.respond(token, join_result(group, member))
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._update_member(group, member, token, request, client, now_ms)
            self._prepare_rebalance(group, now_ms)
            return self._maybe_complete_join(group, now_ms)
        return self._writes.respond(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))

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
        self._arm_session(group, member)
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
            self._writes.respond(member.join_token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        group.set_protocols(member, _protocols(request))
        member.rebalance_timeout_ms = _rebalance_timeout(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = client.client_id
        member.client_host = client.client_host
        group.await_join(member, token)
        member.join_version = client.api_version
        if not member.is_new:
            self._restart_session(group, member, now_ms)
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
            (group.take_join(member), join_error(ErrorCode.FENCED_INSTANCE_ID, old_id)),
            (member.sync_token, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)),
        ):
            if waiting is not None:
                self._writes.respond(waiting, fenced)
        member.sync_token = None
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
            token = group.take_join(member)
            self._arm_session(group, member)
            if error_code:
                if group.members.get(member.member_id) is member:
                    group.replace_static(member.member_id, before.member_id)
                    group.set_protocols(member, before.protocols)
                    member.restore(before)
                    self._arm_session(group, member)
                if token is not None:
                    self._writes.respond(token, join_error(error_code, ""))
                return
            if token is None:
                return
            if member.join_version >= _SKIP_ASSIGNMENT_VERSION:
                is_leader = group.leader_id == member.member_id
                response = join_result(group, member, skip_assignment=is_leader)
            else:
                # Before KIP-814 a leader that knew of its role would compute an assignment and send it: it gets the id
                # of the leader before it came back.
                response = join_result(group, member, leader=old_leader_id or "")
            self._writes.respond(token, response)

        self._writes.append((group.metadata_record(),), then)

    def _prepare_rebalance(self, group: ClassicGroup, now_ms: int) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            return
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        group.sync_deadline_ms = None
        if group.state is GroupState.EMPTY:
            group.initial_join_deadline_ms = now_ms + self._config.group_initial_rebalance_delay_ms
            timeout_end_ms = now_ms + group.rebalance_timeout_ms()
            group.rebalance_deadline_ms = max(timeout_end_ms, group.initial_join_deadline_ms)
            group.new_member_added = False
        else:
            group.initial_join_deadline_ms = None
            group.rebalance_deadline_ms = now_ms + group.rebalance_timeout_ms()
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms=now_ms)
        self._arm_join(group)

    def _maybe_complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        initial_ms = group.initial_join_deadline_ms
        # The first rebalance lasts for its delay, and then does not wait for anybody.
        if group.all_members_joined() if initial_ms is None else initial_ms <= now_ms:
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
                return self._arm_join(group)
            group.leader_id = joined
        group.generation_id += 1
        # What is still being stored is of the generation before: it must not stand for the assignment of this one.
        group.sync_append_id = None
        if not group.members:
            group.protocol_name = None
            group.leader_id = None
            group.transition_to(GroupState.EMPTY, now_ms=now_ms)
            return self._append_empty(group)
        group.protocol_name = group.select_protocol()
        group.transition_to(GroupState.COMPLETING_REBALANCE, now_ms=now_ms)
        group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms()
        self._arm_sync(group)
        for member in group.members.values():
            token = group.take_join(member)
            member.is_new = False
            member.pending_syncs = True
            self._restart_session(group, member, now_ms)
            if token is not None:
                self._writes.respond(token, join_result(group, member))
        return None

    def _append_empty(self, group: ClassicGroup) -> None:
        self._writes.append((group.metadata_record({}),), lambda _code: None)

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
            self._restart_session(group, member, now_ms)
            return self._writes.respond(token, sync_result(group, member))
        if group.state is not GroupState.COMPLETING_REBALANCE:
            return refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.sync_token is not None:
            self._writes.respond(member.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        member.pending_syncs = False
        if request.member_id == group.leader_id and group.sync_append_id is None:
            members = group.members
            assignments = {a.member_id: bytes(a.assignment) for a in request.assignments if a.member_id in members}
            self._store_assignment(group, assignments, now_ms)
        return None

    def _store_assignment(self, group: ClassicGroup, assignments: dict[str, bytes], now_ms: int) -> None:
        generation_id = group.generation_id

        def then(error_code: int) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return
            group.sync_append_id = None
            if error_code:
                self._answer_syncs(group, error_code, now_ms)
                self._prepare_rebalance(group, now_ms)
                return
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            group.transition_to(GroupState.STABLE, now_ms=now_ms)
            self._events.completed_rebalances += 1
            for member in group.members.values():
                waiting = member.sync_token
                member.sync_token = None
                self._restart_session(group, member, now_ms)
                if waiting is not None:
                    self._writes.respond(waiting, sync_result(group, member))

        group.sync_append_id = self._writes.append((group.metadata_record(assignments),), then)

    def _answer_syncs(self, group: ClassicGroup, error_code: int, now_ms: int) -> None:
        for member in group.members.values():
            token = member.sync_token
            member.sync_token = None
            member.assignment = b""
            if token is not None:
                self._restart_session(group, member, now_ms)
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
        self._restart_session(group, group.members[request.member_id], now_ms)
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
            self._writes.respond(member.join_token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        if member.sync_token is not None:
            self._writes.respond(member.sync_token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def _after_leave(self, group: ClassicGroup, now_ms: int, *, has_lost_members: bool) -> None:
        if has_lost_members and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, now_ms)
        self._maybe_complete_join(group, now_ms)

    # -- time ---------------------------------------------------------------------------------------------------

    def ensure_timers(self, group_id: str) -> None:
        """Arm the timers of a group that is back after its change of protocol failed."""
        group = self.groups.get(group_id)
        if group is not None:
            for member in group.members.values():
                self._arm_session(group, member)

    def _restart_session(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        member.deadline_ms = now_ms + member.session_timeout_ms
        self._arm_session(group, member)

    def _arm_session(self, group: ClassicGroup, member: Member) -> None:
        key = ("session", group.group_id, member.member_id)
        self.timers.schedule_by(key, member.deadline_ms, partial(self._on_session_end, *key[1:]))

    def _on_session_end(self, group_id: str, member_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return None
        if member.deadline_ms > now_ms:
            return self._arm_session(group, member)
        if member.is_awaited_by_client and not member.is_new:
            # Its session starts anew with the answer that it waits for.
            return None
        self._drop(group, member_id)
        return self._after_leave(group, now_ms, has_lost_members=True)

    def _on_pending_end(self, group_id: str, member_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is not None and group.pending_members.get(member_id, now_ms + 1) <= now_ms:
            del group.pending_members[member_id]
            self._maybe_complete_join(group, now_ms)

    def _arm_join(self, group: ClassicGroup) -> None:
        deadlines = (group.initial_join_deadline_ms, group.rebalance_deadline_ms)
        at_ms = min(deadline for deadline in deadlines if deadline is not None)
        self.timers.schedule(("join", group.group_id), at_ms, partial(self._on_join_end, group.group_id))

    def _on_join_end(self, group_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is None or group.state is not GroupState.PREPARING_REBALANCE:
            return
        initial_ms, rebalance_ms = group.initial_join_deadline_ms, group.rebalance_deadline_ms or now_ms
        if initial_ms is not None and group.new_member_added and now_ms < rebalance_ms:
            group.new_member_added = False
            delay_ms = self._config.group_initial_rebalance_delay_ms
            group.initial_join_deadline_ms = min(now_ms + delay_ms, rebalance_ms)
            self._arm_join(group)
        else:
            self._complete_join(group, now_ms)

    def _arm_sync(self, group: ClassicGroup) -> None:
        at_ms = group.sync_deadline_ms or 0
        self.timers.schedule(("sync", group.group_id), at_ms, partial(self._on_sync_end, group.group_id))

    def _on_sync_end(self, group_id: str, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is None or group.sync_deadline_ms is None or group.sync_deadline_ms > now_ms:
            return
        group.sync_deadline_ms = None
        silent = [member for member in group.members.values() if member.pending_syncs]
        for member in silent:
            self._drop(group, member.member_id)
        self._after_leave(group, now_ms, has_lost_members=bool(silent))


def _protocols(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


def _rebalance_timeout(request: JoinGroupRequest) -> int:
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
