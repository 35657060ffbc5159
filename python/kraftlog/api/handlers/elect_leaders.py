"""ElectLeaders, API key 43, versions 0-2 (KIP-183, KIP-460).

    1   unclean elections

Answers for partitions whose leader need not change, or cannot; a change of leader between live brokers is not made yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService
    from kraftlog.controller.image import MetadataImage
    from kraftlog.controller.topic_image import PartitionImage

__all__ = ["handle"]

PREFERRED, UNCLEAN = 0, 1

_NOT_NEEDED = "Leader election not needed for topic partition."

_Outcome = tuple[int, str | None]


def handle(context: RequestContext, request: ElectLeadersRequest, *, cluster: ClusterService) -> ElectLeadersResponse:
    """Say for each partition why its leader stays; asked about all, only those where something is wrong."""
    image = cluster.image
    if request.election_type not in {PREFERRED, UNCLEAN}:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.topic_partitions is None:
        asked = {topic.name: sorted(topic.partitions) for topic in image.topics.all()}
    else:
        asked = {
            topic_partition.topic: list(topic_partition.partitions) for topic_partition in request.topic_partitions
        }
    results = []
    for name, indexes in asked.items():
        outcomes = []
        for index in indexes:
            code, message = _outcome(image, name, index, request.election_type)
            if request.topic_partitions is None and code == ErrorCode.ELECTION_NOT_NEEDED:
                continue
            outcomes.append(
                ElectLeadersResponse.PartitionResult(partition_id=index, error_code=code, error_message=message)
            )
        results.append(ElectLeadersResponse.ReplicaElectionResult(topic=name, partition_result=outcomes))
    return ElectLeadersResponse(replica_election_results=results)


def _outcome(image: MetadataImage, name: str, index: int, election_type: int) -> _Outcome:
    topic = image.topics.by_name(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    return _election(image, partition, election_type)


def _election(image: MetadataImage, partition: PartitionImage, election_type: int) -> _Outcome:
    if election_type == UNCLEAN:
        if partition.has_leader:
            return ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED
    if preferred not in partition.isr or not image.cluster.is_active(preferred):
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None
    return ErrorCode.UNSUPPORTED_VERSION, "This controller does not move leadership on demand."
