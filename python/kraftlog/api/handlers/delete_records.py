"""DeleteRecords (key 21), versions 0-2: move the start of a log up (KIP-107).

v1: throttling before the response. v2: flexible. Offset -1 stands for the high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode, LogError
from kraftlog.runtime.replica.registry import is_internal_topic
from kraftlog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ReplicaService

__all__ = ["handle"]

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = DeleteRecordsResponse.DeleteRecordsPartitionResult

_TO_HIGH_WATERMARK = -1


@sliced
def handle(
    context: RequestContext, request: DeleteRecordsRequest, *, replicas: ReplicaService
) -> Slices[DeleteRecordsResponse]:
    """Delete below the given offset, partition by partition."""
    topics: list[TopicResult] = []
    for number, topic in enumerate(request.topics, 1):
        name = topic.name
        partitions = yield from in_slices(
            _delete(replicas, name, partition.partition_index, partition.offset) for partition in topic.partitions
        )
        topics.append(TopicResult(name=name, partitions=partitions))
        if not number % ENTRIES_PER_SLICE:
            yield None
    return DeleteRecordsResponse(topics=topics)


def _delete(replicas: ReplicaService, topic: str, index: int, offset: int) -> PartitionResult:
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
    return PartitionResult(partition_index=index, low_watermark=partition.log.log_start_offset)
