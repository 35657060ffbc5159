"""DescribeAcls, API key 29, versions 1-3 (KIP-140): ACLs as the metadata log has them.

1   resource patterns (KIP-290)
3   user resources (KIP-373)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.api.slices import ENTRIES_PER_SLICE, LOOKUPS_PER_SLICE, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.security.acl_filter import AclFilter
from kraftlog.transport.exchange import CloseConnection
from kraftlog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService
    from kraftlog.security.authorizer import Authorizer

__all__ = ["handle"]


@sliced
def handle(
    context: RequestContext, request: DescribeAclsRequest, *, cluster: ClusterService, authorizer: Authorizer | None
) -> Slices[DescribeAclsResponse | CloseConnection]:
    """List the ACLs that the filter matches, by resource."""
    if not (
        request.resource_type_filter and request.pattern_type_filter and request.operation and request.permission_type
    ):
        return CloseConnection("DescribeAcls has an element UNKNOWN")
    if authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    acl_filter = AclFilter.of(request)
    acls_by_resource: dict[tuple[int, str, int], list[DescribeAclsResponse.AclDescription]] = {}
    found = 0
    # A copy of the references: the image may change between two slices.
    for number, acl in enumerate(list(cluster.image.security.acls.values()), 1):
        if not number % LOOKUPS_PER_SLICE:
            yield None
        if not acl_filter.matches(acl):
            continue
        found += 1
        if not found % ENTRIES_PER_SLICE:
            yield None
        acls_by_resource.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(
            DescribeAclsResponse.AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    resources = yield from in_slices(
        DescribeAclsResponse.DescribeAclsResource(
            resource_type=kind, resource_name=name, pattern_type=pattern_type, acls=acls
        )
        for (kind, name, pattern_type), acls in acls_by_resource.items()
    )
    return DescribeAclsResponse(error_message=None, resources=resources)
