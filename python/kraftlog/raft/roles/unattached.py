"""Unattached: an epoch without a leader it could follow; the vote may be given or not."""

from __future__ import annotations

from kraftlog.raft.roles.role import Role, same_voter
from kraftlog.types import Epoch, NodeId, ReplicaKey

__all__ = ["Unattached"]


class Unattached(Role):
    """Waits for a leader, or for its own election timer."""

    __slots__ = ("_deadline_ms", "_leader_id", "_voted_key")

    name = "unattached"

    def __init__(
        self,
        epoch: Epoch,
        *,
        deadline_ms: int | None,
        leader_id: NodeId | None = None,
        voted_key: ReplicaKey | None = None,
    ) -> None:
        """Enter the role; ``deadline_ms`` None is an observer's, which never stands for election."""
        super().__init__(epoch)
        self._deadline_ms = deadline_ms
        self._leader_id = leader_id
        self._voted_key = voted_key

    @property
    def leader_id(self) -> NodeId | None:
        """A leader whose end point is not known, if any."""
        return self._leader_id

    @property
    def voted_key(self) -> ReplicaKey | None:
        """The vote given in this epoch."""
        return self._voted_key

    @property
    def deadline_ms(self) -> int | None:
        """End of the election timer."""
        return self._deadline_ms

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, pre_vote: bool) -> bool:
        """Grant to whom it voted for already, else to an up-to-date log while no leader is known."""
        if pre_vote:
            return is_log_up_to_date
        if self._voted_key is not None:
            return same_voter(self._voted_key, candidate)
        return self._leader_id is None and is_log_up_to_date
