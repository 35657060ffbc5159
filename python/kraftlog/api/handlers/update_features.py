"""UpdateFeatures, API key 57, versions 0-2 (KIP-584).

1   upgrade type instead of allow-downgrade, validate-only (KIP-778)
2   no results per feature; one error for all
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: UpdateFeaturesRequest, *, controller: ControllerService
) -> asyncio.Future[UpdateFeaturesResponse]:
    """Change finalized feature levels, all or none; answered when the change is committed."""
    return controller.submit_request(request)
