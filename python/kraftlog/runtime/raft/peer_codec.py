"""What this replica asks others: from the core's requests to the wire, and the answers back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from kraftlog._kraftlog import read_batches
from kraftlog.errors import RemoteProtocolError
from kraftlog.features import KRAFT_VERSION
from kraftlog.raft import messages as raft
from kraftlog.raft.messages import ControlRecord, KRaftVersionChange, VotersChange
from kraftlog.raft.voter_set import Endpoint
from kraftlog.runtime.raft.control_records import from_voters_record
from kraftlog.transport.rpc_client import SOFTWARE_NAME, software_version
from kraftlog.types import METADATA_LOG, Epoch, EpochEndOffset, LogTopic, NodeId, Offset, ReplicaKey, SnapshotId, Uuid
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlog.wire.messages.control_records import KRaftVersionRecord, VotersRecord
from kraftlog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftlog.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from kraftlog.wire.messages.vote import VoteRequest, VoteResponse
from kraftlog.wire.records import decode_control_record
from kraftlog.wire.struct import Message

__all__ = ["lowest_version", "to_core_response", "to_wire_request"]

_PRE_VOTE_FROM = 2
_LOWEST_FETCH = 13  # the first one that has topic ids


def lowest_version(request: raft.Request) -> int:
    """The lowest version that can say what ``request`` says (RPC-39)."""
    match request:
        case raft.VoteRequest(pre_vote=True):
            return _PRE_VOTE_FROM
        case raft.FetchRequest():
            return _LOWEST_FETCH
        case raft.AddVoterRequest(ack_when_committed=False):
            return 1
        case _:
            return 0


def to_wire_request(request: raft.Request, version: int, topic: LogTopic = METADATA_LOG) -> Message:
    """The request as ``version`` of its API has it.

    Args:
        request: What the core asks.
        version: At least ``lowest_version(request)``.
        topic: Of the log.
    """
    match request:
        case raft.VoteRequest():
            return _vote(request, version, topic)
        case raft.BeginQuorumEpochRequest():
            return _begin_quorum_epoch(request, version, topic)
        case raft.EndQuorumEpochRequest():
            return _end_quorum_epoch(request, version, topic)
        case raft.FetchRequest():
            return _fetch(request, version, topic)
        case raft.FetchSnapshotRequest():
            return _fetch_snapshot(request, version, topic)
        case raft.AddVoterRequest():
            return AddRaftVoterRequest(
                cluster_id=request.cluster_id,
                timeout_ms=request.timeout_ms,
                voter_id=request.voter_key.node_id,
                voter_directory_id=request.voter_key.directory_id,
                listeners=_listeners(AddRaftVoterRequest.Listener, request.endpoints),
                ack_when_committed=request.ack_when_committed,
            )
        case raft.RemoveVoterRequest():
            return RemoveRaftVoterRequest(
                cluster_id=request.cluster_id,
                voter_id=request.voter_key.node_id,
                voter_directory_id=request.voter_key.directory_id,
            )
        case raft.UpdateVoterRequest():
            return UpdateRaftVoterRequest(
                cluster_id=request.cluster_id,
                current_leader_epoch=request.current_leader_epoch,
                voter_id=request.voter_key.node_id,
                voter_directory_id=request.voter_key.directory_id,
                listeners=_listeners(UpdateRaftVoterRequest.Listener, request.endpoints),
                k_raft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
                    min_supported_version=request.min_kraft_version, max_supported_version=request.max_kraft_version
                ),
            )
        case raft.ApiVersionsRequest():
            return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=software_version())
        case _:
            assert_never(request)


def _vote(request: raft.VoteRequest, version: int, topic: LogTopic) -> VoteRequest:
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
        pre_vote=request.pre_vote,  # a version without it refuses to encode True (RPC-39)
        **fields,
    )
    asked = VoteRequest.TopicData(topic_name=topic.name, partitions=(partition,))
    return VoteRequest(cluster_id=request.cluster_id, topics=(asked,), **voter_id)


def _begin_quorum_epoch(
    request: raft.BeginQuorumEpochRequest, version: int, topic: LogTopic
) -> BeginQuorumEpochRequest:
    fields: dict[str, Any] = {}
    more: dict[str, Any] = {}
    voter = request.voter_key
    if version >= 1:
        more["leader_endpoints"] = _listeners(BeginQuorumEpochRequest.LeaderEndpoint, request.leader_endpoints)
        if voter is not None:
            fields["voter_directory_id"] = voter.directory_id
            more["voter_id"] = voter.node_id
    partition = BeginQuorumEpochRequest.PartitionData(
        partition_index=0, leader_id=request.leader_id, leader_epoch=request.leader_epoch, **fields
    )
    asked = BeginQuorumEpochRequest.TopicData(topic_name=topic.name, partitions=(partition,))
    return BeginQuorumEpochRequest(cluster_id=request.cluster_id, topics=(asked,), **more)


def _end_quorum_epoch(request: raft.EndQuorumEpochRequest, version: int, topic: LogTopic) -> EndQuorumEpochRequest:
    more: dict[str, Any] = {}
    if version == 0:
        preferred: dict[str, Any] = {"preferred_successors": [one.node_id for one in request.preferred_candidates]}
    else:
        preferred = {
            "preferred_candidates": [
                EndQuorumEpochRequest.ReplicaInfo(candidate_id=one.node_id, candidate_directory_id=one.directory_id)
                for one in request.preferred_candidates
            ]
        }
        more["leader_endpoints"] = _listeners(EndQuorumEpochRequest.LeaderEndpoint, request.leader_endpoints)
    partition = EndQuorumEpochRequest.PartitionData(
        partition_index=0, leader_id=request.leader_id, leader_epoch=request.leader_epoch, **preferred
    )
    asked = EndQuorumEpochRequest.TopicData(topic_name=topic.name, partitions=(partition,))
    return EndQuorumEpochRequest(cluster_id=request.cluster_id, topics=(asked,), **more)


def _fetch(request: raft.FetchRequest, version: int, topic: LogTopic) -> FetchRequest:
    key = request.replica_key or ReplicaKey(NodeId(-1))
    fields: dict[str, Any] = {}
    if version >= 17:
        fields["replica_directory_id"] = key.directory_id
    if version >= 18:
        fields["high_watermark"] = request.high_watermark
    partition = FetchRequest.FetchPartition(
        partition=0,
        current_leader_epoch=request.current_leader_epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        log_start_offset=-1,
        partition_max_bytes=0,  # as Kafka's replicas say; the request's limit counts
        **fields,
    )
    asked = FetchRequest.FetchTopic(topic_id=topic.topic_id, partitions=(partition,))
    replica: dict[str, Any] = (
        {"replica_state": FetchRequest.ReplicaState(replica_id=key.node_id, replica_epoch=-1)}
        if version >= 15
        else {"replica_id": key.node_id}
    )
    return FetchRequest(
        cluster_id=request.cluster_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=0,
        max_bytes=request.max_bytes,
        topics=(asked,),
        **replica,
    )


def _fetch_snapshot(request: raft.FetchSnapshotRequest, version: int, topic: LogTopic) -> FetchSnapshotRequest:
    key = request.replica_key or ReplicaKey(NodeId(-1))
    partition = FetchSnapshotRequest.PartitionSnapshot(
        partition=0,
        current_leader_epoch=request.current_leader_epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(
            end_offset=request.snapshot_id.end_offset, epoch=request.snapshot_id.epoch
        ),
        position=request.position,
        replica_directory_id=key.directory_id if version >= 1 else Uuid.ZERO,
    )
    asked = FetchSnapshotRequest.TopicSnapshot(name=topic.name, partitions=(partition,))
    return FetchSnapshotRequest(
        cluster_id=request.cluster_id, replica_id=key.node_id, max_bytes=request.max_bytes, topics=(asked,)
    )


def _listeners(kind: Any, endpoints: Iterable[Endpoint]) -> tuple[Any, ...]:
    return tuple(kind(name=one.name, host=one.host, port=one.port) for one in endpoints)


# Answers


def to_core_response(response: Message, *, listener_name: str, topic: LogTopic = METADATA_LOG) -> raft.Response:
    """The answer free of versions; an address in it is that of ``listener_name``.

    Raises:
        RemoteProtocolError: Not the one partition that was asked about.
        CorruptRecordError: The records have a wrong checksum, or are none.
    """
    match response:
        case VoteResponse() | BeginQuorumEpochResponse() | EndQuorumEpochResponse():
            return _election_response(response, listener_name, topic)
        case FetchResponse():
            return _fetch_response(response, listener_name, topic)
        case FetchSnapshotResponse():
            return _fetch_snapshot_response(response, listener_name, topic)
        case AddRaftVoterResponse():
            return raft.AddVoterResponse(top_level_error_code=response.error_code, error_message=response.error_message)
        case RemoveRaftVoterResponse():
            return raft.RemoveVoterResponse(
                top_level_error_code=response.error_code, error_message=response.error_message
            )
        case UpdateRaftVoterResponse():
            leader = response.current_leader
            has_endpoint = leader.leader_id >= 0 and leader.host and leader.port
            return raft.UpdateVoterResponse(
                top_level_error_code=response.error_code,
                leader_id=_node(leader.leader_id),
                leader_epoch=Epoch(max(leader.leader_epoch, 0)),
                leader_endpoints=(Endpoint(listener_name, leader.host, leader.port),) if has_endpoint else (),
            )
        case ApiVersionsResponse():
            found = next((one for one in response.supported_features if one.name == KRAFT_VERSION), None)
            return raft.ApiVersionsResponse(
                top_level_error_code=response.error_code,
                min_kraft_version=None if found is None else found.min_version,
                max_kraft_version=None if found is None else found.max_version,
            )
        case _:
            msg = f"{type(response).__name__} answers no request of a replica"
            raise TypeError(msg)


def _election_response(response: Any, listener_name: str, topic: LogTopic) -> raft.Response:
    kind: Any = {
        VoteResponse: raft.VoteResponse,
        BeginQuorumEpochResponse: raft.BeginQuorumEpochResponse,
        EndQuorumEpochResponse: raft.EndQuorumEpochResponse,
    }[type(response)]
    if response.error_code:
        refused: raft.Response = kind(top_level_error_code=response.error_code)
        return refused
    partition = _partition(response, topic, [(one.topic_name, one.partitions) for one in response.topics])
    fields: dict[str, Any] = {}
    if isinstance(response, VoteResponse):
        fields["vote_granted"] = partition.vote_granted
    answer: raft.Response = kind(
        error_code=partition.error_code,
        **_leader(partition.leader_id, partition.leader_epoch, response.node_endpoints, listener_name),
        **fields,
    )
    return answer


def _fetch_response(response: FetchResponse, listener_name: str, topic: LogTopic) -> raft.FetchResponse:
    if response.error_code:
        return raft.FetchResponse(top_level_error_code=response.error_code)
    partition = _partition(response, topic, [(topic.name, one.partitions) for one in response.responses])
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    leader = partition.current_leader
    has_diverging = diverging.epoch >= 0 or diverging.end_offset >= 0
    has_snapshot = snapshot.epoch >= 0 or snapshot.end_offset >= 0
    return raft.FetchResponse(
        error_code=partition.error_code,
        high_watermark=Offset(partition.high_watermark),
        log_start_offset=Offset(partition.log_start_offset),
        diverging_epoch=EpochEndOffset(Epoch(diverging.epoch), Offset(diverging.end_offset)) if has_diverging else None,
        snapshot_id=SnapshotId(Offset(snapshot.end_offset), Epoch(snapshot.epoch)) if has_snapshot else None,
        batches=_batches(partition.records) if partition.records else (),
        **_leader(leader.leader_id, leader.leader_epoch, response.node_endpoints, listener_name),
    )


def _batches(records: Any) -> list[raft.FetchedBatch]:
    """The whole batches of an answer; a torn one at its end is left for the next fetch."""
    data = memoryview(records)
    batches: list[raft.FetchedBatch] = []
    for batch in read_batches(data):
        control = _control_records(batch) if batch.is_control else ()
        batches.append(
            raft.FetchedBatch(
                base_offset=Offset(batch.base_offset),
                last_offset=Offset(batch.last_offset),
                epoch=Epoch(batch.partition_leader_epoch),
                size_bytes=batch.size_bytes,
                control_records=control,
                payload=data[batch.position : batch.position + batch.size_bytes],
            )
        )
    return batches


def _control_records(batch: Any) -> tuple[tuple[Offset, ControlRecord], ...]:
    found: list[tuple[Offset, ControlRecord]] = []
    for offset, _, key, value, _ in batch.records():
        if key is None or value is None:
            msg = f"control record {offset} has no key or no value"
            raise RemoteProtocolError(msg)
        match decode_control_record(key, value)[1]:
            case KRaftVersionRecord() as record:
                found.append((Offset(offset), KRaftVersionChange(kraft_version=record.kraft_version)))
            case VotersRecord() as record:
                found.append((Offset(offset), VotersChange(voters=from_voters_record(record))))
            case _:
                pass
    return tuple(found)


def _fetch_snapshot_response(
    response: FetchSnapshotResponse, listener_name: str, topic: LogTopic
) -> raft.FetchSnapshotResponse:
    if response.error_code:
        return raft.FetchSnapshotResponse(top_level_error_code=response.error_code)
    partition = _partition(response, topic, [(one.name, one.partitions) for one in response.topics])
    snapshot = partition.snapshot_id
    leader = partition.current_leader
    payload = partition.unaligned_records or b""
    return raft.FetchSnapshotResponse(
        error_code=partition.error_code,
        snapshot_id=None if partition.error_code else SnapshotId(Offset(snapshot.end_offset), Epoch(snapshot.epoch)),
        size_bytes=partition.size,
        position=partition.position,
        chunk_bytes=len(memoryview(payload)),
        payload=payload,
        **_leader(leader.leader_id, leader.leader_epoch, response.node_endpoints, listener_name),
    )


def _partition(response: Message, topic: LogTopic, topics: Sequence[tuple[str, Sequence[Any]]]) -> Any:
    if len(topics) != 1 or topics[0][0] != topic.name or len(topics[0][1]) != 1:
        msg = f"a {type(response).__name__} without exactly the partition {topic.name}-0"
        raise RemoteProtocolError(msg)
    return topics[0][1][0]


def _leader(leader_id: int, leader_epoch: int, node_endpoints: Iterable[Any], listener_name: str) -> dict[str, Any]:
    found = next((one for one in node_endpoints if one.node_id == leader_id), None)
    return {
        "leader_id": _node(leader_id),
        "leader_epoch": Epoch(max(leader_epoch, 0)),
        "leader_endpoints": () if found is None else (Endpoint(listener_name, found.host, found.port),),
    }


def _node(node_id: int) -> NodeId | None:
    return None if node_id < 0 else NodeId(node_id)
