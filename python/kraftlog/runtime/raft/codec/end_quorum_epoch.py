"""EndQuorumEpoch (54): a leader resigns and names those it prefers as the next one (KIP-595, KIP-853)."""

from __future__ import annotations

from typing import Any, Final

from kraftlog.raft import messages as raft
from kraftlog.runtime.raft.codec import election_response
from kraftlog.runtime.raft.codec.raft_codec import Answering, RaftCodec
from kraftlog.runtime.raft.codec.shared_fields import asked_partition, check_count, distinct_endpoints, wire_endpoints
from kraftlog.types import Epoch, LogTopic, NodeId, ReplicaKey
from kraftlog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlog.wire.struct import Message

__all__ = ["CODEC"]


def to_wire_request(request: raft.EndQuorumEpochRequest, version: int, topic: LogTopic) -> EndQuorumEpochRequest:
    """Version 0 names successors by id, later ones candidates by id and directory."""
    more: dict[str, Any] = {}
    if version == 0:
        preferred: dict[str, Any] = {
            "preferred_successors": [
                preferred_candidate.node_id for preferred_candidate in request.preferred_candidates
            ]
        }
    else:
        preferred = {
            "preferred_candidates": [
                EndQuorumEpochRequest.ReplicaInfo(
                    candidate_id=preferred_candidate.node_id, candidate_directory_id=preferred_candidate.directory_id
                )
                for preferred_candidate in request.preferred_candidates
            ]
        }
        more["leader_endpoints"] = wire_endpoints(EndQuorumEpochRequest.LeaderEndpoint, request.leader_endpoints)
    partition = EndQuorumEpochRequest.PartitionData(
        partition_index=0, leader_id=request.leader_id, leader_epoch=request.leader_epoch, **preferred
    )
    asked = EndQuorumEpochRequest.TopicData(topic_name=topic.name, partitions=(partition,))
    return EndQuorumEpochRequest(cluster_id=request.cluster_id, topics=(asked,), **more)


def to_core_request(request: EndQuorumEpochRequest, version: int, topic: LogTopic) -> raft.EndQuorumEpochRequest:
    """Version 0 names successors by id, later ones candidates by id and directory."""
    partition = asked_partition(request.topics, topic)
    check_count(partition.preferred_successors)
    check_count(partition.preferred_candidates)
    preferred = (
        [ReplicaKey(NodeId(preferred_successor)) for preferred_successor in partition.preferred_successors]
        if version == 0
        else [
            ReplicaKey(NodeId(preferred_candidate.candidate_id), preferred_candidate.candidate_directory_id)
            for preferred_candidate in partition.preferred_candidates
        ]
    )
    return raft.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        leader_id=NodeId(partition.leader_id),
        leader_epoch=Epoch(partition.leader_epoch),
        leader_endpoints=distinct_endpoints(request.leader_endpoints),
        preferred_candidates=tuple(preferred),
    )


def to_wire_response(response: raft.EndQuorumEpochResponse, answering: Answering) -> Message:
    """The leader that the voter knows."""
    return election_response.to_wire(EndQuorumEpochResponse, response, answering)


def to_core_response(response: EndQuorumEpochResponse, listener_name: str, topic: LogTopic) -> raft.Response:
    """The leader that the voter knows."""
    return election_response.to_core(raft.EndQuorumEpochResponse, response, listener_name, topic)


CODEC: Final = RaftCodec(
    api_key=EndQuorumEpochRequest.API_KEY,
    core_request=raft.EndQuorumEpochRequest,
    core_response=raft.EndQuorumEpochResponse,
    wire_request=EndQuorumEpochRequest,
    wire_response=EndQuorumEpochResponse,
    to_wire_request=to_wire_request,
    to_core_response=to_core_response,
    to_core_request=to_core_request,
    to_wire_response=to_wire_response,
)
