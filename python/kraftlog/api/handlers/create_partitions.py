"""CreatePartitions, API key 37, versions 0-3 (KIP-195).

3   THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext

__all__ = ["handle"]


def handle(
    node: Node, context: RequestContext, request: CreatePartitionsRequest
) -> asyncio.Future[CreatePartitionsResponse]:
    """Give topics more partitions; answered when they are committed and this broker has them."""
    return node.metadata.submit(lambda controller, _now_ms: controller.create_partitions(request))
