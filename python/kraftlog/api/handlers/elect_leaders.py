"""ElectLeaders, API key 43, versions 0-2 (KIP-183, KIP-460).

1   unclean elections
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: ElectLeadersRequest, *, controller: ControllerService
) -> ElectLeadersResponse | asyncio.Future[ElectLeadersResponse]:
    """Elect leaders of the partitions named, or of all; answered when that is committed."""
    if request.topic_partitions is not None and not request.topic_partitions:
        return ElectLeadersResponse()
    return controller.submit_request(request)
