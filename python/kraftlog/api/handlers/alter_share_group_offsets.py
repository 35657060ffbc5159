"""AlterShareGroupOffsets, API key 91, version 0 (KIP-932)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kraftlog.api.slices import Pauses, in_turns
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.share.share_admin import split
from kraftlog.types import Uuid
from kraftlog.vocabulary import NOT_HOSTED
from kraftlog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService, TaskService
    from kraftlog.runtime.share.share_admin import ShareAdmin
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["handle"]

_Response = AlterShareGroupOffsetsResponse


def handle(
    context: RequestContext,
    request: AlterShareGroupOffsetsRequest,
    *,
    cluster: ClusterService,
    groups: GroupService,
    shares: ShareService,
    share_admin: ShareAdmin,
    tasks: TaskService,
) -> AlterShareGroupOffsetsResponse | asyncio.Future[AlterShareGroupOffsetsResponse]:
    """Set the start offsets of an empty share group, which is made if there is none."""
    if not shares.is_enabled:
        return _Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not request.group_id:
        return _Response(error_code=ErrorCode.INVALID_GROUP_ID)
    return tasks.spawn(_alter(request, cluster, groups, share_admin))


async def _alter(
    request: AlterShareGroupOffsetsRequest, cluster: ClusterService, groups: GroupService, admin: ShareAdmin
) -> AlterShareGroupOffsetsResponse:
    group_id = request.group_id
    offsets: dict[tuple[Uuid, int], int] = {}
    found: dict[Uuid, tuple[str, set[int]]] = {}
    pauses = Pauses()
    for asked in request.topics:
        if pauses.is_due():
            await asyncio.sleep(0)
        topic = cluster.image.topics.by_name(asked.topic_name)
        for partition in asked.partitions:
            if pauses.is_due():
                await asyncio.sleep(0)
            index = partition.partition_index
            if topic is not None and index in topic.partitions:
                offsets[topic.topic_id, index] = partition.start_offset
                found.setdefault(topic.topic_id, (topic.name, set()))[1].add(index)
    known = {topic_id: (name, frozenset(indexes)) for topic_id, (name, indexes) in found.items()}
    try:
        runner = groups.runner(group_id)
        epoch = await runner.ask(
            lambda shard, future, now_ms: shard.shares.begin_alter(future, group_id, known, now_ms)
        )
        if epoch < 0:
            raise KafkaError(-epoch)
    except KafkaError as error:
        return _Response(error_code=error.code, error_message=error.message)
    results = await admin.initialize(group_id, epoch, offsets)
    done, failed = split(known, results)
    if runner.is_loaded:
        runner.call(lambda shard, now_ms: shard.shares.on_states_initialized(group_id, done, failed, now_ms))
    answers = []
    for asked in request.topics:
        if pauses.is_due():
            await asyncio.sleep(0)
        topic = cluster.image.topics.by_name(asked.topic_name)
        topic_id = Uuid.ZERO if topic is None else topic.topic_id
        answers.append(
            _Response.AlterShareGroupOffsetsResponseTopic(
                topic_name=asked.topic_name,
                topic_id=topic_id,
                partitions=await in_turns(
                    _partition(p.partition_index, results.get((topic_id, p.partition_index))) for p in asked.partitions
                ),
            )
        )
    return _Response(responses=answers)


def _partition(index: int, result: Any) -> Any:
    partition = _Response.AlterShareGroupOffsetsResponsePartition
    if result is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return partition(partition_index=index, error_code=code, error_message=NOT_HOSTED)
    return partition(partition_index=index, error_code=result.error_code, error_message=result.error_message)
