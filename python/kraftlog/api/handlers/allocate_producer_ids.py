"""AllocateProducerIds (key 67), versions 0: a block of producer ids for a broker (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftlog.runtime.metadata.controller_channel import operate

if TYPE_CHECKING:
    import asyncio

    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext
    from kraftlog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

__all__ = ["handle"]


def handle(node: Node, context: RequestContext, request: AllocateProducerIdsRequest) -> asyncio.Future[Any]:
    """Answered by the active controller, once what it wrote is committed."""
    return node.metadata.submit(lambda core, now_ms: operate(core, request, now_ms))
