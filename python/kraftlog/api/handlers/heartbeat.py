"""Heartbeat, API key 12, versions 0-4.

3   static members (KIP-345)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext

__all__ = ["handle"]


def handle(node: Node, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Keep a member's session; the error code tells it when to join again."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    try:
        runner = node.groups.runner(request.group_id)
    except KafkaError as error:
        if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # As Kafka does: the member may go on, its session begins when the group is loaded.
            return HeartbeatResponse()
        raise
    response = runner.shard.heartbeat(request, node.now_ms())
    runner.touch()
    return response
