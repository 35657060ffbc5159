"""RemoveRaftVoter (81): make a voter an observer (KIP-853)."""

from __future__ import annotations

from typing import Final

from kraftlog.raft import messages as raft
from kraftlog.runtime.raft.codec.raft_codec import Answering, RaftCodec
from kraftlog.runtime.raft.codec.shared_fields import text_of
from kraftlog.types import LogTopic, NodeId, ReplicaKey
from kraftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

__all__ = ["CODEC"]


def to_wire_request(request: raft.RemoveVoterRequest, _version: int, _topic: LogTopic) -> RemoveRaftVoterRequest:
    """Ask the leader for this replica."""
    return RemoveRaftVoterRequest(
        cluster_id=request.cluster_id,
        voter_id=request.voter_key.node_id,
        voter_directory_id=request.voter_key.directory_id,
    )


def to_core_request(request: RemoveRaftVoterRequest, _version: int, _topic: LogTopic) -> raft.RemoveVoterRequest:
    """What an operator or another replica asks."""
    return raft.RemoveVoterRequest(
        cluster_id=request.cluster_id,
        voter_key=ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
    )


def to_wire_response(response: raft.RemoveVoterResponse, _answering: Answering) -> RemoveRaftVoterResponse:
    """How it ended."""
    return RemoveRaftVoterResponse(error_code=response.top_level_error_code, error_message=text_of(response))


def to_core_response(
    response: RemoveRaftVoterResponse, _listener_name: str, _topic: LogTopic
) -> raft.RemoveVoterResponse:
    """How it ended."""
    return raft.RemoveVoterResponse(top_level_error_code=response.error_code, error_message=response.error_message)


CODEC: Final = RaftCodec(
    api_key=RemoveRaftVoterRequest.API_KEY,
    core_request=raft.RemoveVoterRequest,
    core_response=raft.RemoveVoterResponse,
    wire_request=RemoveRaftVoterRequest,
    wire_response=RemoveRaftVoterResponse,
    to_wire_request=to_wire_request,
    to_core_response=to_core_response,
    to_core_request=to_core_request,
    to_wire_response=to_wire_response,
)
