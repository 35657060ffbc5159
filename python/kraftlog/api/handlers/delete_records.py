"""DeleteRecords (key 21), versions 0-2: move the start of a log up (KIP-107).

v1: throttling before the response. v2: flexible. Offset -1 stands for the high watermark.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode, LogError
from kraftlog.runtime.replica.registry import is_internal_topic
from kraftlog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ReplicaService, TaskService
    from kraftlog.runtime.replica.partition import Partition

__all__ = ["handle"]

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = DeleteRecordsResponse.DeleteRecordsPartitionResult

_TO_HIGH_WATERMARK = -1
# Followers tell where their logs start with their next fetch, at most replica.fetch.wait.max.ms later.
_LOOK_AGAIN_S = 0.02


@sliced
def handle(
    context: RequestContext, request: DeleteRecordsRequest, *, replicas: ReplicaService, tasks: TaskService
) -> Slices[DeleteRecordsResponse | asyncio.Future[DeleteRecordsResponse]]:
    """Delete below the given offset, partition by partition, and wait until the live followers have done so, too."""
    topics: list[TopicResult] = []
    awaited: dict[tuple[str, int], tuple[Partition, int]] = {}
    for number, topic in enumerate(request.topics, 1):
        name = topic.name
        partitions = yield from in_slices(
            _delete(replicas, awaited, name, partition.partition_index, partition.offset)
            for partition in topic.partitions
        )
        topics.append(TopicResult(name=name, partitions=partitions))
        if not number % ENTRIES_PER_SLICE:
            yield None
    if awaited:
        return tasks.spawn(_wait_for_followers(topics, awaited, request.timeout_ms / 1000))
    return DeleteRecordsResponse(topics=topics)


async def _wait_for_followers(
    topics: list[TopicResult], awaited: dict[tuple[str, int], tuple[Partition, int]], timeout_s: float
) -> DeleteRecordsResponse:
    """Until no live follower's log starts before what was deleted, or the time is over (ISR-82, ISR-83)."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    left = list(awaited.values())
    while loop.time() < deadline_s:
        left = [(partition, target) for partition, target in left if not _is_deleted(partition, target)]
        if not left:
            break
        await asyncio.sleep(_LOOK_AGAIN_S)
    return DeleteRecordsResponse(topics=[_after_wait(topic, awaited) for topic in topics])


def _is_deleted(partition: Partition, target: int) -> bool:
    return not partition.is_leader or partition.replica.low_watermark >= target


def _after_wait(topic: TopicResult, awaited: dict[tuple[str, int], tuple[Partition, int]]) -> TopicResult:
    def result(before: PartitionResult) -> PartitionResult:
        found = awaited.get((topic.name, before.partition_index))
        if found is None or before.error_code:
            return before
        partition, target = found
        code = ErrorCode.NONE if _is_deleted(partition, target) else ErrorCode.REQUEST_TIMED_OUT
        if not partition.is_leader:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        low_watermark = -1 if code else partition.replica.low_watermark
        return PartitionResult(partition_index=before.partition_index, low_watermark=low_watermark, error_code=code)

    return TopicResult(name=topic.name, partitions=[result(before) for before in topic.partitions])


def _delete(
    replicas: ReplicaService,
    awaited: dict[tuple[str, int], tuple[Partition, int]],
    topic: str,
    index: int,
    offset: int,
) -> PartitionResult:
    def failed(error_code: int) -> PartitionResult:
        return PartitionResult(partition_index=index, low_watermark=-1, error_code=error_code)

    if is_internal_topic(topic):
        return failed(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = replicas.get_by_name(topic, index)
    if partition is None:
        return failed(replicas.missing_error(topic, index))
    if not partition.is_leader:
        return failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if "delete" not in partition.config.cleanup_policy:
        return failed(ErrorCode.POLICY_VIOLATION)
    target = partition.high_watermark if offset == _TO_HIGH_WATERMARK else offset
    if target < 0 or target > partition.high_watermark:
        return failed(ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        if target > partition.log.log_start_offset:
            partition.delete_records(target)
    except (LogError, OSError):
        return failed(ErrorCode.KAFKA_STORAGE_ERROR)
    low_watermark = partition.replica.low_watermark
    if low_watermark < target:
        awaited[topic, index] = (partition, target)
    return PartitionResult(partition_index=index, low_watermark=low_watermark)
