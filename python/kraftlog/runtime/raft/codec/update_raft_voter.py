"""UpdateRaftVoter (82): a voter tells the leader where it listens and which kraft.version levels it runs (KIP-853)."""

from __future__ import annotations

from typing import Final

from kraftlog.raft import messages as raft
from kraftlog.raft.voter_set import Endpoint
from kraftlog.runtime.raft.codec.raft_codec import Answering, RaftCodec
from kraftlog.runtime.raft.codec.shared_fields import (
    endpoints_of,
    leader_endpoint,
    node_or_none,
    node_or_unknown,
    wire_endpoints,
)
from kraftlog.types import Epoch, LogTopic, NodeId, ReplicaKey
from kraftlog.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse

__all__ = ["CODEC"]


def to_wire_request(request: raft.UpdateVoterRequest, _version: int, _topic: LogTopic) -> UpdateRaftVoterRequest:
    """Tell the leader about this voter."""
    return UpdateRaftVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.current_leader_epoch,
        voter_id=request.voter_key.node_id,
        voter_directory_id=request.voter_key.directory_id,
        listeners=wire_endpoints(UpdateRaftVoterRequest.Listener, request.endpoints),
        k_raft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=request.min_kraft_version, max_supported_version=request.max_kraft_version
        ),
    )


def to_core_request(request: UpdateRaftVoterRequest, _version: int, _topic: LogTopic) -> raft.UpdateVoterRequest:
    """What a voter tells."""
    feature = request.k_raft_version_feature
    return raft.UpdateVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=Epoch(request.current_leader_epoch),
        voter_key=ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
        min_kraft_version=feature.min_supported_version,
        max_kraft_version=feature.max_supported_version,
        endpoints=endpoints_of(request.listeners),
    )


def to_wire_response(response: raft.UpdateVoterResponse, answering: Answering) -> UpdateRaftVoterResponse:
    """How it ended, and the leader."""
    leader = leader_endpoint(response, answering.listener_name)
    return UpdateRaftVoterResponse(
        error_code=response.top_level_error_code,
        current_leader=UpdateRaftVoterResponse.CurrentLeader(
            leader_id=node_or_unknown(response.leader_id),
            leader_epoch=response.leader_epoch,
            host="" if leader is None else leader.host,
            port=0 if leader is None else leader.port,
        ),
    )


def to_core_response(
    response: UpdateRaftVoterResponse, listener_name: str, _topic: LogTopic
) -> raft.UpdateVoterResponse:
    """How it ended, and the leader."""
    leader = response.current_leader
    has_endpoint = leader.leader_id >= 0 and leader.host and leader.port
    return raft.UpdateVoterResponse(
        top_level_error_code=response.error_code,
        leader_id=node_or_none(leader.leader_id),
        leader_epoch=Epoch(max(leader.leader_epoch, 0)),
        leader_endpoints=(Endpoint(listener_name, leader.host, leader.port),) if has_endpoint else (),
    )


CODEC: Final = RaftCodec(
    api_key=UpdateRaftVoterRequest.API_KEY,
    core_request=raft.UpdateVoterRequest,
    core_response=raft.UpdateVoterResponse,
    wire_request=UpdateRaftVoterRequest,
    wire_response=UpdateRaftVoterResponse,
    to_wire_request=to_wire_request,
    to_core_response=to_core_response,
    to_core_request=to_core_request,
    to_wire_response=to_wire_response,
)
