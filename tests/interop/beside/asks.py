"""Requests of replicas with only what a case cares about given, and answers in one line of text.

In a line an epoch is told by its distance to the one the case began in: ``E``, ``E+1``, ``E-1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interop.harness import CLUSTER_ID
from kraftlog.errors import ErrorCode
from kraftlog.types import SnapshotId, Uuid
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest
from kraftlog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftlog.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from kraftlog.wire.messages.vote import VoteRequest, VoteResponse

if TYPE_CHECKING:
    from interop.beside.driven import Driven

TOPIC = "__cluster_metadata"
LISTENER = "CONTROLLER"


@dataclass(frozen=True)
class View:
    """What a replica says of its quorum: its epoch, and the leader, -1 for none."""

    epoch: int
    leader_id: int


def topic_of(kind: Any, partition: Any, name: str = TOPIC) -> Any:
    return kind.TopicData(topic_name=name, partitions=[partition])


def vote_request(
    driven: Driven,
    *,
    pre_vote: bool = False,
    epoch: int | None = None,
    last: tuple[int, int] | None = None,
    sender: int = 2,
    sender_directory: Uuid | None = None,
    voter: tuple[int, Uuid] | None = None,
    cluster_id: str | None = CLUSTER_ID,
    topic: str = TOPIC,
    index: int = 0,
) -> VoteRequest:
    """Vote, by default for peer 2 in the current epoch with the log that the node has."""
    voter_id, voter_directory_id = (1, driven.directory_id) if voter is None else voter
    last_epoch, last_offset = driven.log if last is None else last
    directory_id = driven.peers[sender].directory_id if sender in driven.peers else Uuid.ZERO
    partition = VoteRequest.PartitionData(
        partition_index=index,
        replica_epoch=driven.epoch if epoch is None else epoch,
        replica_id=sender,
        replica_directory_id=directory_id if sender_directory is None else sender_directory,
        voter_directory_id=voter_directory_id,
        last_offset_epoch=last_epoch,
        last_offset=last_offset,
        pre_vote=pre_vote,
    )
    return VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=[topic_of(VoteRequest, partition, topic)])


def vote_response(epoch: int, *, granted: bool) -> VoteResponse:
    partition = VoteResponse.PartitionData(leader_id=-1, leader_epoch=epoch, vote_granted=granted)
    return VoteResponse(topics=[topic_of(VoteResponse, partition)])


def begin_request(
    driven: Driven,
    *,
    leader: int = 2,
    epoch: int | None = None,
    voter: tuple[int, Uuid] | None = None,
    endpoints: Sequence[tuple[str, str, int]] | None = None,
    cluster_id: str | None = CLUSTER_ID,
    topic: str = TOPIC,
    index: int = 0,
) -> BeginQuorumEpochRequest:
    """BeginQuorumEpoch, by default of peer 2 in the current epoch with its one endpoint."""
    voter_id, voter_directory_id = (1, driven.directory_id) if voter is None else voter
    if endpoints is None:
        endpoints = [(LISTENER, "127.0.0.1", driven.peers[leader].port)] if leader in driven.peers else []
    partition = BeginQuorumEpochRequest.PartitionData(
        partition_index=index,
        voter_directory_id=voter_directory_id,
        leader_id=leader,
        leader_epoch=driven.epoch if epoch is None else epoch,
    )
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter_id,
        topics=[topic_of(BeginQuorumEpochRequest, partition, topic)],
        leader_endpoints=[
            BeginQuorumEpochRequest.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in endpoints
        ],
    )


def end_request(
    driven: Driven,
    *,
    leader: int = 2,
    epoch: int | None = None,
    preferred: Iterable[tuple[int, Uuid]] = (),
    endpoints: Sequence[tuple[str, str, int]] = (),
    cluster_id: str | None = CLUSTER_ID,
    topic: str = TOPIC,
    index: int = 0,
) -> EndQuorumEpochRequest:
    """EndQuorumEpoch, by default of peer 2 in the current epoch, which prefers nobody."""
    partition = EndQuorumEpochRequest.PartitionData(
        partition_index=index,
        leader_id=leader,
        leader_epoch=driven.epoch if epoch is None else epoch,
        preferred_candidates=[
            EndQuorumEpochRequest.ReplicaInfo(candidate_id=key, candidate_directory_id=directory_id)
            for key, directory_id in preferred
        ],
    )
    return EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[topic_of(EndQuorumEpochRequest, partition, topic)],
        leader_endpoints=[
            EndQuorumEpochRequest.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in endpoints
        ],
    )


def acknowledgement(request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> Any:
    """What a voter says that follows, or has heard."""
    kind: Any = BeginQuorumEpochResponse if isinstance(request, BeginQuorumEpochRequest) else EndQuorumEpochResponse
    asked = request.topics[0].partitions[0]
    partition = kind.PartitionData(leader_id=asked.leader_id, leader_epoch=asked.leader_epoch)
    return kind(topics=[topic_of(kind, partition)])


def fetch_request(
    driven: Driven,
    *,
    sender: int = 2,
    directory_id: Uuid | None = None,
    epoch: int | None = None,
    offset: int | None = None,
    last_epoch: int | None = None,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
    high_watermark: int = -1,
    cluster_id: str | None = CLUSTER_ID,
    topic_id: Uuid = Uuid.METADATA_TOPIC_ID,
    index: int = 0,
    topics: int = 1,
    version: int = 18,
) -> FetchRequest:
    """Fetch, by default of peer 2 in the current epoch from the end of the log."""
    if directory_id is None:
        directory_id = driven.peers[sender].directory_id if sender in driven.peers else Uuid.ZERO
    optional: dict[str, Any] = {}
    if version >= 12:
        optional["last_fetched_epoch"] = driven.log[0] if last_epoch is None else last_epoch
    if version >= 9:
        optional["current_leader_epoch"] = driven.epoch if epoch is None else epoch
    if version >= 17:
        optional["replica_directory_id"] = directory_id
    if version >= 18:
        optional["high_watermark"] = high_watermark
    partition = FetchRequest.FetchPartition(
        partition=index,
        fetch_offset=driven.log[1] if offset is None else offset,
        log_start_offset=-1,
        partition_max_bytes=0,
        **optional,
    )
    whose: dict[str, Any] = (
        {"replica_state": FetchRequest.ReplicaState(replica_id=sender, replica_epoch=-1)}
        if version >= 15
        else {"replica_id": sender}
    )
    if version >= 12:
        whose["cluster_id"] = cluster_id
    what: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"topic": TOPIC}
    return FetchRequest(
        **whose,
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[FetchRequest.FetchTopic(**what, partitions=[partition])] * topics,
    )


def fetch_response(
    epoch: int,
    *,
    leader_id: int,
    error: int = 0,
    high_watermark: int = -1,
    records: bytes = b"",
    snapshot_id: SnapshotId | None = None,
) -> FetchResponse:
    optional: dict[str, Any] = {}
    if snapshot_id is not None:
        optional["snapshot_id"] = FetchResponse.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)
    partition = FetchResponse.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=0,
        current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        aborted_transactions=[],
        records=records,
        **optional,
    )
    topic = FetchResponse.FetchableTopicResponse(topic=TOPIC, topic_id=Uuid.METADATA_TOPIC_ID, partitions=[partition])
    return FetchResponse(responses=[topic])


def snapshot_request(
    driven: Driven,
    *,
    snapshot: tuple[int, int],
    sender: int = 2,
    epoch: int | None = None,
    position: int = 0,
    max_bytes: int = 1 << 20,
    cluster_id: str | None = CLUSTER_ID,
    topic: str = TOPIC,
    index: int = 0,
) -> FetchSnapshotRequest:
    """FetchSnapshot of ``(end offset, epoch)``."""
    end_offset, snapshot_epoch = snapshot
    partition = FetchSnapshotRequest.PartitionSnapshot(
        partition=index,
        current_leader_epoch=driven.epoch if epoch is None else epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=end_offset, epoch=snapshot_epoch),
        position=position,
        replica_directory_id=driven.peers[sender].directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=sender,
        max_bytes=max_bytes,
        topics=[FetchSnapshotRequest.TopicSnapshot(name=topic, partitions=[partition])],
    )


def snapshot_response(
    snapshot_id: SnapshotId, size_bytes: int, asked: Any, *, leader_id: int, piece: bytes
) -> FetchSnapshotResponse:
    partition = FetchSnapshotResponse.PartitionSnapshot(
        index=0,
        snapshot_id=FetchSnapshotResponse.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(
            leader_id=leader_id, leader_epoch=asked.current_leader_epoch
        ),
        size=size_bytes,
        position=asked.position,
        unaligned_records=piece,
    )
    return FetchSnapshotResponse(topics=[FetchSnapshotResponse.TopicSnapshot(name=TOPIC, partitions=[partition])])


def _key(driven: Driven, voter: tuple[int, Uuid] | None) -> tuple[int, Uuid]:
    return (driven.newcomer.node_id, driven.newcomer.directory_id) if voter is None else voter


def add_request(
    driven: Driven,
    *,
    voter: tuple[int, Uuid] | None = None,
    endpoints: Sequence[tuple[str, str, int]] | None = None,
    cluster_id: str | None = CLUSTER_ID,
    version: int = 1,
    waits: bool = True,
) -> AddRaftVoterRequest:
    """AddRaftVoter of the newcomer, answered when it is committed."""
    voter_id, directory_id = _key(driven, voter)
    if endpoints is None:
        endpoints = [(LISTENER, "127.0.0.1", driven.newcomer.port)]
    optional = {"ack_when_committed": waits} if version >= 1 else {}
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=30_000,
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=[AddRaftVoterRequest.Listener(name=name, host=host, port=port) for name, host, port in endpoints],
        **optional,
    )


def remove_request(
    driven: Driven, *, voter: tuple[int, Uuid] | None = None, cluster_id: str | None = CLUSTER_ID
) -> RemoveRaftVoterRequest:
    """RemoveRaftVoter of the newcomer."""
    voter_id, directory_id = _key(driven, voter)
    return RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id)


def update_request(
    driven: Driven,
    *,
    voter: tuple[int, Uuid] | None = None,
    epoch: int | None = None,
    endpoints: Sequence[tuple[str, str, int]] | None = None,
    versions: tuple[int, int] = (0, 1),
    cluster_id: str | None = CLUSTER_ID,
) -> UpdateRaftVoterRequest:
    """UpdateRaftVoter of peer 2, with nothing changed."""
    voter_id, directory_id = (2, driven.peers[2].directory_id) if voter is None else voter
    if endpoints is None:
        endpoints = [(LISTENER, "127.0.0.1", driven.peers[2].port)]
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=driven.epoch if epoch is None else epoch,
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=[UpdateRaftVoterRequest.Listener(name=name, host=host, port=port) for name, host, port in endpoints],
        k_raft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=versions[0], max_supported_version=versions[1]
        ),
    )


def describe_request(topic: str = TOPIC, index: int = 0) -> DescribeQuorumRequest:
    partition = DescribeQuorumRequest.PartitionData(partition_index=index)
    return DescribeQuorumRequest(topics=[topic_of(DescribeQuorumRequest, partition, topic)])


# Answers in one line


def relative(epoch: int, begun: int) -> str:
    """An epoch by its distance to that of the case."""
    if epoch < 0:
        return str(epoch)
    return "E" if epoch == begun else f"E{epoch - begun:+d}"


def in_words(response: Any, begun: int) -> str:
    """What a request of a replica was answered."""
    error = getattr(response, "error_code", 0)
    topics = getattr(response, "topics", None) or getattr(response, "responses", ())
    if isinstance(response, UpdateRaftVoterResponse):
        leader = response.current_leader
        where = " at" if leader.port else ""
        epoch = relative(leader.leader_epoch, begun)
        return f"top {ErrorCode.name_of(error)} leader={leader.leader_id} epoch={epoch}{where}"
    if error or not topics:
        # Whether there is a text, where there is a place for one.
        text = " text" if getattr(response, "error_message", None) else ""
        return f"top {ErrorCode.name_of(error)}{text}"
    partition = topics[0].partitions[0]
    words = [ErrorCode.name_of(partition.error_code)]
    if isinstance(response, VoteResponse):
        words.append("granted" if partition.vote_granted else "refused")
    leader = getattr(partition, "current_leader", partition)
    words.append(f"leader={leader.leader_id} epoch={relative(leader.leader_epoch, begun)}")
    if response.node_endpoints:
        words.append("at=" + ",".join(str(node_endpoint.node_id) for node_endpoint in response.node_endpoints))
    return " ".join(words)
