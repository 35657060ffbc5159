"""ListGroups, API key 16, versions 0-5.

4   states, and a filter by them (KIP-518)
5   types, and a filter by them (KIP-848)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.api.slices import Slices, in_slices, sliced, unique_in_slices
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService

__all__ = ["handle"]


@sliced
def handle(context: RequestContext, request: ListGroupsRequest, *, groups: GroupService) -> Slices[ListGroupsResponse]:
    """List the groups this broker coordinates; filters do not look at case."""
    states = yield from unique_in_slices(map(str.lower, request.states_filter))
    types = yield from unique_in_slices(map(str.lower, request.types_filter))
    found = []
    runners = groups.runners()
    if not all(runner.is_loaded for runner in runners):
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for runner in runners:
        found += yield from in_slices(
            group
            for group in runner.shard.list_groups()
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        )
    found.sort(key=lambda group: group.group_id)
    return ListGroupsResponse(groups=found)
