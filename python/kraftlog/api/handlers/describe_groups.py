"""DescribeGroups, API key 15, versions 0-6.

3   authorised operations (KIP-430)
4   group.instance.id (KIP-345)
6   an unknown group is an error, GROUP_ID_NOT_FOUND, with a text; before, a dead group (KIP-1043)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.cluster_view import GROUP_OPERATIONS
from kraftlog.api.slices import Slices, in_slices, sliced
from kraftlog.errors import KafkaError
from kraftlog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService

__all__ = ["handle"]


@sliced
def handle(
    context: RequestContext, request: DescribeGroupsRequest, *, groups: GroupService
) -> Slices[DescribeGroupsResponse]:
    """Describe groups: state, members, their subscriptions and assignments."""
    described = yield from in_slices(
        _describe(groups, context, group_id, with_operations=request.include_authorized_operations)
        for group_id in request.groups
    )
    return DescribeGroupsResponse(groups=described)


def _describe(
    groups: GroupService, context: RequestContext, group_id: str, *, with_operations: bool
) -> DescribeGroupsResponse.DescribedGroup:
    try:
        runner = groups.runner(group_id)
    except KafkaError as error:
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id, error_code=error.code, error_message=error.message
        )
    group = runner.shard.describe_group(group_id, context.api_version)
    return replace(group, authorized_operations=GROUP_OPERATIONS) if with_operations and not group.error_code else group
