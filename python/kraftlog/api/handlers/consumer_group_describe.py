"""ConsumerGroupDescribe, API key 69, versions 0-1 (KIP-848).

1   whether a member uses the classic protocol (KIP-1099)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.described_groups import describe_groups
from kraftlog.api.slices import Slices, sliced
from kraftlog.features import GROUP_VERSION
from kraftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService
    from kraftlog.api.settings import ApiSettings

__all__ = ["handle"]


@sliced
def handle(
    context: RequestContext,
    request: ConsumerGroupDescribeRequest,
    *,
    cluster: ClusterService,
    groups: GroupService,
    settings: ApiSettings,
) -> Slices[ConsumerGroupDescribeResponse | asyncio.Future[ConsumerGroupDescribeResponse]]:
    """Describe consumer groups: state, epochs, members, what they have and what they are to have."""
    is_served = bool(cluster.image.features.get(GROUP_VERSION)) and "consumer" in settings.group_protocols
    described: (
        ConsumerGroupDescribeResponse | asyncio.Future[ConsumerGroupDescribeResponse]
    ) = yield from describe_groups(
        groups,
        request,
        is_served=is_served,
        group_class=ConsumerGroupDescribeResponse.DescribedGroup,
        ask=lambda shard, future, name: shard.describe_consumer_group(future, name),
        answer=lambda found: ConsumerGroupDescribeResponse(groups=list(found)),
    )
    return described
