"""BrokerHeartbeat (key 63), versions 0-2: a broker lives, and may be unfenced (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftlog.runtime.metadata.controller_channel import operate

if TYPE_CHECKING:
    import asyncio

    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext
    from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest

__all__ = ["handle"]


def handle(node: Node, context: RequestContext, request: BrokerHeartbeatRequest) -> asyncio.Future[Any]:
    """Answered by the active controller, once what it wrote is committed; REQUEST_TIMED_OUT if it is not begun soon."""
    return node.metadata.submit_heartbeat(lambda core, now_ms: operate(core, request, now_ms))
