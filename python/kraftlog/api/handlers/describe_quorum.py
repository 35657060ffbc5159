"""DescribeQuorum, API key 55, versions 0-2 (KIP-595).

1   last fetch and caught-up times of each replica (KIP-836)
2   directory ids, error texts and the voters' listeners (KIP-853)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.vocabulary import CLUSTER_METADATA_TOPIC, NOT_HOSTED
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import RaftService
    from kraftlog.runtime.metadata.quorum_info import QuorumInfo, ReplicaInfo

__all__ = ["handle"]

TIMES_FROM, DIRECTORIES_FROM = 1, 2
_NOT_LEADER = (
    "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
    "For requests intended for any replica, this error indicates that the broker is not a replica of the "
    "topic partition."
)


@sliced
def handle(
    context: RequestContext, request: DescribeQuorumRequest, *, raft: RaftService
) -> Slices[DescribeQuorumResponse]:
    """Report leader, high watermark and replicas of the metadata partition."""
    version = context.api_version
    if not _asks_for_metadata_partition(request):
        return (yield from _failed(request, version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED))
    if not raft.is_leader:
        return (yield from _failed(request, version, ErrorCode.NOT_LEADER_OR_FOLLOWER, _NOT_LEADER))
    quorum = raft.describe_quorum()
    partition = DescribeQuorumResponse.PartitionData(
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_replica(replica, version) for replica in quorum.voters],
        observers=[_replica(replica, version) for replica in quorum.observers],
    )
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponse.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        nodes=_nodes(quorum) if version >= DIRECTORIES_FROM else (),
    )


def _asks_for_metadata_partition(request: DescribeQuorumRequest) -> bool:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    (topic,) = request.topics
    return topic.topic_name == CLUSTER_METADATA_TOPIC and topic.partitions[0].partition_index == 0


def _failed(
    request: DescribeQuorumRequest, version: int, error_code: int, message: str
) -> Slices[DescribeQuorumResponse]:
    topics = []
    for number, topic in enumerate(request.topics, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        partitions = yield from in_slices(
            DescribeQuorumResponse.PartitionData(
                partition_index=partition.partition_index,
                error_code=error_code,
                error_message=message if version >= DIRECTORIES_FROM else None,
            )
            for partition in topic.partitions
        )
        topics.append(DescribeQuorumResponse.TopicData(topic_name=topic.topic_name, partitions=partitions))
    return DescribeQuorumResponse(topics=topics)


def _replica(replica: ReplicaInfo, version: int) -> DescribeQuorumResponse.ReplicaState:
    optional: dict[str, Any] = {}
    if version >= TIMES_FROM:
        optional["last_fetch_timestamp"] = replica.last_fetch_timestamp
        optional["last_caught_up_timestamp"] = replica.last_caught_up_timestamp
    if version >= DIRECTORIES_FROM:
        optional["replica_directory_id"] = replica.directory_id
    return DescribeQuorumResponse.ReplicaState(
        replica_id=replica.replica_id, log_end_offset=replica.log_end_offset, **optional
    )


def _nodes(quorum: QuorumInfo) -> list[DescribeQuorumResponse.Node]:
    return [
        DescribeQuorumResponse.Node(
            node_id=voter.replica_id,
            listeners=[
                DescribeQuorumResponse.Listener(name=listener.name, host=listener.host, port=listener.port)
                for listener in voter.listeners
            ],
        )
        for voter in quorum.voters
    ]
