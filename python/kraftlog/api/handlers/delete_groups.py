"""DeleteGroups, API key 42, versions 0-2 (KIP-229)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import gather, gather_in_slices
from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, sliced, unique_in_slices
from kraftlog.errors import KafkaError
from kraftlog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService, TaskService
    from kraftlog.coordinator.group.group_shard import GroupShard
    from kraftlog.runtime.coordinator.shard_runner import ShardRunner
    from kraftlog.runtime.share.share_admin import ShareAdmin

__all__ = ["handle"]

_Result = DeleteGroupsResponse.DeletableGroupResult


@sliced
def handle(
    context: RequestContext,
    request: DeleteGroupsRequest,
    *,
    groups: GroupService,
    share_admin: ShareAdmin,
    tasks: TaskService,
) -> Slices[DeleteGroupsResponse | asyncio.Future[DeleteGroupsResponse]]:
    """Delete groups that have no members, with their offsets."""
    names = list((yield from unique_in_slices(request.groups_names)))
    if len(names) <= ENTRIES_PER_SLICE:
        return gather(
            [_delete(groups, share_admin, tasks, name) for name in names],
            _failed(names),
            lambda results: DeleteGroupsResponse(results=results),
        )
    results: list[_Result] = []
    for begin in range(0, len(names), ENTRIES_PER_SLICE):
        some = names[begin : begin + ENTRIES_PER_SLICE]
        results += yield from gather_in_slices(
            [_delete(groups, share_admin, tasks, name) for name in some], _failed(some)
        )
    return DeleteGroupsResponse(results=results)


def _failed(names: Sequence[str]) -> Callable[[KafkaError, int], _Result]:
    return lambda error, index: _Result(group_id=names[index], error_code=error.code)


def _delete(
    groups: GroupService, share_admin: ShareAdmin, tasks: TaskService, group_id: str
) -> asyncio.Future[_Result] | _Result:
    try:
        runner = groups.runner(group_id)
    except KafkaError as error:
        return _Result(group_id=group_id, error_code=error.code)
    if group_id in runner.shard.shares.groups:
        return tasks.spawn(_delete_share_group(runner, share_admin, group_id))
    return runner.ask(lambda shard, future, now_ms: shard.delete_group(future, group_id, now_ms))


async def _delete_share_group(runner: ShardRunner[GroupShard], admin: ShareAdmin, group_id: str) -> _Result:
    """Delete the group's state at the share coordinator, then the group."""
    found = await runner.ask(lambda shard, future, now_ms: shard.shares.begin_deletion(future, group_id, None, now_ms))
    if isinstance(found, int):
        return _Result(group_id=group_id, error_code=found)
    codes = await admin.delete(group_id, found)
    code = next((code for code in codes.values() if code), 0)
    if not code:
        code = await runner.ask(
            lambda shard, future, now_ms: shard.shares.finish_deletion(
                future, group_id, found, now_ms, is_whole_group=True
            )
        )
    return _Result(group_id=group_id, error_code=code)
