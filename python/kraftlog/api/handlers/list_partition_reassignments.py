"""ListPartitionReassignments, API key 46, version 0 (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kraftlog.api.slices import Slices, sliced
from kraftlog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService
    from kraftlog.controller.topic_image import PartitionImage, TopicImage

__all__ = ["handle"]

_Topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Partition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


_SCANNED_PER_SLICE = 1024


@sliced
def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest, *, cluster: ClusterService
) -> Slices[ListPartitionReassignmentsResponse]:
    """List partitions that replicas are being added to or removed from; topics that do not exist are left out."""
    if request.topics is None:
        asked: Iterable[tuple[TopicImage | None, list[int]]] = (
            (topic, sorted(topic.partitions)) for topic in cluster.image.topics.all()
        )
    else:
        named = ((cluster.image.topics.by_name(topic.name), topic.partition_indexes) for topic in request.topics)
        asked = ((topic, list(indexes)) for topic, indexes in named)
    topics = []
    scanned = 0
    for topic, indexes in asked:
        scanned += len(indexes) + 1
        if scanned >= _SCANNED_PER_SLICE:
            scanned = 0
            yield None
        if topic is None:
            continue
        partitions = [_ongoing(index, topic.partitions[index]) for index in indexes if _is_reassigning(topic, index)]
        if partitions:
            topics.append(_Topic(name=topic.name, partitions=partitions))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _is_reassigning(topic: TopicImage, index: int) -> bool:
    partition = topic.partitions.get(index)
    return partition is not None and partition.is_reassigning


def _ongoing(index: int, partition: PartitionImage) -> _Partition:
    return _Partition(
        partition_index=index,
        replicas=partition.replicas,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
    )
