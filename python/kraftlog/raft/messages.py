"""What replicas say to each other, free of versions and bytes.

Error codes are those of the protocol. ``top_level_error_code`` refuses a request as a whole, ``error_code`` is that of
the one partition there is. A response's ``leader_endpoints`` are all the answering replica knows of its leader; the
shell sends the one for the listener that was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraftlog.raft.control_records import ControlRecord, KRaftVersionChange, LeaderChange, VotersChange
from kraftlog.raft.voter_set import Endpoint
from kraftlog.types import Epoch, EpochEndOffset, NodeId, Offset, ReplicaKey, SnapshotId

__all__ = [
    "HIGH_WATERMARK_NOT_SENT",
    "UNKNOWN_OFFSET",
    "AddVoterRequest",
    "AddVoterResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "BeginQuorumEpochRequest",
    "BeginQuorumEpochResponse",
    "ControlRecord",
    "EndQuorumEpochRequest",
    "EndQuorumEpochResponse",
    "Endpoints",
    "FetchRequest",
    "FetchResponse",
    "FetchSnapshotRequest",
    "FetchSnapshotResponse",
    "FetchedBatch",
    "KRaftVersionChange",
    "LeaderChange",
    "RemoveVoterRequest",
    "RemoveVoterResponse",
    "ReplicaProgress",
    "Request",
    "Response",
    "UpdateVoterRequest",
    "UpdateVoterResponse",
    "VoteRequest",
    "VoteResponse",
    "VotersChange",
]

HIGH_WATERMARK_NOT_SENT = Offset(2**63 - 1)
"""Fetch below version 18 does not tell what the sender knows: nothing is above this value."""

UNKNOWN_OFFSET = Offset(-1)
"""An offset that is not known."""

_EPOCH_ZERO = Epoch(0)

Endpoints = tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A vote, or with ``pre_vote`` the question whether one would be granted (KIP-595, KIP-853, KIP-996)."""

    cluster_id: str | None = None
    voter_key: ReplicaKey | None = None
    replica_key: ReplicaKey
    replica_epoch: Epoch
    last_epoch: Epoch
    last_epoch_end_offset: Offset
    pre_vote: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """The answer, with the leader the voter knows."""

    top_level_error_code: int = 0
    error_code: int = 0
    leader_id: NodeId | None = None
    leader_epoch: Epoch = _EPOCH_ZERO
    leader_endpoints: Endpoints = ()
    vote_granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """A leader tells a voter that it was elected."""

    cluster_id: str | None = None
    voter_key: ReplicaKey | None = None
    leader_id: NodeId
    leader_epoch: Epoch
    leader_endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochResponse:
    """The answer, with the leader the voter knows."""

    top_level_error_code: int = 0
    error_code: int = 0
    leader_id: NodeId | None = None
    leader_epoch: Epoch = _EPOCH_ZERO
    leader_endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    """A leader tells a voter that it resigns, and whom it prefers as the next one, best first."""

    cluster_id: str | None = None
    leader_id: NodeId
    leader_epoch: Epoch
    leader_endpoints: Endpoints = ()
    preferred_candidates: tuple[ReplicaKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochResponse:
    """The answer, with the leader the voter knows."""

    top_level_error_code: int = 0
    error_code: int = 0
    leader_id: NodeId | None = None
    leader_epoch: Epoch = _EPOCH_ZERO
    leader_endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """A replica asks for what follows its log, and thereby says how far its log is durable.

    Args:
        cluster_id: None accepts any.
        replica_key: The sender; None is a reader that is no replica.
        current_leader_epoch: The epoch the sender is in.
        fetch_offset: End of its log.
        last_fetched_epoch: Epoch of its last record.
        max_wait_ms: How long the answer may wait for something to say.
        max_bytes: Most bytes of records; one whole batch is always given.
        high_watermark: What the sender knows, -1 for nothing, ``HIGH_WATERMARK_NOT_SENT`` below version 18 (KIP-1166).
    """

    cluster_id: str | None = None
    replica_key: ReplicaKey | None = None
    current_leader_epoch: Epoch
    fetch_offset: Offset
    last_fetched_epoch: Epoch
    max_wait_ms: int = 0
    max_bytes: int = 1 << 20
    high_watermark: Offset = HIGH_WATERMARK_NOT_SENT


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatch:
    """One record batch in a Fetch answer, its checksum right.

    Args:
        base_offset: Offset of its first record.
        last_offset: Offset of its last record (inclusive).
        epoch: Partition leader epoch of the batch.
        size_bytes: Bytes of the batch.
        control_records: The KRaftVersion and Voters records in it, with their offsets.
        payload: The bytes, opaque to the core.
    """

    base_offset: Offset
    last_offset: Offset
    epoch: Epoch
    size_bytes: int = 0
    control_records: tuple[tuple[Offset, ControlRecord], ...] = ()
    payload: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """Records, or where the sender's log leaves the leader's, or the snapshot to begin with.

    Args:
        top_level_error_code: Of the request.
        error_code: Of the partition.
        leader_id: The leader as the answering replica knows it.
        leader_epoch: Its epoch.
        leader_endpoints: Where that leader listens.
        high_watermark: -1 when unknown.
        log_start_offset: First readable offset of the leader.
        diverging_epoch: Where to truncate.
        snapshot_id: What to fetch by FetchSnapshot.
        read_offset: On the leader: records from this offset on belong into the answer; the shell reads them when it
            sends. None where there are none.
        max_bytes: On the leader: most bytes of records.
        batches: On the follower: the whole batches of the answer, in order.
    """

    top_level_error_code: int = 0
    error_code: int = 0
    leader_id: NodeId | None = None
    leader_epoch: Epoch = _EPOCH_ZERO
    leader_endpoints: Endpoints = ()
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    diverging_epoch: EpochEndOffset | None = None
    snapshot_id: SnapshotId | None = None
    read_offset: Offset | None = None
    max_bytes: int = 0
    batches: Sequence[FetchedBatch] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    """A replica asks for a piece of a snapshot."""

    cluster_id: str | None = None
    replica_key: ReplicaKey | None = None
    current_leader_epoch: Epoch
    snapshot_id: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse:
    """A piece of a snapshot.

    Args:
        top_level_error_code: Of the request.
        error_code: Of the partition.
        leader_id: The leader as the answering replica knows it.
        leader_epoch: Its epoch.
        leader_endpoints: Where that leader listens.
        snapshot_id: Which snapshot; None with an error.
        size_bytes: Size of the whole snapshot.
        position: Position of the piece.
        read_bytes: On the leader: so many bytes from ``position`` on belong into the answer; the shell reads them.
        chunk_bytes: On the follower: bytes of the piece.
        payload: On the follower: the piece, opaque to the core.
    """

    top_level_error_code: int = 0
    error_code: int = 0
    leader_id: NodeId | None = None
    leader_epoch: Epoch = _EPOCH_ZERO
    leader_endpoints: Endpoints = ()
    snapshot_id: SnapshotId | None = None
    size_bytes: int = 0
    position: int = 0
    read_bytes: int = 0
    chunk_bytes: int = 0
    payload: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoterRequest:
    """Make a replica a voter."""

    cluster_id: str | None = None
    voter_key: ReplicaKey
    endpoints: Endpoints = ()
    timeout_ms: int = 0
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoterResponse:
    """How that ended; ``top_level_error_code`` is the only code there is."""

    top_level_error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoterRequest:
    """Make a voter an observer."""

    cluster_id: str | None = None
    voter_key: ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoterResponse:
    """How that ended; ``top_level_error_code`` is the only code there is."""

    top_level_error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoterRequest:
    """A voter tells where it listens and which kraft.version levels it runs."""

    cluster_id: str | None = None
    current_leader_epoch: Epoch
    voter_key: ReplicaKey
    min_kraft_version: int
    max_kraft_version: int
    endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoterResponse:
    """How that ended, with the leader; ``top_level_error_code`` is the only code there is."""

    top_level_error_code: int = 0
    leader_id: NodeId | None = None
    leader_epoch: Epoch = _EPOCH_ZERO
    leader_endpoints: Endpoints = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """What can you do: asked of a replica that is to become a voter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    """The kraft.version levels a replica runs (inclusive); both None when it does not say."""

    top_level_error_code: int = 0
    min_kraft_version: int | None = None
    max_kraft_version: int | None = None


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | ApiVersionsRequest
)
Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | AddVoterResponse
    | RemoveVoterResponse
    | UpdateVoterResponse
    | ApiVersionsResponse
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaProgress:
    """How far the leader knows a replica to be; timestamps are ``now_ms`` values, None when never."""

    key: ReplicaKey
    log_end_offset: Offset | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
