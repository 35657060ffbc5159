"""AllocateProducerIds (key 67), versions 0: a block of producer ids for a broker (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService
    from kraftlog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

__all__ = ["handle"]


def handle(
    context: RequestContext, request: AllocateProducerIdsRequest, *, controller: ControllerService
) -> asyncio.Future[Any]:
    """Answered by the active controller, once what it wrote is committed."""
    return controller.submit_request(request)
