"""What the metrics of a replica are told of its core."""

from __future__ import annotations

from kraftlog.metrics.raft import RaftState
from kraftlog.raft.core import RaftCore
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import OBSERVER_CHECK_MS, Leader
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.role import Role
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.types import Uuid

__all__ = ["RaftGauges", "raft_state"]


class RaftGauges:
    """``raft_state`` of one replica after each turn, computed anew when something that it shows may have changed.

    Args:
        core: The replica.
    """

    __slots__ = ("_core", "_facts", "_state", "_until_ms")

    def __init__(self, core: RaftCore) -> None:
        self._core = core
        self._facts: tuple[object, ...] = ()
        self._state = RaftState()
        self._until_ms: float = 0

    def state(self, now_ms: int) -> RaftState:
        """What the replica is; observers of a leader are counted once a second."""
        core = self._core
        role, log = core.role, core.log
        # A role is another object in each epoch, and with each vote.
        facts = (
            role,
            core.high_watermark,
            log.end_offset,
            log.last_epoch,
            core.voters,
            core.voters_offset,
            core.is_halted,
        )
        if facts != self._facts or now_ms >= self._until_ms:
            self._facts = facts
            self._state = raft_state(core, now_ms)
            self._until_ms = now_ms + OBSERVER_CHECK_MS if isinstance(role, Leader) else float("inf")
        return self._state


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
    # By position: keywords of so many fields take twice as long.
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
