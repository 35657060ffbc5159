"""ReadShareGroupStateSummary, API key 87, versions 0-1 (KIP-932); brokers ask it of the share coordinator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.share_states import answer_each
from kraftlog.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import TaskService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: ReadShareGroupStateSummaryRequest, *, shares: ShareService, tasks: TaskService
) -> asyncio.Future[ReadShareGroupStateSummaryResponse]:
    """Read epochs and offsets."""
    return tasks.spawn(_answer(request, shares))


async def _answer(
    request: ReadShareGroupStateSummaryRequest, shares: ShareService
) -> ReadShareGroupStateSummaryResponse:
    results = await answer_each(
        shares,
        request,
        lambda shard, future, key, _partition, _now_ms: shard.summarize(future, key),
        ReadShareGroupStateSummaryResponse.PartitionResult,
        ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
    )
    return ReadShareGroupStateSummaryResponse(results=results)
