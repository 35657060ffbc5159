"""JoinGroup, API key 11, versions 0-9.

1   rebalance timeout apart from the session timeout (KIP-62)
4   a new member is given its id first and joins with it (KIP-394)
5   static members (KIP-345)
7   protocol type in the answer, protocol name may be null
8   a reason (KIP-800)
9   a returning static leader may be told to keep the assignment (KIP-814)
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.coordinator.group.config import ClientInfo
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService

__all__ = ["handle"]

NULLABLE_PROTOCOL_VERSION = 7


def handle(
    context: RequestContext, request: JoinGroupRequest, *, groups: GroupService
) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
    """Join a group; answered when its members are known."""
    if not request.group_id:
        return _failed(context, request, ErrorCode.INVALID_GROUP_ID)
    if context.api_version == 0:
        request = replace(request, rebalance_timeout_ms=request.session_timeout_ms)
    try:
        runner = groups.runner(request.group_id)
    except KafkaError as error:
        return _failed(context, request, error.code)
    client = ClientInfo(context.client_id or "", f"/{context.client_host}", context.api_version)
    asked = runner.ask(lambda shard, future, now_ms: shard.join_group(future, request, client, now_ms))
    return transform(
        asked,
        lambda response: _for_version(context, response),
        lambda error: _failed(context, request, error.code),
    )


def _for_version(context: RequestContext, response: JoinGroupResponse) -> JoinGroupResponse:
    """An absent protocol is null, or empty where the version has no null for it."""
    absent = None if context.api_version >= NULLABLE_PROTOCOL_VERSION else ""
    return response if response.protocol_name else replace(response, protocol_name=absent)


def _failed(context: RequestContext, request: JoinGroupRequest, error_code: int) -> JoinGroupResponse:
    response = JoinGroupResponse(
        error_code=error_code, generation_id=-1, protocol_name=None, member_id=request.member_id
    )
    return _for_version(context, response)
