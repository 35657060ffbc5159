"""Counting votes of one election, and what of an election must be durable."""

from __future__ import annotations

from kraftlog.raft.voter_set import Voter, VoterSet
from kraftlog.types import ElectionState, NodeId

__all__ = ["ElectionState", "EpochElection"]


class EpochElection:
    """Who granted and who rejected, in one epoch, over one voter set."""

    __slots__ = ("_answers", "_granted_count", "_local_id", "_unanswered", "_voters")

    def __init__(self, voters: VoterSet, *, local_id: NodeId | None = None) -> None:
        """Start with no answer from anyone, ``local_id`` being the candidate."""
        self._voters = voters
        self._local_id = local_id
        self._answers: dict[NodeId, bool] = {}
        self._granted_count = 0
        self._unanswered: tuple[Voter, ...] = tuple(voters)

    def record(self, voter_id: NodeId, *, granted: bool) -> None:
        """Note an answer; the same answer twice changes nothing, the latest answer of a voter counts (PREV-03).

        Raises:
            ValueError: Not a voter of this election, or the candidate rejects itself (PREV-04).
        """
        if voter_id == self._local_id and not granted:
            msg = f"{voter_id} cannot reject itself"
            raise ValueError(msg)
        if self._voters.get(voter_id) is None:
            msg = f"{voter_id} is not in the voter set {self._voters.ids}"
            raise ValueError(msg)
        self._answers[voter_id] = granted
        self._granted_count = sum(self._answers.values())
        self._unanswered = tuple(voter for voter in self._voters if voter.key.node_id not in self._answers)

    @property
    def unanswered(self) -> tuple[Voter, ...]:
        """Voters that have not answered, by id."""
        return self._unanswered

    def is_voter(self, voter_id: NodeId) -> bool:
        """Whether this id may answer."""
        return self._voters.get(voter_id) is not None

    def answer(self, voter_id: NodeId) -> bool | None:
        """What a voter answered; None when it has not."""
        return self._answers.get(voter_id)

    @property
    def granting_voters(self) -> tuple[NodeId, ...]:
        """Ids that granted, ascending."""
        return tuple(sorted(voter_id for voter_id, granted in self._answers.items() if granted))

    @property
    def is_granted(self) -> bool:
        """Whether a majority granted."""
        return self._granted_count >= self._voters.majority_size

    @property
    def is_rejected(self) -> bool:
        """Whether the answers still missing cannot make a majority any more."""
        return self._granted_count + len(self._unanswered) < self._voters.majority_size
