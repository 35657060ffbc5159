"""WriteShareGroupState, API key 85, versions 0-1 (KIP-932); brokers ask it of the share coordinator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.share_states import answer_each
from kraftlog.wire.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import TaskService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: WriteShareGroupStateRequest, *, shares: ShareService, tasks: TaskService
) -> asyncio.Future[WriteShareGroupStateResponse]:
    """Store changed states; answered once they are committed."""
    return tasks.spawn(_answer(request, shares))


async def _answer(request: WriteShareGroupStateRequest, shares: ShareService) -> WriteShareGroupStateResponse:
    results = await answer_each(
        shares,
        request,
        lambda shard, future, key, partition, now_ms: shard.write(future, key, partition, now_ms),
        WriteShareGroupStateResponse.PartitionResult,
        WriteShareGroupStateResponse.WriteStateResult,
    )
    return WriteShareGroupStateResponse(results=results)
