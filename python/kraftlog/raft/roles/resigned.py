"""Resigned: was leader of this epoch and is no more; it can only wait for the next one."""

from __future__ import annotations

from kraftlog.raft.roles.role import Role
from kraftlog.types import Epoch, NodeId, ReplicaKey

__all__ = ["Resigned"]


class Resigned(Role):
    """Kept in memory only: on disk the epoch still has this replica as its leader (VOTE-28)."""

    __slots__ = ("_deadline_ms", "_local_id")

    name = "resigned"

    def __init__(self, epoch: Epoch, *, local_id: NodeId, deadline_ms: int | None) -> None:
        """Enter the role; ``deadline_ms`` None while shutting down."""
        super().__init__(epoch)
        self._local_id = local_id
        self._deadline_ms = deadline_ms

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
