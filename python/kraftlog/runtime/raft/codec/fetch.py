"""Fetch (1) between replicas, from version 13 on, the first with topic ids (KIP-595, KIP-516, KIP-853, KIP-1166).

15  the replica's id moved into ReplicaState (KIP-903)
17  the replica's directory id, and the leader's address in the response (KIP-853)
18  the high watermark that the follower knows (KIP-1166)
"""

from __future__ import annotations

from typing import Any, Final

from kraftlog._kraftlog import read_batches
from kraftlog.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftlog.raft import messages as raft
from kraftlog.raft.control_records import ControlRecord, KRaftVersionChange, VotersChange
from kraftlog.runtime.raft.codec.raft_codec import Answering, RaftCodec
from kraftlog.runtime.raft.codec.shared_fields import (
    answered_partition,
    leader_endpoint,
    leader_fields,
    node_or_unknown,
    optional_key,
)
from kraftlog.runtime.raft.control_records import from_voters_record
from kraftlog.types import Epoch, EpochEndOffset, LogTopic, NodeId, Offset, ReplicaKey, SnapshotId
from kraftlog.wire.messages.control_records import KRaftVersionRecord, VotersRecord
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.records import decode_control_record

__all__ = ["CODEC"]

_LOWEST: Final = 13
_REPLICA_STATE_FROM: Final = 15
_DIRECTORY_ID_FROM: Final = 17
_NODE_ENDPOINTS_FROM: Final = 17  # the field itself is older; on this path Kafka fills it from here on
_HIGH_WATERMARK_FROM: Final = 18


def to_wire_request(request: raft.FetchRequest, version: int, topic: LogTopic) -> FetchRequest:
    """Ask for what follows the log of this replica."""
    key = request.replica_key or ReplicaKey(NodeId(-1))
    fields: dict[str, Any] = {}
    if version >= _DIRECTORY_ID_FROM:
        fields["replica_directory_id"] = key.directory_id
    if version >= _HIGH_WATERMARK_FROM:
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
        if version >= _REPLICA_STATE_FROM
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


def to_core_request(request: FetchRequest, version: int, topic: LogTopic) -> raft.FetchRequest:
    """What a replica asks; a name instead of the topic id, before version 13, is not found."""
    topics = request.topics
    is_metadata = (
        len(topics) == 1
        and topics[0].topic_id == topic.topic_id
        and len(topics[0].partitions) == 1
        and topics[0].partitions[0].partition == 0
    )
    if not is_metadata:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    partition = topics[0].partitions[0]
    replica_id = request.replica_state.replica_id if version >= _REPLICA_STATE_FROM else request.replica_id
    return raft.FetchRequest(
        cluster_id=request.cluster_id,
        replica_key=optional_key(replica_id, partition.replica_directory_id),
        current_leader_epoch=Epoch(partition.current_leader_epoch),
        fetch_offset=Offset(partition.fetch_offset),
        last_fetched_epoch=Epoch(partition.last_fetched_epoch),
        max_wait_ms=request.max_wait_ms,
        max_bytes=max(0, request.max_bytes),  # whatever the partition's own limit says
        high_watermark=Offset(partition.high_watermark),
    )


def to_wire_response(response: raft.FetchResponse, answering: Answering) -> FetchResponse:
    """The records, or where the logs diverge, or the snapshot to begin with."""
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
    leader_id = node_or_unknown(response.leader_id)
    partition = FetchResponse.PartitionData(
        partition_index=0,
        error_code=response.error_code,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=response.leader_epoch),
        aborted_transactions=(),
        records=b"" if answering.data is None else answering.data,
        **fields,
    )
    told = FetchResponse.FetchableTopicResponse(
        topic=answering.topic.name, topic_id=answering.topic.topic_id, partitions=(partition,)
    )
    endpoint = leader_endpoint(response, answering.listener_name) if answering.version >= _NODE_ENDPOINTS_FROM else None
    if endpoint is None:
        return FetchResponse(responses=(told,))
    leader = FetchResponse.NodeEndpoint(node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=None)
    return FetchResponse(responses=(told,), node_endpoints=(leader,))


def to_core_response(response: FetchResponse, listener_name: str, topic: LogTopic) -> raft.FetchResponse:
    """What the leader answers; the checksum of every whole batch is right."""
    if response.error_code:
        return raft.FetchResponse(top_level_error_code=response.error_code)
    partition = answered_partition(
        response, topic, [(topic.name, topic_response.partitions) for topic_response in response.responses]
    )
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
        **leader_fields(leader.leader_id, leader.leader_epoch, response.node_endpoints, listener_name),
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


CODEC: Final = RaftCodec(
    api_key=FetchRequest.API_KEY,
    core_request=raft.FetchRequest,
    core_response=raft.FetchResponse,
    wire_request=FetchRequest,
    wire_response=FetchResponse,
    to_wire_request=to_wire_request,
    to_core_response=to_core_response,
    to_core_request=to_core_request,
    to_wire_response=to_wire_response,
    lowest_version=lambda _: _LOWEST,
)
