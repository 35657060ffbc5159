"""BrokerRegistration (key 62), versions 0-4: a broker starts and says who it is (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService
    from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest

__all__ = ["handle"]


def handle(
    context: RequestContext, request: BrokerRegistrationRequest, *, controller: ControllerService
) -> asyncio.Future[Any]:
    """Answered by the active controller, once what it wrote is committed."""
    return controller.submit_request(request)
