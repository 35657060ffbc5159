"""WriteTxnMarkers, API key 27, versions 1-2 (KIP-98).

2   the version of the transaction, by which epochs are checked (KIP-1228)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import MarkerService, TaskService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: WriteTxnMarkersRequest, *, markers: MarkerService, tasks: TaskService
) -> asyncio.Future[WriteTxnMarkersResponse]:
    """End transactions on partitions of this node; answered once the markers are committed."""
    return tasks.spawn(markers.write(request))
