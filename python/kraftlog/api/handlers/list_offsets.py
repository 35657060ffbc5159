"""ListOffsets (key 2), versions 1-11: the offset at a time, or at one of the named places of a log.

v1: one offset instead of many. v2: isolation level. v4: current leader epoch (KIP-320). v5: OFFSET_NOT_AVAILABLE while
a new leader settles. v6: flexible. v7: -3, the largest timestamp (KIP-734). v8: -4, the earliest local offset
(KIP-405). v9: -5, the latest tiered offset (KIP-1005). v10: timeout. v11: -6, the earliest offset not yet uploaded.

There is no tiered storage here, so -4 answers as the earliest offset, and -5 and -6 answer "unknown" (-1), as Kafka
does when it is off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, counted_in_slices, in_slices, sliced
from kraftlog.errors import CorruptRecordError, ErrorCode, KafkaError, LogError
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ReplicaService
    from kraftlog.runtime.replica.partition import Partition

__all__ = ["handle"]

TopicResponse = ListOffsetsResponse.ListOffsetsTopicResponse
PartitionResponse = ListOffsetsResponse.ListOffsetsPartitionResponse

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# Special timestamp -> the version it appeared in.
_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_UNKNOWN = (-1, -1, -1)
CONSUMER = -1
READ_COMMITTED = 1
_KEYS_PER_SLICE = 2_000


@sliced
def handle(
    context: RequestContext, request: ListOffsetsRequest, *, replicas: ReplicaService
) -> Slices[ListOffsetsResponse]:
    """Look every partition up."""
    wanted = yield from in_slices(
        ((topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions),
        _KEYS_PER_SLICE,
    )
    counts = yield from counted_in_slices(wanted)

    def response(topic: str, partition: ListOffsetsRequest.ListOffsetsPartition) -> PartitionResponse:
        if counts[topic, partition.partition_index] > 1:
            return _failed(partition.partition_index, ErrorCode.INVALID_REQUEST)
        return _partition_response(replicas, context.api_version, request, topic, partition)

    topics: list[TopicResponse] = []
    for number, topic in enumerate(request.topics, 1):
        partitions = yield from in_slices(response(topic.name, partition) for partition in topic.partitions)
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
        if not number % ENTRIES_PER_SLICE:
            yield None
    return ListOffsetsResponse(topics=topics)


def _partition_response(
    replicas: ReplicaService,
    version: int,
    request: ListOffsetsRequest,
    topic: str,
    partition: ListOffsetsRequest.ListOffsetsPartition,
) -> PartitionResponse:
    index = partition.partition_index
    try:
        timestamp, offset, leader_epoch = _look_up(replicas, version, request, topic, partition)
    except KafkaError as error:
        return _failed(index, error.code)
    if version < 4:
        leader_epoch = -1
    return PartitionResponse(partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch)


def _failed(index: int, error_code: int) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=error_code)


def _look_up(
    replicas: ReplicaService,
    version: int,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsRequest.ListOffsetsPartition,
) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch), each -1 when there is none."""
    if wanted.timestamp < 0 and version < _SINCE_VERSION.get(wanted.timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = replicas.get_by_name(topic, wanted.partition_index)
    if partition is None:
        raise KafkaError(replicas.missing_error(topic, wanted.partition_index))
    # The debugging replica id -2 may ask any replica; everyone else asks the leader.
    error_code = partition.replica.check_leader_epoch(
        wanted.current_leader_epoch, needs_leader=request.replica_id != -2
    )
    if error_code:
        raise KafkaError(error_code)
    is_consumer = request.replica_id == CONSUMER
    if not is_consumer:
        end_offset = partition.replica.log_end_offset
    elif request.isolation_level == READ_COMMITTED:
        end_offset = partition.last_stable_offset
    else:
        end_offset = partition.high_watermark
    try:
        return _find(partition, wanted.timestamp, end_offset, version, is_consumer=is_consumer)
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE) from error
    except (LogError, OSError) as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error


def _find(
    partition: Partition, timestamp: int, end_offset: int, version: int, *, is_consumer: bool
) -> tuple[int, int, int]:
    log = partition.log
    is_settled = not is_consumer or partition.replica.is_high_watermark_settled
    unavailable = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    match timestamp:
        case -1:
            if not is_settled:
                raise KafkaError(unavailable)
            # As Kafka, whatever epoch the last record has.
            return -1, end_offset, partition.leader_epoch
        case -2 | -4:
            start_offset = log.log_start_offset
            return -1, start_offset, _epoch_at_start(partition, start_offset)
        case -5 | -6:
            return _UNKNOWN
        case -3:
            found = log.max_timestamp()
        case _:
            found = log.offset_for_timestamp(timestamp)
    if found is None:
        return _UNKNOWN
    offset, found_timestamp, leader_epoch = found
    if offset < end_offset:
        return found_timestamp, offset, leader_epoch
    if not is_settled:
        # Offsets a consumer was told must not go back after a change of leaders (KIP-207).
        raise KafkaError(unavailable)
    return _UNKNOWN


def _epoch_at(partition: Partition, end_offset: int) -> int:
    """The epoch told with the latest offset: the newest one that has records, or began, at or below it."""
    epoch = -1
    for entry_epoch, start_offset in partition.log.epoch_entries():
        if start_offset <= end_offset:
            epoch = entry_epoch
    return epoch


def _epoch_at_start(partition: Partition, start_offset: int) -> int:
    entries = partition.log.epoch_entries()
    if entries and entries[0][1] <= start_offset:
        return _epoch_at(partition, start_offset)
    return -1
