"""What DescribeQuorum tells about the metadata quorum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kraftlog.raft.core import RaftCore
from kraftlog.raft.messages import ReplicaProgress
from kraftlog.raft.voter_set import Endpoint
from kraftlog.types import Uuid

__all__ = ["QuorumInfo", "ReplicaInfo", "describe"]


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


def describe(core: RaftCore, *, now_ms: int, wall_ms: int) -> QuorumInfo:
    """The quorum as a replica sees it: how far the others are is known to the leader alone.

    Args:
        core: The replica.
        now_ms: The monotonic clock of the core.
        wall_ms: Unix clock, which the timestamps of the result are of.
    """
    progress = {replica.key.node_id: replica for replica in core.progress(now_ms)}

    def info(
        node_id: int, directory_id: Uuid, listeners: Iterable[Endpoint], found: ReplicaProgress | None
    ) -> ReplicaInfo:
        def wall(timestamp_ms: int | None) -> int:
            return -1 if timestamp_ms is None else wall_ms - (now_ms - timestamp_ms)

        return ReplicaInfo(
            replica_id=node_id,
            directory_id=directory_id,
            log_end_offset=-1 if found is None or found.log_end_offset is None else found.log_end_offset,
            last_fetch_timestamp=wall(None if found is None else found.last_fetch_ms),
            last_caught_up_timestamp=wall(None if found is None else found.last_caught_up_ms),
            listeners=tuple(listeners),
        )

    return QuorumInfo(
        leader_id=-1 if core.leader_id is None else core.leader_id,
        leader_epoch=core.epoch,
        high_watermark=-1 if core.high_watermark is None else core.high_watermark,
        voters=tuple(
            info(voter.key.node_id, voter.key.directory_id, voter.endpoints, progress.get(voter.key.node_id))
            for voter in core.voters
        ),
        observers=tuple(
            info(progress.key.node_id, progress.key.directory_id, (), progress)
            for progress in core.observer_progress(now_ms)
        ),
    )
