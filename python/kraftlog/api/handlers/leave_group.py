"""LeaveGroup, API key 13, versions 0-5.

3   several members, also by group.instance.id (KIP-345)
5   reasons (KIP-800)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.slices import LARGE_ENTRIES, Slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService

__all__ = ["handle"]


@sliced
def handle(context: RequestContext, request: LeaveGroupRequest, *, groups: GroupService) -> Slices[LeaveGroupResponse]:
    """Let members go, so that the others need not wait for a session to end."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    members = request.members
    if len(members) <= LARGE_ENTRIES:
        return _leave(context, request, groups)
    results: list[LeaveGroupResponse.MemberResponse] = []
    for begin in range(0, len(members), LARGE_ENTRIES):
        yield None
        part = replace(request, members=members[begin : begin + LARGE_ENTRIES])
        results += _leave(context, part, groups).members
    return LeaveGroupResponse(members=results)


def _leave(context: RequestContext, request: LeaveGroupRequest, groups: GroupService) -> LeaveGroupResponse:
    runner = groups.runner(request.group_id)
    return runner.call(lambda shard, now_ms: shard.leave_group(request, context.api_version, now_ms))
