"""OffsetDelete, API key 47, version 0 (KIP-496)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.api.slices import LARGE_ENTRIES, LOOKUPS_PER_SLICE, Pauses, Slices, at_once, in_slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService

__all__ = ["handle"]

_Asked = OffsetDeleteRequest.OffsetDeleteRequestPartition
_AskedTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic
_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_Partition = OffsetDeleteResponse.OffsetDeleteResponsePartition


@sliced
def handle(
    context: RequestContext, request: OffsetDeleteRequest, *, cluster: ClusterService, groups: GroupService
) -> Slices[OffsetDeleteResponse | asyncio.Future[OffsetDeleteResponse]]:
    """Forget positions of partitions that the group does not consume now."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    unknown: dict[str, dict[int, None]] = {}
    known: dict[str, dict[int, _Asked]] = {}
    count = 0
    for topic in request.topics:
        image = cluster.image.topics.by_name(topic.name)
        for partition in topic.partitions:
            count += 1
            if not count % LOOKUPS_PER_SLICE:
                yield None
            index = partition.partition_index
            if image is not None and index in image.partitions:
                known.setdefault(topic.name, {})[index] = partition
            else:
                unknown.setdefault(topic.name, {})[index] = None
    runner = groups.runner(request.group_id)
    topics = [_AskedTopic(name=name, partitions=list(parts.values())) for name, parts in known.items()]
    resolved = replace(request, topics=topics)
    asked = runner.ask(lambda shard, future, _now_ms: shard.delete_offsets(future, resolved))
    if count > LARGE_ENTRIES:
        yield asked
        return (yield from _with_unknown(asked.result(), unknown))
    return transform(asked, lambda response: at_once(_with_unknown(response, unknown)))


def _with_unknown(
    response: OffsetDeleteResponse, unknown: Mapping[str, Mapping[int, None]]
) -> Slices[OffsetDeleteResponse]:
    if response.error_code or not unknown:
        return response
    found = {topic.name: list(topic.partitions) for topic in response.topics}
    pauses = Pauses()
    for name, indexes in unknown.items():
        if pauses.is_due():
            yield None
        missing = yield from in_slices(
            _Partition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in indexes
        )
        found.setdefault(name, []).extend(missing)
    topics = yield from in_slices(_Topic(name=name, partitions=parts) for name, parts in found.items())
    return replace(response, topics=topics)
