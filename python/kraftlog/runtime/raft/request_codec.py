"""What other replicas ask: from the wire to the core's requests, and the core's answers back to the wire.

Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), Fetch (1), FetchSnapshot (59), AddRaftVoter (80),
RemoveRaftVoter (81) and UpdateRaftVoter (82); fields that a version lacks have the schema's defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft import messages as raft
from kraftlog.raft.voter_set import Endpoint, find_endpoint, has_distinct_listeners
from kraftlog.types import METADATA_LOG, Epoch, LogTopic, NodeId, Offset, ReplicaKey, SnapshotId, Uuid
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftlog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftlog.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from kraftlog.wire.messages.vote import VoteRequest, VoteResponse
from kraftlog.wire.struct import Buffer, Message

__all__ = ["METADATA_TOPIC", "to_core_request", "to_wire_response"]

METADATA_TOPIC = METADATA_LOG.name
_NODE_ENDPOINTS_FROM = 17  # of Fetch, on the raft path (RPC-45)
# What Kafka's answers say where there is nothing more to say (RPC-41).
_DEFAULT_TEXTS: dict[int, str] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the "
        "topic partition."
    ),
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker is not available.",
    ErrorCode.DUPLICATE_VOTER: "The voter is already part of the set of voters.",
    ErrorCode.VOTER_NOT_FOUND: "The voter is not part of the set of voters.",
}
_SNAPSHOT_CHUNK_MAX_BYTES = 8 * 1024 * 1024  # whoever asks for more gets the rest with its next request


def to_core_request(request: Message, version: int, topic: LogTopic = METADATA_LOG) -> raft.Request:
    """The request free of versions.

    Raises:
        KafkaError: It does not ask about the one partition of ``topic``: INVALID_REQUEST, of FetchSnapshot
            UNKNOWN_TOPIC_OR_PARTITION.
    """
    match request:
        case VoteRequest():
            return _vote(request, topic)
        case BeginQuorumEpochRequest():
            partition = _only_partition(request.topics, topic)
            return raft.BeginQuorumEpochRequest(
                cluster_id=request.cluster_id,
                voter_key=_key(request.voter_id, partition.voter_directory_id),
                leader_id=NodeId(partition.leader_id),
                leader_epoch=Epoch(partition.leader_epoch),
                leader_endpoints=_endpoints(request.leader_endpoints),
            )
        case EndQuorumEpochRequest():
            partition = _only_partition(request.topics, topic)
            preferred = (
                [ReplicaKey(NodeId(one)) for one in partition.preferred_successors]
                if version == 0
                else [
                    ReplicaKey(NodeId(one.candidate_id), one.candidate_directory_id)
                    for one in partition.preferred_candidates
                ]
            )
            return raft.EndQuorumEpochRequest(
                cluster_id=request.cluster_id,
                leader_id=NodeId(partition.leader_id),
                leader_epoch=Epoch(partition.leader_epoch),
                leader_endpoints=_endpoints(request.leader_endpoints),
                preferred_candidates=tuple(preferred),
            )
        case FetchRequest():
            return _fetch(request, version, topic)
        case FetchSnapshotRequest():
            return _fetch_snapshot(request, topic)
        case AddRaftVoterRequest():
            return raft.AddVoterRequest(
                cluster_id=request.cluster_id,
                voter_key=ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
                endpoints=_listed(request.listeners),
                timeout_ms=request.timeout_ms,
                ack_when_committed=request.ack_when_committed,
            )
        case RemoveRaftVoterRequest():
            return raft.RemoveVoterRequest(
                cluster_id=request.cluster_id,
                voter_key=ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
            )
        case UpdateRaftVoterRequest():
            feature = request.k_raft_version_feature
            return raft.UpdateVoterRequest(
                cluster_id=request.cluster_id,
                current_leader_epoch=Epoch(request.current_leader_epoch),
                voter_key=ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
                min_kraft_version=feature.min_supported_version,
                max_kraft_version=feature.max_supported_version,
                endpoints=_listed(request.listeners),
            )
        case _:
            msg = f"{type(request).__name__} is no request of a replica"
            raise TypeError(msg)


def _vote(request: VoteRequest, topic: LogTopic) -> raft.VoteRequest:
    partition = _only_partition(request.topics, topic)
    return raft.VoteRequest(
        cluster_id=request.cluster_id,
        voter_key=_key(request.voter_id, partition.voter_directory_id),
        replica_key=ReplicaKey(NodeId(partition.replica_id), partition.replica_directory_id),
        replica_epoch=Epoch(partition.replica_epoch),
        last_epoch=Epoch(partition.last_offset_epoch),
        last_epoch_end_offset=Offset(partition.last_offset),
        pre_vote=partition.pre_vote,
    )


def _fetch(request: FetchRequest, version: int, topic: LogTopic) -> raft.FetchRequest:
    topics = request.topics
    is_metadata = (
        len(topics) == 1
        and topics[0].topic_id == topic.topic_id  # by name, before version 13, it is not found (FTCH-05)
        and [one.partition for one in topics[0].partitions] == [0]
    )
    if not is_metadata:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    partition = topics[0].partitions[0]
    replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
    return raft.FetchRequest(
        cluster_id=request.cluster_id,
        replica_key=_key(replica_id, partition.replica_directory_id),
        current_leader_epoch=Epoch(partition.current_leader_epoch),
        fetch_offset=Offset(partition.fetch_offset),
        last_fetched_epoch=Epoch(partition.last_fetched_epoch),
        max_wait_ms=request.max_wait_ms,
        max_bytes=max(0, request.max_bytes),  # whatever the partition's own limit says
        high_watermark=Offset(partition.high_watermark),
    )


def _fetch_snapshot(request: FetchSnapshotRequest, topic: LogTopic) -> raft.FetchSnapshotRequest:
    found = [one for each in request.topics if each.name == topic.name for one in each.partitions]
    partition = next((one for one in found if one.partition == 0), None)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return raft.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_key=_key(request.replica_id, partition.replica_directory_id),
        current_leader_epoch=Epoch(partition.current_leader_epoch),
        snapshot_id=SnapshotId(Offset(partition.snapshot_id.end_offset), Epoch(partition.snapshot_id.epoch)),
        position=partition.position,
        max_bytes=min(request.max_bytes, _SNAPSHOT_CHUNK_MAX_BYTES),
    )


def _only_partition(topics: Sequence[Any], topic: LogTopic) -> Any:
    if [(one.topic_name, [each.partition_index for each in one.partitions]) for one in topics] != [(topic.name, [0])]:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return topics[0].partitions[0]


def _key(node_id: int, directory_id: Uuid) -> ReplicaKey | None:
    return None if node_id < 0 else ReplicaKey(NodeId(node_id), directory_id)


def _endpoints(listeners: Iterable[Any]) -> tuple[Endpoint, ...]:
    found = _listed(listeners)
    if not has_distinct_listeners(found):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a listener is named twice")
    return found


def _listed(listeners: Iterable[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(one.name, one.host, one.port) for one in listeners)


# Answers


def to_wire_response(
    response: raft.Response,
    *,
    version: int,
    listener_name: str,
    data: Buffer | None = None,
    topic: LogTopic = METADATA_LOG,
) -> Message:
    """The answer as ``version`` of its API has it.

    Args:
        response: What the core answers.
        version: Of the request.
        listener_name: The listener that was asked: of the leader's addresses this one is told.
        data: The records of a Fetch, or the bytes of a FetchSnapshot.
        topic: Of the log.
    """
    match response:
        case raft.VoteResponse() | raft.BeginQuorumEpochResponse() | raft.EndQuorumEpochResponse():
            return _election_response(response, version, listener_name, topic)
        case raft.FetchResponse():
            return _fetch_response(response, version, listener_name, data, topic)
        case raft.FetchSnapshotResponse():
            return _fetch_snapshot_response(response, version, listener_name, data, topic)
        case raft.AddVoterResponse():
            return AddRaftVoterResponse(error_code=response.top_level_error_code, error_message=_text(response))
        case raft.RemoveVoterResponse():
            return RemoveRaftVoterResponse(error_code=response.top_level_error_code, error_message=_text(response))
        case raft.UpdateVoterResponse():
            leader = _leader_endpoint(response, listener_name)
            return UpdateRaftVoterResponse(
                error_code=response.top_level_error_code,
                current_leader=UpdateRaftVoterResponse.CurrentLeader(
                    leader_id=_id(response.leader_id),
                    leader_epoch=response.leader_epoch,
                    host="" if leader is None else leader.host,
                    port=0 if leader is None else leader.port,
                ),
            )
        case raft.ApiVersionsResponse():
            msg = "ApiVersions is answered by its own handler"
            raise TypeError(msg)
        case _:
            assert_never(response)


def _election_response(
    response: raft.VoteResponse | raft.BeginQuorumEpochResponse | raft.EndQuorumEpochResponse,
    version: int,
    listener_name: str,
    topic: LogTopic,
) -> Message:
    kind: Any = {
        raft.VoteResponse: VoteResponse,
        raft.BeginQuorumEpochResponse: BeginQuorumEpochResponse,
        raft.EndQuorumEpochResponse: EndQuorumEpochResponse,
    }[type(response)]
    if response.top_level_error_code:
        wire: Message = kind(error_code=response.top_level_error_code)
        return wire
    fields: dict[str, Any] = {}
    if isinstance(response, raft.VoteResponse):
        fields["vote_granted"] = response.vote_granted
    partition = kind.PartitionData(
        partition_index=0,
        error_code=response.error_code,
        leader_id=_id(response.leader_id),
        leader_epoch=response.leader_epoch,
        **fields,
    )
    answer: Message = kind(
        topics=(kind.TopicData(topic_name=topic.name, partitions=(partition,)),),
        node_endpoints=_node_endpoints(kind, response, version, listener_name),
    )
    return answer


def _fetch_response(
    response: raft.FetchResponse, version: int, listener_name: str, data: Buffer | None, topic: LogTopic
) -> Message:
    if response.top_level_error_code:
        return FetchResponse(error_code=response.top_level_error_code)
    fields: dict[str, Any] = {}
    if response.diverging_epoch is not None:
        fields["diverging_epoch"] = FetchResponse.EpochEndOffset(
            epoch=response.diverging_epoch.epoch, end_offset=response.diverging_epoch.end_offset
        )
    if response.snapshot_id is not None:
        fields["snapshot_id"] = FetchResponse.SnapshotId(
            end_offset=response.snapshot_id.end_offset, epoch=response.snapshot_id.epoch
        )
    partition = FetchResponse.PartitionData(
        partition_index=0,
        error_code=response.error_code,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        current_leader=FetchResponse.LeaderIdAndEpoch(
            leader_id=_id(response.leader_id), leader_epoch=response.leader_epoch
        ),
        aborted_transactions=(),
        records=b"" if data is None else data,
        **fields,
    )
    endpoint = _leader_endpoint(response, listener_name) if version >= _NODE_ENDPOINTS_FROM else None
    endpoints = (
        ()
        if endpoint is None
        else (
            FetchResponse.NodeEndpoint(
                node_id=_id(response.leader_id), host=endpoint.host, port=endpoint.port, rack=None
            ),
        )
    )
    told = FetchResponse.FetchableTopicResponse(topic=topic.name, topic_id=topic.topic_id, partitions=(partition,))
    return FetchResponse(responses=(told,), node_endpoints=endpoints)


def _fetch_snapshot_response(
    response: raft.FetchSnapshotResponse, version: int, listener_name: str, data: Buffer | None, topic: LogTopic
) -> Message:
    if response.top_level_error_code:
        return FetchSnapshotResponse(error_code=response.top_level_error_code)
    fields: dict[str, Any] = {}
    if response.snapshot_id is not None:
        fields["snapshot_id"] = FetchSnapshotResponse.SnapshotId(
            end_offset=response.snapshot_id.end_offset, epoch=response.snapshot_id.epoch
        )
        fields["size"] = response.size_bytes
        fields["position"] = response.position
    partition = FetchSnapshotResponse.PartitionSnapshot(
        index=0,
        error_code=response.error_code,
        current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(
            leader_id=_id(response.leader_id), leader_epoch=response.leader_epoch
        ),
        unaligned_records=b"" if data is None else data,
        **fields,
    )
    return FetchSnapshotResponse(
        topics=(FetchSnapshotResponse.TopicSnapshot(name=topic.name, partitions=(partition,)),),
        node_endpoints=_node_endpoints(FetchSnapshotResponse, response, version, listener_name),
    )


def _node_endpoints(kind: Any, response: Any, version: int, listener_name: str) -> tuple[Any, ...]:
    endpoint = _leader_endpoint(response, listener_name) if version >= 1 else None  # ENDP-12
    if endpoint is None:
        return ()
    return (kind.NodeEndpoint(node_id=_id(response.leader_id), host=endpoint.host, port=endpoint.port),)


def _leader_endpoint(response: Any, listener_name: str) -> Endpoint | None:
    return None if response.leader_id is None else find_endpoint(response.leader_endpoints, listener_name)


def _id(node_id: NodeId | None) -> int:
    return -1 if node_id is None else node_id


def _text(response: raft.AddVoterResponse | raft.RemoveVoterResponse) -> str | None:
    if not response.top_level_error_code or response.error_message == "":
        return None
    code = response.top_level_error_code
    return response.error_message or _DEFAULT_TEXTS.get(code, ErrorCode.name_of(code))
