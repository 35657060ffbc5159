"""What DescribeQuorum tells about the metadata quorum."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.raft.voter_set import Endpoint
from kraftlog.types import Uuid

__all__ = ["QuorumInfo", "ReplicaInfo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """One replica as the leader sees it; timestamps are Unix ms, -1 when unknown."""

    replica_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int
    listeners: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumInfo:
    """The quorum as this node sees it; ``leader_id`` and ``high_watermark`` are -1 when unknown."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaInfo, ...]
    observers: tuple[ReplicaInfo, ...]
