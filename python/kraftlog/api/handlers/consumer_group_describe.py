"""ConsumerGroupDescribe, API key 69, versions 0-1 (KIP-848).

1   whether a member uses the classic protocol (KIP-1099)
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.cluster_view import GROUP_OPERATIONS
from kraftlog.api.combined_answer import gather
from kraftlog.api.slices import Slices, in_slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import GROUP_VERSION
from kraftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService
    from kraftlog.api.settings import ApiSettings

__all__ = ["handle"]

_Group = ConsumerGroupDescribeResponse.DescribedGroup


@sliced
def handle(
    context: RequestContext,
    request: ConsumerGroupDescribeRequest,
    *,
    cluster: ClusterService,
    groups: GroupService,
    settings: ApiSettings,
) -> Slices[asyncio.Future[ConsumerGroupDescribeResponse]]:
    """Describe consumer groups: state, epochs, members, what they have and what they are to have."""
    is_served = bool(cluster.image.features.get(GROUP_VERSION)) and "consumer" in settings.group_protocols
    names = list(request.group_ids)
    described = yield from in_slices(_describe(groups, name, is_served=is_served) for name in names)

    def with_operations(group: _Group) -> _Group:
        wanted = request.include_authorized_operations and not group.error_code
        return replace(group, authorized_operations=GROUP_OPERATIONS) if wanted else group

    return gather(
        described,
        lambda error, index: _Group(group_id=names[index], error_code=error.code),
        lambda results: ConsumerGroupDescribeResponse(groups=[with_operations(group) for group in results]),
    )


def _describe(groups: GroupService, group_id: str, *, is_served: bool) -> asyncio.Future[_Group] | _Group:
    if not is_served:
        return _Group(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not group_id:
        return _Group(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        runner = groups.runner(group_id)
    except KafkaError as error:
        return _Group(group_id=group_id, error_code=error.code)
    return runner.ask(lambda shard, future, _now_ms: shard.describe_consumer_group(future, group_id))
