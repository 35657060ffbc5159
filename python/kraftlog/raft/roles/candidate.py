"""Candidate: voted for itself in a new epoch and asks the others to."""

from __future__ import annotations

from kraftlog.raft.election import EpochElection
from kraftlog.raft.roles.role import Role
from kraftlog.raft.voter_set import VoterSet
from kraftlog.types import Epoch, NodeId, ReplicaKey

__all__ = ["Candidate"]


class Candidate(Role):
    """Counts votes, its own first."""

    __slots__ = ("_deadline_ms", "_local_key", "election")

    name = "candidate"

    def __init__(self, epoch: Epoch, *, local_key: ReplicaKey, voters: VoterSet, deadline_ms: int) -> None:
        """Enter the role with its own vote counted.

        Raises:
            ValueError: This replica is not in the voter set (VOTE-25).
        """
        super().__init__(epoch)
        if not voters.contains(local_key):
            msg = f"{local_key} is not in the voter set {voters.ids}"
            raise ValueError(msg)
        self._deadline_ms = deadline_ms
        self._local_key = local_key
        self.election = EpochElection(voters, local_id=local_key.node_id)
        self.election.record(local_key.node_id, granted=True)

    @property
    def leader_id(self) -> NodeId | None:
        """None: the epoch has no leader yet."""
        return None

    @property
    def voted_key(self) -> ReplicaKey | None:
        """Itself."""
        return self._local_key

    @property
    def deadline_ms(self) -> int | None:
        """End of the election timer."""
        return self._deadline_ms

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, pre_vote: bool) -> bool:
        """A pre-vote to an up-to-date log; never a vote, that one is given (VOTE-09)."""
        del candidate
        return pre_vote and is_log_up_to_date
