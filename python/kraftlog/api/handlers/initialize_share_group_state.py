"""InitializeShareGroupState, API key 83, version 0 (KIP-932); brokers ask it of the share coordinator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.share_states import answer_each
from kraftlog.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import TaskService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: InitializeShareGroupStateRequest, *, shares: ShareService, tasks: TaskService
) -> asyncio.Future[InitializeShareGroupStateResponse]:
    """Begin new states; answered once they are committed."""
    return tasks.spawn(_answer(request, shares))


async def _answer(request: InitializeShareGroupStateRequest, shares: ShareService) -> InitializeShareGroupStateResponse:
    results = await answer_each(
        shares,
        request,
        lambda shard, future, key, partition, now_ms: shard.initialize(future, key, partition, now_ms),
        InitializeShareGroupStateResponse.PartitionResult,
        InitializeShareGroupStateResponse.InitializeStateResult,
    )
    return InitializeShareGroupStateResponse(results=results)
