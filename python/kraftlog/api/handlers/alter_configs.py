"""AlterConfigs, API key 33, versions 0-2 (KIP-133): what a resource's settings are to be altogether.

Older than IncrementalAlterConfigs and still spoken by older clients.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext

__all__ = ["handle"]


def handle(node: Node, context: RequestContext, request: AlterConfigsRequest) -> asyncio.Future[AlterConfigsResponse]:
    """Replace settings; answered when that is committed and in force on this node."""
    return node.metadata.submit(lambda controller, _now_ms: controller.alter_configs(request))
