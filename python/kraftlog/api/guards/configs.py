"""Guards of the requests about settings: ALTER_CONFIGS or DESCRIBE_CONFIGS on the topic, the group or the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kraftlog.api.guards.answers import TEXTS, Handle, followed_by
from kraftlog.api.slices import LOOKUPS_PER_SLICE, Pauses, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.security.operation import Operation, ResourceKind
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kraftlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kraftlog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kraftlog.api.context import RequestContext
    from kraftlog.api.guards.access import Access

__all__ = ["alter_configs", "describe_configs", "incremental_alter_configs"]


def _refusal(access: Access, operation: Operation, resource: Any) -> int:
    """0, or why the operation is refused on a resource; what is no resource is left to the handler."""
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            is_allowed = access.may(operation, ResourceKind.TOPIC, resource.resource_name)
            return 0 if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case ConfigResourceType.GROUP:
            is_allowed = access.may(operation, ResourceKind.GROUP, resource.resource_name)
            return 0 if is_allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
        case _:
            return 0 if access.may_on_cluster(operation) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _split(
    access: Access, operation: Operation, resources: Sequence[Any], result: Callable[..., Any]
) -> Slices[tuple[list[Any], list[Any]]]:
    """The resources that may be handled, and the results of the others."""
    codes = yield from in_slices(
        (_refusal(access, operation, resource) for resource in resources), LOOKUPS_PER_SLICE // 8
    )
    allowed: list[Any] = []
    refused: list[Any] = []
    pauses = Pauses()
    for resource, code in zip(resources, codes, strict=True):
        if pauses.is_due():
            yield None
        if not code:
            allowed.append(resource)
            continue
        refused.append(
            result(
                error_code=code,
                error_message=TEXTS[code],
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return allowed, refused


@sliced
def describe_configs(
    access: Access, context: RequestContext, request: DescribeConfigsRequest, handle: Handle
) -> Slices[Any]:
    """DESCRIBE_CONFIGS on each resource."""
    result = DescribeConfigsResponse.DescribeConfigsResult
    allowed, refused = yield from _split(access, Operation.DESCRIBE_CONFIGS, request.resources, result)

    def merge(response: DescribeConfigsResponse) -> Slices[DescribeConfigsResponse]:
        yield from ()
        return replace(response, results=[*response.results, *refused])

    return (yield from followed_by(handle(replace(request, resources=allowed)), merge))


def _alter(
    request: Any, allowed: list[Any], refused: list[Any], response_class: type[Any], handle: Handle
) -> Slices[Any]:
    if not allowed and refused:
        return response_class(responses=refused)

    def merge(response: Any) -> Slices[Any]:
        yield from ()
        return replace(response, responses=[*response.responses, *refused])

    return (yield from followed_by(handle(replace(request, resources=allowed)), merge))


@sliced
def alter_configs(access: Access, context: RequestContext, request: AlterConfigsRequest, handle: Handle) -> Slices[Any]:
    """ALTER_CONFIGS on each resource."""
    result = AlterConfigsResponse.AlterConfigsResourceResponse
    allowed, refused = yield from _split(access, Operation.ALTER_CONFIGS, request.resources, result)
    return (yield from _alter(request, allowed, refused, AlterConfigsResponse, handle))


@sliced
def incremental_alter_configs(
    access: Access, context: RequestContext, request: IncrementalAlterConfigsRequest, handle: Handle
) -> Slices[Any]:
    """ALTER_CONFIGS on each resource."""
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    allowed, refused = yield from _split(access, Operation.ALTER_CONFIGS, request.resources, result)
    return (yield from _alter(request, allowed, refused, IncrementalAlterConfigsResponse, handle))
