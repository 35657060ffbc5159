"""AlterClientQuotas, API key 49, versions 0-1 (KIP-546)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: AlterClientQuotasRequest, *, controller: ControllerService
) -> asyncio.Future[AlterClientQuotasResponse]:
    """Set and remove quotas; answered when that is committed."""
    return controller.submit_request(request)
