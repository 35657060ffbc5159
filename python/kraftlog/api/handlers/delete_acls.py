"""DeleteAcls, API key 31, versions 1-3 (KIP-140).

1   resource patterns (KIP-290)
3   user resources (KIP-373)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.slices import LOOKUPS_PER_SLICE, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.transport.exchange import CloseConnection
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ControllerService
    from kraftlog.security.authorizer import Authorizer

__all__ = ["handle"]


@sliced
def handle(
    context: RequestContext,
    request: DeleteAclsRequest,
    *,
    controller: ControllerService,
    authorizer: Authorizer | None,
) -> Slices[DeleteAclsResponse | CloseConnection | asyncio.Future[DeleteAclsResponse]]:
    """Delete the ACLs that filters match; answered when that is committed."""
    for number, wanted in enumerate(request.filters, 1):
        if not number % LOOKUPS_PER_SLICE:
            yield None
        # As in CreateAcls.
        if not (
            wanted.resource_type_filter and wanted.pattern_type_filter and wanted.operation and wanted.permission_type
        ):
            return CloseConnection("DeleteAcls has an element UNKNOWN")
    if authorizer is None:
        result = DeleteAclsResponse.DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
        )
        results = yield from in_slices((result for _ in request.filters), LOOKUPS_PER_SLICE)
        return DeleteAclsResponse(filter_results=results)
    return controller.submit_request(request)
