"""CreateTopics, API key 19, versions 2-7.

4   partitions and replication factor may be left to the broker's defaults (KIP-464)
5   the answer has the topic's settings (KIP-525)
6   THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
7   topic ids (KIP-516)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService

__all__ = ["handle"]

STRICT_QUOTA_VERSION = 6


def handle(
    context: RequestContext, request: CreateTopicsRequest, *, controller: ControllerService
) -> asyncio.Future[CreateTopicsResponse]:
    """Create topics; answered when they are committed and this broker has them."""
    return controller.submit_request(request, charge=context.mutation_charge(STRICT_QUOTA_VERSION))
