"""What the metrics of a replica are told of its core."""

from __future__ import annotations

from kraftlog.metrics.raft import RaftState
from kraftlog.raft.core import RaftCore
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.role import Role
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.types import Uuid

__all__ = ["raft_state"]


def raft_state(core: RaftCore, now_ms: int) -> RaftState:
    """What a replica is now, in the words of Kafka's raft-metrics.

    Args:
        core: The replica.
        now_ms: The clock it is told.
    """
    role = core.role
    leader_id, high_watermark, log = core.leader_id, core.high_watermark, core.log
    is_leader = isinstance(role, Leader)
    voted = core.config.local_key if is_leader or isinstance(role, Candidate) else role.voted_key
    # By position: this is computed after each turn, and keywords of so many fields take twice as long.
    return RaftState(
        _state_name(role, is_voter=core.is_voter),
        -1 if leader_id is None else leader_id,
        -1 if voted is None else voted.node_id,
        Uuid.ZERO if voted is None else voted.directory_id,
        role.epoch,
        -1 if high_watermark is None else high_watermark,
        log.end_offset,
        log.last_epoch,
        len(core.voters),
        role.observer_count(now_ms) if isinstance(role, Leader) else None,
        core.is_own_voter_change_uncommitted if is_leader else None,
    )


def _state_name(role: Role, *, is_voter: bool) -> str:
    match role:
        case Follower():
            return "follower" if is_voter else "observer"
        case Prospective():
            return "prospective" if role.voted_key is None else "prospective-voted"
        case Unattached():
            return "unattached" if role.voted_key is None else "unattached-voted"
        case Leader() | Candidate():
            return role.name
        case _:
            return "unattached"  # a resigned leader claims nothing
