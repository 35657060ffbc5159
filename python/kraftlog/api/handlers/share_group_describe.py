"""ShareGroupDescribe, API key 77, version 1 (KIP-932)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.cluster_view import GROUP_OPERATIONS
from kraftlog.api.combined_answer import gather
from kraftlog.api.slices import Slices, in_slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]

_Group = ShareGroupDescribeResponse.DescribedGroup


@sliced
def handle(
    context: RequestContext, request: ShareGroupDescribeRequest, *, groups: GroupService, shares: ShareService
) -> Slices[asyncio.Future[ShareGroupDescribeResponse]]:
    """Describe share groups: state, epochs, members and what they have."""
    names = list(request.group_ids)
    is_enabled = shares.is_enabled
    described = yield from in_slices(_describe(groups, name, is_enabled=is_enabled) for name in names)

    def with_operations(group: _Group) -> _Group:
        wanted = request.include_authorized_operations and not group.error_code
        return replace(group, authorized_operations=GROUP_OPERATIONS) if wanted else group

    return gather(
        described,
        lambda error, index: _Group(group_id=names[index], error_code=error.code),
        lambda results: ShareGroupDescribeResponse(groups=[with_operations(group) for group in results]),
    )


def _describe(groups: GroupService, group_id: str, *, is_enabled: bool) -> asyncio.Future[_Group] | _Group:
    if not is_enabled:
        return _Group(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not group_id:
        return _Group(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        runner = groups.runner(group_id)
    except KafkaError as error:
        return _Group(group_id=group_id, error_code=error.code)
    return runner.ask(lambda shard, future, _now_ms: shard.shares.describe(future, group_id))
