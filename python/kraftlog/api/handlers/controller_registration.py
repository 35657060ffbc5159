"""ControllerRegistration (key 70), versions 0: a controller starts and says who it is (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService
    from kraftlog.wire.messages.controller_registration import ControllerRegistrationRequest

__all__ = ["handle"]


def handle(
    context: RequestContext, request: ControllerRegistrationRequest, *, controller: ControllerService
) -> asyncio.Future[Any]:
    """Answered by the active controller, once what it wrote is committed."""
    return controller.submit_request(request)
