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
    asked = None if request.topics is None else {one.name: frozenset(one.partition_indexes) for one in request.topics}
    topics = []
    for topic in cluster.image.topics.all():
        if asked is not None and topic.name not in asked:
            continue
        partitions = [
            _Partition(
                partition_index=index,
                replicas=one.replicas,
                adding_replicas=one.adding_replicas,
                removing_replicas=one.removing_replicas,
            )
            for index, one in sorted(topic.partitions.items())
            if (one.adding_replicas or one.removing_replicas) and (asked is None or index in asked[topic.name])
        ]
        if partitions:
            topics.append(_Topic(name=topic.name, partitions=partitions))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
