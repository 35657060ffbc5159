"""CreateAcls, API key 30, versions 1-3 (KIP-140).

1   resource patterns (KIP-290)
3   user resources (KIP-373)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.slices import LOOKUPS_PER_SLICE, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.transport.exchange import CloseConnection
from kraftlog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService
    from kraftlog.security.authorizer import Authorizer

__all__ = ["handle"]


@sliced
def handle(
    context: RequestContext,
    request: CreateAclsRequest,
    *,
    controller: ControllerService,
    authorizer: Authorizer | None,
) -> Slices[CreateAclsResponse | CloseConnection | asyncio.Future[CreateAclsResponse]]:
    """Create ACLs; answered when they are committed."""
    for number, creation in enumerate(request.creations, 1):
        if not number % LOOKUPS_PER_SLICE:
            yield None
        # Kafka's CreateAclsRequest refuses zeros when it is read; other numbers without a name get a result.
        if not (
            creation.resource_type
            and creation.resource_pattern_type
            and creation.operation
            and creation.permission_type
        ):
            return CloseConnection("CreateAcls has an element UNKNOWN")
    if authorizer is None:
        result = CreateAclsResponse.AclCreationResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
        )
        results = yield from in_slices((result for _ in request.creations), LOOKUPS_PER_SLICE)
        return CreateAclsResponse(results=results)
    return controller.submit_request(request)
