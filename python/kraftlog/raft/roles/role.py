"""What every role can tell about itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from kraftlog.types import ElectionState, Epoch, NodeId, ReplicaKey

__all__ = ["Role", "RoleWatcher"]


class Role:
    """One role in one epoch.

    Its methods are abstract to the type checker alone: ``isinstance`` of a class with ``ABCMeta`` is slow, and every
    event asks for the role several times.
    """

    __slots__ = ("epoch",)

    name: str

    def __init__(self, epoch: Epoch) -> None:
        """Enter the role in ``epoch``."""
        self.epoch = epoch

    @property
    @abstractmethod
    def leader_id(self) -> NodeId | None:
        """The leader of the epoch, as far as known."""

    @property
    @abstractmethod
    def voted_key(self) -> ReplicaKey | None:
        """Who has this replica's vote in the epoch."""

    @property
    def election_state(self) -> ElectionState:
        """What of this role has to be durable."""
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted_key=self.voted_key)

    @property
    @abstractmethod
    def deadline_ms(self) -> int | None:
        """When ``handle_timeout`` is wanted; None for never."""

    @abstractmethod
    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, pre_vote: bool) -> bool:
        """Whether a vote (or pre-vote) for this epoch would be granted."""


def same_voter(voted: ReplicaKey, candidate: ReplicaKey) -> bool:
    """Whether a stored vote is for this candidate; a vote stored without directory id matches any (VOTE-05)."""
    if voted.node_id != candidate.node_id:
        return False
    return voted.directory_id == bytes(16) or voted.directory_id == candidate.directory_id


RoleWatcher: TypeAlias = Callable[[Role, Role], None]
"""Is called with the role before and the role after a change."""
