"""DescribeAcls, API key 29, versions 1-3 (KIP-140): there is no authorizer to ask, and the answer says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext

__all__ = ["handle"]


def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Answer as Kafka does without authorizer.class.name."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
