"""What replicas say to each other, free of versions and bytes, and the control records the core writes."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.raft.voter_set import VoterSet
from kraftlog.types import Epoch, NodeId, Offset, ReplicaKey

__all__ = [
    "BeginQuorumEpochRequest",
    "BeginQuorumEpochResponse",
    "ControlRecord",
    "EndQuorumEpochRequest",
    "EndQuorumEpochResponse",
    "KRaftVersionChange",
    "LeaderChange",
    "ReplicaProgress",
    "Request",
    "Response",
    "VoteRequest",
    "VoteResponse",
    "VotersChange",
]


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

    error_code: int = 0
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    vote_granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """A leader tells a voter that it was elected."""

    cluster_id: str | None = None
    voter_key: ReplicaKey | None = None
    leader_id: NodeId
    leader_epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochResponse:
    """The answer, with the leader the voter knows."""

    error_code: int = 0
    leader_id: NodeId | None = None
    leader_epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    """A leader tells a voter that it resigns, and whom it prefers as the next one."""

    cluster_id: str | None = None
    leader_id: NodeId
    leader_epoch: Epoch
    preferred_candidates: tuple[ReplicaKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochResponse:
    """The answer, with the leader the voter knows."""

    error_code: int = 0
    leader_id: NodeId | None = None
    leader_epoch: Epoch


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest
Response = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """Control record: the first record of an epoch."""

    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting_voters: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionChange:
    """Control record: kraft.version from here on."""

    kraft_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersChange:
    """Control record: the voter set from here on."""

    voters: VoterSet


ControlRecord = LeaderChange | KRaftVersionChange | VotersChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaProgress:
    """How far the leader knows a replica to be; timestamps are ``now_ms`` values, None when never."""

    key: ReplicaKey
    log_end_offset: Offset | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
