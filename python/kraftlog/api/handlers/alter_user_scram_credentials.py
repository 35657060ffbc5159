"""AlterUserScramCredentials, API key 51, version 0 (KIP-554): sets and removes passwords of SCRAM users."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService

__all__ = ["handle"]


def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest, *, controller: ControllerService
) -> asyncio.Future[AlterUserScramCredentialsResponse]:
    """Change credentials; answered when that is committed."""
    return controller.submit_request(request)
