"""UnregisterBroker (key 64), versions 0: forget a broker that is gone (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftlog.runtime.metadata.controller_channel import operate

if TYPE_CHECKING:
    import asyncio

    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext
    from kraftlog.wire.messages.unregister_broker import UnregisterBrokerRequest

__all__ = ["handle"]


def handle(node: Node, context: RequestContext, request: UnregisterBrokerRequest) -> asyncio.Future[Any]:
    """Answered by the active controller, once what it wrote is committed."""
    return node.metadata.submit(lambda core, now_ms: operate(core, request, now_ms))
