"""Heartbeat, API key 12, versions 0-4.

3   static members (KIP-345)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService

__all__ = ["handle"]


def handle(context: RequestContext, request: HeartbeatRequest, *, groups: GroupService) -> HeartbeatResponse:
    """Keep a member's session; the error code tells it when to join again."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    try:
        runner = groups.runner(request.group_id)
    except KafkaError as error:
        if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # As Kafka does: the member may go on, its session begins when the group is loaded.
            return HeartbeatResponse()
        raise
    return runner.call(lambda shard, now_ms: shard.heartbeat(request, now_ms))
