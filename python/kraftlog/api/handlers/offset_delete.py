"""OffsetDelete, API key 47, version 0 (KIP-496)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService

__all__ = ["handle"]

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_Partition = OffsetDeleteResponse.OffsetDeleteResponsePartition


def handle(
    context: RequestContext, request: OffsetDeleteRequest, *, cluster: ClusterService, groups: GroupService
) -> OffsetDeleteResponse | asyncio.Future[OffsetDeleteResponse]:
    """Forget positions of partitions that the group does not consume now."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    unknown: dict[str, list[int]] = {}
    topics = []
    for topic in request.topics:
        image = cluster.image.topics.by_name(topic.name)
        known = (
            []
            if image is None
            else [partition for partition in topic.partitions if partition.partition_index in image.partitions]
        )
        missing = [partition.partition_index for partition in topic.partitions if partition not in known]
        if missing:
            unknown[topic.name] = missing
        if known:
            topics.append(replace(topic, partitions=known))
    if unknown and not topics:
        return _with_unknown(OffsetDeleteResponse(), unknown)
    resolved = replace(request, topics=topics)
    runner = groups.runner(request.group_id)
    asked = runner.ask(lambda shard, future, _now_ms: shard.delete_offsets(future, resolved))
    return transform(asked, lambda response: _with_unknown(response, unknown))


def _with_unknown(response: OffsetDeleteResponse, unknown: dict[str, list[int]]) -> OffsetDeleteResponse:
    if response.error_code or not unknown:
        return response
    found = {topic.name: list(topic.partitions) for topic in response.topics}
    for name, indexes in unknown.items():
        found.setdefault(name, []).extend(
            _Partition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in indexes
        )
    return replace(response, topics=[_Topic(name=name, partitions=parts) for name, parts in found.items()])
