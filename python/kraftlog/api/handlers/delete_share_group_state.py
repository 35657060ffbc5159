"""DeleteShareGroupState, API key 86, version 0 (KIP-932); brokers ask it of the share coordinator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.share_states import answer_each
from kraftlog.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import TaskService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: DeleteShareGroupStateRequest, *, shares: ShareService, tasks: TaskService
) -> asyncio.Future[DeleteShareGroupStateResponse]:
    """Forget states; answered once that is committed."""
    return tasks.spawn(_answer(request, shares))


async def _answer(request: DeleteShareGroupStateRequest, shares: ShareService) -> DeleteShareGroupStateResponse:
    results = await answer_each(
        shares,
        request,
        lambda shard, future, key, _partition, now_ms: shard.delete(future, key, now_ms),
        DeleteShareGroupStateResponse.PartitionResult,
        DeleteShareGroupStateResponse.DeleteStateResult,
    )
    return DeleteShareGroupStateResponse(results=results)
