"""AlterPartition, API key 56, versions 2-3: a leader changes the in-sync set of its partitions (KIP-497).

2   topic ids instead of names; INELIGIBLE_REPLICA and NEW_LEADER_ELECTED (KIP-841)
3   broker epochs of the members (KIP-903)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: AlterPartitionRequest, *, controller: ControllerService
) -> AlterPartitionResponse | asyncio.Future[AlterPartitionResponse]:
    """Answered by the active controller, once what it wrote is committed."""
    if not request.topics:
        return AlterPartitionResponse()
    return controller.submit_request(request)
