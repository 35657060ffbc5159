"""Prospective: asks whether it would be elected, without raising the epoch (KIP-996)."""

from __future__ import annotations

from kraftlog.raft.election import EpochElection
from kraftlog.raft.roles.role import Role, same_voter
from kraftlog.raft.voter_set import Endpoint, VoterSet
from kraftlog.types import Epoch, NodeId, ReplicaKey

__all__ = ["Prospective"]


class Prospective(Role):
    """Counts pre-votes, its own first."""

    __slots__ = ("_deadline_ms", "_leader_id", "_voted_key", "election", "leader_endpoints")

    name = "prospective"

    def __init__(
        self,
        epoch: Epoch,
        *,
        local_id: NodeId,
        voters: VoterSet,
        deadline_ms: int,
        leader_id: NodeId | None = None,
        leader_endpoints: tuple[Endpoint, ...] = (),
        voted_key: ReplicaKey | None = None,
    ) -> None:
        """Enter the role with its own pre-vote counted."""
        super().__init__(epoch)
        self._deadline_ms = deadline_ms
        self._leader_id = leader_id
        self.leader_endpoints = leader_endpoints
        self._voted_key = voted_key
        self.election = EpochElection(voters, local_id=local_id)
        self.election.record(local_id, granted=True)

    @property
    def leader_id(self) -> NodeId | None:
        """The last known leader of the epoch."""
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
        """As an unattached replica does."""
        if pre_vote:
            return is_log_up_to_date
        if self._voted_key is not None:
            return same_voter(self._voted_key, candidate)
        return self._leader_id is None and is_log_up_to_date
