"""DescribeShareGroupOffsets, API key 90, versions 0-1 (KIP-932).

1   lag (KIP-1226)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kraftlog.api.slices import Pauses
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.share.share_admin import OffsetsOfPartition
from kraftlog.types import Uuid
from kraftlog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService, TaskService
    from kraftlog.runtime.share.share_admin import ShareAdmin
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]

_Response = DescribeShareGroupOffsetsResponse
_Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup


def handle(
    context: RequestContext,
    request: DescribeShareGroupOffsetsRequest,
    *,
    cluster: ClusterService,
    groups: GroupService,
    shares: ShareService,
    share_admin: ShareAdmin,
    tasks: TaskService,
) -> DescribeShareGroupOffsetsResponse | asyncio.Future[DescribeShareGroupOffsetsResponse]:
    """Start offsets and lags of share groups."""
    if not shares.is_enabled:
        code = ErrorCode.UNSUPPORTED_VERSION
        return _Response(groups=[_Group(group_id=group.group_id, error_code=code) for group in request.groups])
    return tasks.spawn(_describe(request, cluster, groups, share_admin))


async def _describe(
    request: DescribeShareGroupOffsetsRequest, cluster: ClusterService, groups: GroupService, admin: ShareAdmin
) -> DescribeShareGroupOffsetsResponse:
    described = []
    pauses = Pauses()
    for asked in request.groups:
        if pauses.is_due():
            await asyncio.sleep(0)
        try:
            runner = groups.runner(asked.group_id)
            group = runner.shard.shares.groups.get(asked.group_id)
        except KafkaError as error:
            described.append(_Group(group_id=asked.group_id, error_code=error.code, error_message=error.message))
            continue
        initialized = {} if group is None else group.initialized
        if asked.topics is None:
            topics = [(name, topic_id, sorted(indexes)) for topic_id, (name, indexes) in initialized.items()]
        else:
            topics = []
            for wanted in asked.topics:
                if pauses.is_due():
                    await asyncio.sleep(0)
                topic = cluster.image.topics.by_name(wanted.topic_name)
                topic_id = Uuid.ZERO if topic is None else topic.topic_id
                topics.append((wanted.topic_name, topic_id, list(wanted.partitions)))
        answers = []
        for found in topics:
            if pauses.is_due():
                await asyncio.sleep(0)
            answers.append(await _topic(admin, asked.group_id, *found, initialized))
        described.append(_Group(group_id=asked.group_id, topics=answers))
    return _Response(groups=described)


async def _topic(
    admin: ShareAdmin, group_id: str, name: str, topic_id: Uuid, indexes: list[int], initialized: dict[Any, Any]
) -> Any:
    _, known = initialized.get(topic_id, ("", frozenset()))
    asked = list(dict.fromkeys(index for index in indexes if index in known))
    offsets = dict(zip(asked, await admin.describe(group_id, [(topic_id, index) for index in asked]), strict=True))
    partitions = []
    pauses = Pauses()
    for index in indexes:
        if pauses.is_due():
            await asyncio.sleep(0)
        found = offsets.get(index) or OffsetsOfPartition()
        partitions.append(
            _Response.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=found.start_offset,
                leader_epoch=found.leader_epoch,
                lag=found.lag,
                error_code=found.error_code,
                error_message=found.error_message,
            )
        )
    return _Response.DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=partitions)
