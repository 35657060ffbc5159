"""DeleteGroups, API key 42, versions 0-2 (KIP-229)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import gather
from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, sliced, unique_in_slices
from kraftlog.errors import KafkaError
from kraftlog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService

__all__ = ["handle"]

_Result = DeleteGroupsResponse.DeletableGroupResult


@sliced
def handle(
    context: RequestContext, request: DeleteGroupsRequest, *, groups: GroupService
) -> Slices[DeleteGroupsResponse | asyncio.Future[DeleteGroupsResponse]]:
    """Delete groups that have no members, with their offsets."""
    names = list((yield from unique_in_slices(request.groups_names)))
    if len(names) <= ENTRIES_PER_SLICE:
        return gather(
            [_delete(groups, name) for name in names],
            lambda error, index: _Result(group_id=names[index], error_code=error.code),
            lambda results: DeleteGroupsResponse(results=results),
        )
    results: list[_Result] = []
    for begin in range(0, len(names), ENTRIES_PER_SLICE):
        yield None
        some = names[begin : begin + ENTRIES_PER_SLICE]
        for name, deleted in [(name, _delete(groups, name)) for name in some]:
            if not isinstance(deleted, asyncio.Future):
                results.append(deleted)
                continue
            if not deleted.done():
                yield deleted
            try:
                results.append(deleted.result())
            except KafkaError as error:
                results.append(_Result(group_id=name, error_code=error.code))
    return DeleteGroupsResponse(results=results)


def _delete(groups: GroupService, group_id: str) -> asyncio.Future[_Result] | _Result:
    try:
        runner = groups.runner(group_id)
    except KafkaError as error:
        return _Result(group_id=group_id, error_code=error.code)
    return runner.ask(lambda shard, future, now_ms: shard.delete_group(future, group_id, now_ms))
