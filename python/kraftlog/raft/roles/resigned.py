"""Resigned: was leader of this epoch and is no more; it can only wait for the next one."""

from __future__ import annotations

from collections.abc import Iterable

from kraftlog.raft.roles.role import Role
from kraftlog.types import Epoch, NodeId, ReplicaKey

__all__ = ["Resigned"]


class Resigned(Role):
    """Kept in memory only: on disk the epoch still has this replica as its leader (VOTE-28)."""

    __slots__ = ("_deadline_ms", "_local_id", "_voters", "preferred_candidates", "unacknowledged")

    name = "resigned"

    def __init__(
        self,
        epoch: Epoch,
        *,
        local_id: NodeId,
        deadline_ms: int | None,
        voters: Iterable[NodeId] = (),
        preferred_candidates: tuple[ReplicaKey, ...] = (),
    ) -> None:
        """Enter the role.

        Args:
            epoch: The epoch it led.
            local_id: This replica.
            deadline_ms: End of the election timer; None while shutting down.
            voters: Who is to be told; those that answer are told no more.
            preferred_candidates: Whom to propose as the next leader, best first.
        """
        super().__init__(epoch)
        self._local_id = local_id
        self._deadline_ms = deadline_ms
        self._voters = frozenset(voters)
        self.unacknowledged = sorted(voter for voter in self._voters if voter != local_id)
        self.preferred_candidates = preferred_candidates

    def acknowledge(self, voter_id: NodeId) -> None:
        """A voter knows of the resignation.

        Raises:
            ValueError: Not a voter of the epoch that is over (CQ-16).
        """
        if voter_id not in self._voters:
            msg = f"{voter_id} is not in the voter set {sorted(self._voters)}"
            raise ValueError(msg)
        if voter_id in self.unacknowledged:
            self.unacknowledged.remove(voter_id)

    @property
    def leader_id(self) -> NodeId | None:
        """Itself: nobody else can lead this epoch."""
        return self._local_id

    @property
    def voted_key(self) -> ReplicaKey | None:
        """None."""
        return None

    @property
    def deadline_ms(self) -> int | None:
        """End of the election timer."""
        return self._deadline_ms

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, pre_vote: bool) -> bool:
        """A pre-vote to an up-to-date log; never a vote (VOTE-10)."""
        del candidate
        return pre_vote and is_log_up_to_date
