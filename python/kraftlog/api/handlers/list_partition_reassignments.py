"""ListPartitionReassignments, API key 46, version 0 (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService

__all__ = ["handle"]

_Topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Partition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest, *, cluster: ClusterService
) -> ListPartitionReassignmentsResponse:
    """List partitions that replicas are being added to or removed from."""
    asked = (
        None if request.topics is None else {topic.name: frozenset(topic.partition_indexes) for topic in request.topics}
    )
    topics = []
    for topic in cluster.image.topics.all():
        if asked is not None and topic.name not in asked:
            continue
        partitions = [
            _Partition(
                partition_index=index,
                replicas=partition.replicas,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
            )
            for index, partition in sorted(topic.partitions.items())
            if (partition.adding_replicas or partition.removing_replicas)
            and (asked is None or index in asked[topic.name])
        ]
        if partitions:
            topics.append(_Topic(name=topic.name, partitions=partitions))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
