"""UpdateFeatures, API key 57, versions 0-2 (KIP-584).

1   upgrade type instead of allow-downgrade, validate-only (KIP-778)
2   no results per feature; one error for all
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext

__all__ = ["handle"]


def handle(
    node: Node, context: RequestContext, request: UpdateFeaturesRequest
) -> asyncio.Future[UpdateFeaturesResponse]:
    """Change finalized feature levels, all or none; answered when the change is committed."""
    return node.metadata.submit_request(request)
