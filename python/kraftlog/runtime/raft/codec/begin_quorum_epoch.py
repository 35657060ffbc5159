"""BeginQuorumEpoch (53): a leader announces its epoch to a voter (KIP-595, KIP-853)."""

from __future__ import annotations

from typing import Any, Final

from kraftlog.raft import messages as raft
from kraftlog.runtime.raft.codec import election_response
from kraftlog.runtime.raft.codec.raft_codec import Answering, RaftCodec
from kraftlog.runtime.raft.codec.shared_fields import (
    asked_partition,
    distinct_endpoints,
    optional_key,
    wire_endpoints,
)
from kraftlog.types import Epoch, LogTopic, NodeId
from kraftlog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlog.wire.struct import Message

__all__ = ["CODEC"]


def to_wire_request(request: raft.BeginQuorumEpochRequest, version: int, topic: LogTopic) -> BeginQuorumEpochRequest:
    """The voter's key and the leader's addresses came with version 1."""
    fields: dict[str, Any] = {}
    more: dict[str, Any] = {}
    voter = request.voter_key
    if version >= 1:
        more["leader_endpoints"] = wire_endpoints(BeginQuorumEpochRequest.LeaderEndpoint, request.leader_endpoints)
        if voter is not None:
            fields["voter_directory_id"] = voter.directory_id
            more["voter_id"] = voter.node_id
    partition = BeginQuorumEpochRequest.PartitionData(
        partition_index=0, leader_id=request.leader_id, leader_epoch=request.leader_epoch, **fields
    )
    asked = BeginQuorumEpochRequest.TopicData(topic_name=topic.name, partitions=(partition,))
    return BeginQuorumEpochRequest(cluster_id=request.cluster_id, topics=(asked,), **more)


def to_core_request(request: BeginQuorumEpochRequest, _version: int, topic: LogTopic) -> raft.BeginQuorumEpochRequest:
    """Fields that the version lacks have the schema's defaults."""
    partition = asked_partition(request.topics, topic)
    return raft.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_key=optional_key(request.voter_id, partition.voter_directory_id),
        leader_id=NodeId(partition.leader_id),
        leader_epoch=Epoch(partition.leader_epoch),
        leader_endpoints=distinct_endpoints(request.leader_endpoints),
    )


def to_wire_response(response: raft.BeginQuorumEpochResponse, answering: Answering) -> Message:
    """The leader that the voter knows."""
    return election_response.to_wire(BeginQuorumEpochResponse, response, answering)


def to_core_response(response: BeginQuorumEpochResponse, listener_name: str, topic: LogTopic) -> raft.Response:
    """The leader that the voter knows."""
    return election_response.to_core(raft.BeginQuorumEpochResponse, response, listener_name, topic)


CODEC: Final = RaftCodec(
    api_key=BeginQuorumEpochRequest.API_KEY,
    core_request=raft.BeginQuorumEpochRequest,
    core_response=raft.BeginQuorumEpochResponse,
    wire_request=BeginQuorumEpochRequest,
    wire_response=BeginQuorumEpochResponse,
    to_wire_request=to_wire_request,
    to_core_response=to_core_response,
    to_core_request=to_core_request,
    to_wire_response=to_wire_response,
)
