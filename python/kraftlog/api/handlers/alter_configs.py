"""AlterConfigs, API key 33, versions 0-2 (KIP-133): what a resource's settings are to be altogether.

Older than IncrementalAlterConfigs and still spoken by older clients.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: AlterConfigsRequest, *, controller: ControllerService
) -> asyncio.Future[AlterConfigsResponse]:
    """Replace settings; answered when that is committed and in force on this node."""
    return controller.submit_request(request)
