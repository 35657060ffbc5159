"""Vote (52): a vote, or from version 2 on the question whether one would be granted (KIP-595, KIP-853, KIP-996)."""

from __future__ import annotations

from typing import Any, Final

from kraftlog.raft import messages as raft
from kraftlog.runtime.raft.codec import election_response
from kraftlog.runtime.raft.codec.raft_codec import Answering, RaftCodec
from kraftlog.runtime.raft.codec.shared_fields import asked_partition, optional_key
from kraftlog.types import Epoch, LogTopic, NodeId, Offset, ReplicaKey
from kraftlog.wire.messages.vote import VoteRequest, VoteResponse
from kraftlog.wire.struct import Message

__all__ = ["CODEC"]

_PRE_VOTE_FROM: Final = 2


def lowest_version(request: raft.VoteRequest) -> int:
    """A version without pre-votes would make a real one of it."""
    return _PRE_VOTE_FROM if request.pre_vote else 0


def to_wire_request(request: raft.VoteRequest, version: int, topic: LogTopic) -> VoteRequest:
    """The directory ids came with version 1."""
    fields: dict[str, Any] = {}
    voter_id: dict[str, Any] = {}
    voter = request.voter_key
    if version >= 1:
        fields["replica_directory_id"] = request.replica_key.directory_id
        if voter is not None:
            fields["voter_directory_id"] = voter.directory_id
            voter_id["voter_id"] = voter.node_id
    partition = VoteRequest.PartitionData(
        partition_index=0,
        replica_epoch=request.replica_epoch,
        replica_id=request.replica_key.node_id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_epoch_end_offset,
        pre_vote=request.pre_vote,  # a version without it refuses to encode True
        **fields,
    )
    asked = VoteRequest.TopicData(topic_name=topic.name, partitions=(partition,))
    return VoteRequest(cluster_id=request.cluster_id, topics=(asked,), **voter_id)


def to_core_request(request: VoteRequest, _version: int, topic: LogTopic) -> raft.VoteRequest:
    """Fields that the version lacks have the schema's defaults."""
    partition = asked_partition(request.topics, topic)
    return raft.VoteRequest(
        cluster_id=request.cluster_id,
        voter_key=optional_key(request.voter_id, partition.voter_directory_id),
        replica_key=ReplicaKey(NodeId(partition.replica_id), partition.replica_directory_id),
        replica_epoch=Epoch(partition.replica_epoch),
        last_epoch=Epoch(partition.last_offset_epoch),
        last_epoch_end_offset=Offset(partition.last_offset),
        pre_vote=partition.pre_vote,
    )


def to_wire_response(response: raft.VoteResponse, answering: Answering) -> Message:
    """The vote, and the leader that the voter knows."""
    return election_response.to_wire(VoteResponse, response, answering, vote_granted=response.vote_granted)


def to_core_response(response: VoteResponse, listener_name: str, topic: LogTopic) -> raft.Response:
    """The vote, and the leader that the voter knows."""
    return election_response.to_core(raft.VoteResponse, response, listener_name, topic, own_fields=("vote_granted",))


CODEC: Final = RaftCodec(
    api_key=VoteRequest.API_KEY,
    core_request=raft.VoteRequest,
    core_response=raft.VoteResponse,
    wire_request=VoteRequest,
    wire_response=VoteResponse,
    to_wire_request=to_wire_request,
    to_core_response=to_core_response,
    to_core_request=to_core_request,
    to_wire_response=to_wire_response,
    lowest_version=lowest_version,
)
