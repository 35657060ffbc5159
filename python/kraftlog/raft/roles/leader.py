"""Leader: appends records of its epoch and decides what is committed."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.raft.messages import ReplicaProgress
from kraftlog.raft.roles.role import Role
from kraftlog.raft.voter_set import VoterSet
from kraftlog.types import Epoch, NodeId, Offset, ReplicaKey

__all__ = ["Leader"]


@dataclass(slots=True)
class _Replica:
    log_end_offset: Offset | None = None
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None


class Leader(Role):
    """The one replica that may append in its epoch."""

    __slots__ = ("_local_key", "_replicas", "epoch_start_offset", "high_watermark", "voters")

    name = "leader"

    def __init__(self, epoch: Epoch, *, local_key: ReplicaKey, voters: VoterSet, epoch_start_offset: Offset) -> None:
        """Enter the role; the high watermark is unknown until a majority holds a record of this epoch."""
        super().__init__(epoch)
        self._local_key = local_key
        self.voters = voters
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark: Offset | None = None
        self._replicas: dict[NodeId, _Replica] = {voter.key.node_id: _Replica() for voter in voters}

    @property
    def leader_id(self) -> NodeId | None:
        """Itself."""
        return self._local_key.node_id

    @property
    def voted_key(self) -> ReplicaKey | None:
        """None: the own vote is not stored once elected (VOTE-29)."""
        return None

    @property
    def deadline_ms(self) -> int | None:
        """None while it is the only voter: nobody else's fetches can go missing."""
        return None

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, pre_vote: bool) -> bool:
        """Never (VOTE-10)."""
        del candidate, is_log_up_to_date, pre_vote
        return False

    def update_local_end_offset(self, flushed_end_offset: Offset) -> bool:
        """Note how far the own log is durable; return whether the high watermark moved.

        Raises:
            ValueError: The durable end went backwards (HWM-12).
        """
        replica = self._replicas.get(self._local_key.node_id)
        if replica is None:
            return False
        if replica.log_end_offset is not None and flushed_end_offset < replica.log_end_offset:
            msg = f"The local end offset went from {replica.log_end_offset} back to {flushed_end_offset}"
            raise ValueError(msg)
        replica.log_end_offset = flushed_end_offset
        return self._update_high_watermark()

    def _update_high_watermark(self) -> bool:
        known = sorted(
            (
                Offset(-1) if replica.log_end_offset is None else replica.log_end_offset
                for replica in self._replicas.values()
            ),
            reverse=True,
        )
        candidate = known[len(known) // 2]
        if candidate <= self.epoch_start_offset:
            return False
        if self.high_watermark is not None and candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    def progress(self, now_ms: int) -> tuple[ReplicaProgress, ...]:
        """How far each voter is; this replica counts as having fetched just now."""
        result: list[ReplicaProgress] = []
        for voter in self.voters:
            replica = self._replicas[voter.key.node_id]
            local = voter.key.node_id == self._local_key.node_id
            result.append(
                ReplicaProgress(
                    key=voter.key,
                    log_end_offset=replica.log_end_offset,
                    last_fetch_ms=now_ms if local else replica.last_fetch_ms,
                    last_caught_up_ms=now_ms if local else replica.last_caught_up_ms,
                )
            )
        return tuple(result)
