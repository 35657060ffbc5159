"""ShareGroupDescribe, API key 77, version 1 (KIP-932)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.described_groups import describe_groups
from kraftlog.api.slices import Slices, sliced
from kraftlog.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]


@sliced
def handle(
    context: RequestContext, request: ShareGroupDescribeRequest, *, groups: GroupService, shares: ShareService
) -> Slices[ShareGroupDescribeResponse | asyncio.Future[ShareGroupDescribeResponse]]:
    """Describe share groups: state, epochs, members and what they have."""
    described: ShareGroupDescribeResponse | asyncio.Future[ShareGroupDescribeResponse] = yield from describe_groups(
        groups,
        request,
        is_served=shares.is_enabled,
        group_class=ShareGroupDescribeResponse.DescribedGroup,
        ask=lambda shard, future, name: shard.shares.describe(future, name),
        answer=lambda found: ShareGroupDescribeResponse(groups=list(found)),
    )
    return described
