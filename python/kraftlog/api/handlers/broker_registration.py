"""BrokerRegistration (key 62), versions 0-4: a broker starts and says who it is (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftlog.runtime.metadata.controller_channel import operate

if TYPE_CHECKING:
    import asyncio

    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext
    from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest

__all__ = ["handle"]


def handle(node: Node, context: RequestContext, request: BrokerRegistrationRequest) -> asyncio.Future[Any]:
    """Answered by the active controller, once what it wrote is committed."""
    return node.metadata.submit(lambda core, now_ms: operate(core, request, now_ms))
