"""OffsetForLeaderEpoch (key 23), versions 2-4: where an epoch ended, so that a client can tell whether it diverged.

v2: current leader epoch (KIP-320). v3: replica id (KIP-392). v4: flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode, LogError
from kraftlog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ReplicaService

__all__ = ["handle"]

EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset
TopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


@sliced
def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest, *, replicas: ReplicaService
) -> Slices[OffsetForLeaderEpochResponse]:
    """Look every partition's epoch up."""
    topics: list[TopicResult] = []
    for number, topic in enumerate(request.topics, 1):
        name = topic.topic
        partitions = yield from in_slices(_look_up(replicas, name, partition) for partition in topic.partitions)
        topics.append(TopicResult(topic=name, partitions=partitions))
        if not number % ENTRIES_PER_SLICE:
            yield None
    return OffsetForLeaderEpochResponse(topics=topics)


def _look_up(
    replicas: ReplicaService, topic: str, wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> EpochEndOffset:
    index = wanted.partition
    partition = replicas.get_by_name(topic, index)
    if partition is None:
        return EpochEndOffset(partition=index, error_code=replicas.missing_error(topic, index))
    error_code = partition.replica.check_leader_epoch(wanted.current_leader_epoch)
    if error_code:
        return EpochEndOffset(partition=index, error_code=error_code)
    try:
        leader_epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    except (LogError, OSError):
        return EpochEndOffset(partition=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    return EpochEndOffset(partition=index, leader_epoch=leader_epoch, end_offset=end_offset)
