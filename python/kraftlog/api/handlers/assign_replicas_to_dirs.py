"""AssignReplicasToDirs, API key 73, version 0: a broker says in which log directories its replicas lie (KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService
    from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest

__all__ = ["handle"]


def handle(
    context: RequestContext, request: AssignReplicasToDirsRequest, *, controller: ControllerService
) -> asyncio.Future[Any]:
    """Answered by the active controller, once what it wrote is committed."""
    return controller.submit_request(request)
