"""CreatePartitions, API key 37, versions 0-3 (KIP-195).

3   THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService

__all__ = ["handle"]

STRICT_QUOTA_VERSION = 3


def handle(
    context: RequestContext, request: CreatePartitionsRequest, *, controller: ControllerService
) -> asyncio.Future[CreatePartitionsResponse]:
    """Give topics more partitions; answered when they are committed and this broker has them."""
    return controller.submit_request(request, charge=context.mutation_charge(STRICT_QUOTA_VERSION))
