"""FetchSnapshot (59): a piece of a snapshot (KIP-630); the directory id and the leader's address from version 1 on."""

from __future__ import annotations

from typing import Any, Final

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft import messages as raft
from kraftlog.runtime.raft.codec.raft_codec import Answering, RaftCodec
from kraftlog.runtime.raft.codec.shared_fields import (
    answered_partition,
    leader_fields,
    node_endpoints,
    node_or_unknown,
    optional_key,
)
from kraftlog.types import Epoch, LogTopic, NodeId, Offset, ReplicaKey, SnapshotId, Uuid
from kraftlog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

__all__ = ["CODEC"]

_CHUNK_MAX_BYTES = 8 * 1024 * 1024  # a replica that asks for more gets the rest with its next request


def to_wire_request(request: raft.FetchSnapshotRequest, version: int, topic: LogTopic) -> FetchSnapshotRequest:
    """Ask for the bytes from a position on."""
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


def to_core_request(request: FetchSnapshotRequest, _version: int, topic: LogTopic) -> raft.FetchSnapshotRequest:
    """What a replica asks; no more bytes than a response may have."""
    found = [partition for each in request.topics if each.name == topic.name for partition in each.partitions]
    partition = next((partition for partition in found if partition.partition == 0), None)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return raft.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_key=optional_key(request.replica_id, partition.replica_directory_id),
        current_leader_epoch=Epoch(partition.current_leader_epoch),
        snapshot_id=SnapshotId(Offset(partition.snapshot_id.end_offset), Epoch(partition.snapshot_id.epoch)),
        position=partition.position,
        max_bytes=min(request.max_bytes, _CHUNK_MAX_BYTES),
    )


def to_wire_response(response: raft.FetchSnapshotResponse, answering: Answering) -> FetchSnapshotResponse:
    """A piece of the snapshot."""
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
            leader_id=node_or_unknown(response.leader_id), leader_epoch=response.leader_epoch
        ),
        unaligned_records=b"" if answering.data is None else answering.data,
        **fields,
    )
    return FetchSnapshotResponse(
        topics=(FetchSnapshotResponse.TopicSnapshot(name=answering.topic.name, partitions=(partition,)),),
        node_endpoints=node_endpoints(FetchSnapshotResponse, response, answering),
    )


def to_core_response(
    response: FetchSnapshotResponse, listener_name: str, topic: LogTopic
) -> raft.FetchSnapshotResponse:
    """A piece of the snapshot."""
    if response.error_code:
        return raft.FetchSnapshotResponse(top_level_error_code=response.error_code)
    partition = answered_partition(response, topic, [(topic.name, topic.partitions) for topic in response.topics])
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
        **leader_fields(leader.leader_id, leader.leader_epoch, response.node_endpoints, listener_name),
    )


CODEC: Final = RaftCodec(
    api_key=FetchSnapshotRequest.API_KEY,
    core_request=raft.FetchSnapshotRequest,
    core_response=raft.FetchSnapshotResponse,
    wire_request=FetchSnapshotRequest,
    wire_response=FetchSnapshotResponse,
    to_wire_request=to_wire_request,
    to_core_response=to_core_response,
    to_core_request=to_core_request,
    to_wire_response=to_wire_response,
)
