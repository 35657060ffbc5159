"""BrokerHeartbeat (key 63), versions 0-2: a broker lives, and may be unfenced (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService
    from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest

__all__ = ["handle"]


def handle(
    context: RequestContext, request: BrokerHeartbeatRequest, *, controller: ControllerService
) -> asyncio.Future[Any]:
    """Answered by the active controller, once what it wrote is committed; REQUEST_TIMED_OUT if it is not begun soon."""
    if context.peer.loss is not None:
        controller.note_connection(request, context.peer.loss)
    return controller.submit_request(request)
