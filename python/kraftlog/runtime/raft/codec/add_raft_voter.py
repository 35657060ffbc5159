"""AddRaftVoter (80): make a replica a voter (KIP-853); from version 1 on an answer before the commit can be had."""

from __future__ import annotations

from typing import Final

from kraftlog.raft import messages as raft
from kraftlog.runtime.raft.codec.raft_codec import Answering, RaftCodec
from kraftlog.runtime.raft.codec.shared_fields import endpoints_of, text_of, wire_endpoints
from kraftlog.types import LogTopic, NodeId, ReplicaKey
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

__all__ = ["CODEC"]


def lowest_version(request: raft.AddVoterRequest) -> int:
    """Version 0 is always answered after the commit."""
    return 0 if request.ack_when_committed else 1


def to_wire_request(request: raft.AddVoterRequest, _version: int, _topic: LogTopic) -> AddRaftVoterRequest:
    """Ask the leader for this replica."""
    return AddRaftVoterRequest(
        cluster_id=request.cluster_id,
        timeout_ms=request.timeout_ms,
        voter_id=request.voter_key.node_id,
        voter_directory_id=request.voter_key.directory_id,
        listeners=wire_endpoints(AddRaftVoterRequest.Listener, request.endpoints),
        ack_when_committed=request.ack_when_committed,
    )


def to_core_request(request: AddRaftVoterRequest, _version: int, _topic: LogTopic) -> raft.AddVoterRequest:
    """What an operator or another replica asks."""
    return raft.AddVoterRequest(
        cluster_id=request.cluster_id,
        voter_key=ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
        endpoints=endpoints_of(request.listeners),
        timeout_ms=request.timeout_ms,
        ack_when_committed=request.ack_when_committed,
    )


def to_wire_response(response: raft.AddVoterResponse, _answering: Answering) -> AddRaftVoterResponse:
    """How it ended."""
    return AddRaftVoterResponse(error_code=response.top_level_error_code, error_message=text_of(response))


def to_core_response(response: AddRaftVoterResponse, _listener_name: str, _topic: LogTopic) -> raft.AddVoterResponse:
    """How it ended."""
    return raft.AddVoterResponse(top_level_error_code=response.error_code, error_message=response.error_message)


CODEC: Final = RaftCodec(
    api_key=AddRaftVoterRequest.API_KEY,
    core_request=raft.AddVoterRequest,
    core_response=raft.AddVoterResponse,
    wire_request=AddRaftVoterRequest,
    wire_response=AddRaftVoterResponse,
    to_wire_request=to_wire_request,
    to_core_response=to_core_response,
    to_core_request=to_core_request,
    to_wire_response=to_wire_response,
    lowest_version=lowest_version,
)
