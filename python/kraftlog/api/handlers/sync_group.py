"""SyncGroup, API key 14, versions 0-5.

3   static members (KIP-345)
5   protocol type and name, checked and answered (KIP-559)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService

__all__ = ["handle"]

PROTOCOL_VERSION = 5


def handle(
    context: RequestContext, request: SyncGroupRequest, *, groups: GroupService
) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
    """Hand a member its assignment once the leader has brought it."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if context.api_version >= PROTOCOL_VERSION and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    runner = groups.runner(request.group_id)
    return runner.ask(lambda shard, future, now_ms: shard.sync_group(future, request, now_ms))
