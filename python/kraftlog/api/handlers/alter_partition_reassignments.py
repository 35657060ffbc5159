"""AlterPartitionReassignments, API key 45, versions 0-1 (KIP-455).

1   may require that the replication factor stays (KIP-860)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest, *, controller: ControllerService
) -> AlterPartitionReassignmentsResponse | asyncio.Future[AlterPartitionReassignmentsResponse]:
    """Begin, change or cancel reassignments; answered when that is committed."""
    if not request.topics:
        return AlterPartitionReassignmentsResponse()
    return controller.submit_request(request)
