"""DescribeProducers, API key 61, version 0 (KIP-664): the producers that a replica remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.api.slices import Pauses, Slices, in_slices, sliced
from kraftlog.controller.topic_name import topic_name_problem
from kraftlog.errors import ErrorCode, LogError
from kraftlog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from kraftlog._kraftlog import ProducerInfo
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ReplicaService

__all__ = ["handle"]

_Topic = DescribeProducersResponse.TopicResponse
_Partition = DescribeProducersResponse.PartitionResponse
_Producer = DescribeProducersResponse.ProducerState


@sliced
def handle(
    context: RequestContext, request: DescribeProducersRequest, *, replicas: ReplicaService
) -> Slices[DescribeProducersResponse]:
    """Describe the producers of every partition that is on this node, followed ones too."""
    topics = []
    pauses = Pauses()
    for topic in request.topics:
        if pauses.is_due():
            yield None
        name = topic.name
        partitions = yield from in_slices(_describe(replicas, name, index) for index in topic.partition_indexes)
        topics.append(_Topic(name=name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _describe(replicas: ReplicaService, topic: str, index: int) -> _Partition:
    if topic_name_problem(topic) is not None:
        return _failed(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = replicas.get_by_name(topic, index)
    if partition is None:
        return _failed(index, replicas.missing_error(topic, index))
    try:
        producers = partition.log.active_producers()
    except LogError:
        return _failed(index, ErrorCode.KAFKA_STORAGE_ERROR)
    return _Partition(
        partition_index=index, error_message=None, active_producers=[_state(producer) for producer in producers]
    )


def _failed(index: int, error_code: int) -> _Partition:
    return _Partition(partition_index=index, error_code=error_code, error_message=None)


def _state(producer: ProducerInfo) -> _Producer:
    first_offset = producer.current_txn_first_offset
    return _Producer(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=-1 if first_offset is None else first_offset,
    )
