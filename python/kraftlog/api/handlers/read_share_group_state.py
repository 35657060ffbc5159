"""ReadShareGroupState, API key 84, version 0 (KIP-932); brokers ask it of the share coordinator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.share_states import answer_each
from kraftlog.wire.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import TaskService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: ReadShareGroupStateRequest, *, shares: ShareService, tasks: TaskService
) -> asyncio.Future[ReadShareGroupStateResponse]:
    """Read states for the leaders of their partitions."""
    return tasks.spawn(_answer(request, shares))


async def _answer(request: ReadShareGroupStateRequest, shares: ShareService) -> ReadShareGroupStateResponse:
    results = await answer_each(
        shares,
        request,
        lambda shard, future, key, partition, now_ms: shard.read(future, key, partition.leader_epoch, now_ms),
        ReadShareGroupStateResponse.PartitionResult,
        ReadShareGroupStateResponse.ReadStateResult,
    )
    return ReadShareGroupStateResponse(results=results)
