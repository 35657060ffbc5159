"""DescribeGroups, API key 15, versions 0-6.

3   authorised operations (KIP-430)
4   group.instance.id (KIP-345)
6   an unknown group is an error, GROUP_ID_NOT_FOUND, with a text; before, a dead group (KIP-1043)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.cluster_view import GROUP_OPERATIONS
from kraftlog.errors import KafkaError
from kraftlog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext

__all__ = ["handle"]


def handle(node: Node, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe groups: state, members, their subscriptions and assignments."""
    groups = [_describe(node, context, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        groups = [
            group if group.error_code else replace(group, authorized_operations=GROUP_OPERATIONS) for group in groups
        ]
    return DescribeGroupsResponse(groups=groups)


def _describe(node: Node, context: RequestContext, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
    try:
        runner = node.groups.runner(group_id)
    except KafkaError as error:
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id, error_code=error.code, error_message=error.message
        )
    return runner.shard.describe_group(group_id, context.api_version)
