"""ShareGroupHeartbeat, API key 76, version 1 (KIP-932)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.coordinator.group.config import ClientInfo
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: ShareGroupHeartbeatRequest, *, groups: GroupService, shares: ShareService
) -> ShareGroupHeartbeatResponse | asyncio.Future[ShareGroupHeartbeatResponse]:
    """Join a share group, stay in it, or leave it; answered once what changed is committed."""
    if not shares.is_enabled:
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        runner = groups.runner(request.group_id)
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code)
    client = ClientInfo(context.client_id or "", f"/{context.client_host}", context.api_version)
    asked = runner.ask(lambda shard, future, now_ms: shard.shares.heartbeat(future, request, client, now_ms))
    return transform(asked, lambda response: response, lambda error: ShareGroupHeartbeatResponse(error_code=error.code))
