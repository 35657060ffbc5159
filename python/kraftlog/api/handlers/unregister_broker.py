"""UnregisterBroker (key 64), versions 0: forget a broker that is gone (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService
    from kraftlog.wire.messages.unregister_broker import UnregisterBrokerRequest

__all__ = ["handle"]


def handle(
    context: RequestContext, request: UnregisterBrokerRequest, *, controller: ControllerService
) -> asyncio.Future[Any]:
    """Answered by the active controller, once what it wrote is committed."""
    return controller.submit_request(request)
