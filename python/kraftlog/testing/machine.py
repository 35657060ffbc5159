"""What a simulated cluster replicates: a machine that only remembers what it was given, and how far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kraftlog.types import Epoch, NodeId, Offset

__all__ = ["DigestMachine", "ReplicatedMachine", "digest_of"]

_FACTOR = 1_000_003
_MASK = (1 << 61) - 1


class ReplicatedMachine(Protocol):
    """What each replica of a simulated cluster applies committed records to."""

    def apply(self, base_offset: Offset, epoch: Epoch, records: Sequence[object]) -> None:
        """Take one batch of committed data records, the first of them at ``base_offset``."""

    def snapshot(self) -> object:
        """The whole state; it must not change when more is applied. None means not now."""

    def restore(self, state: object) -> None:
        """Forget everything and take up a state that ``snapshot`` gave, here or on another replica."""

    def on_leader_changed(self, leader_id: NodeId | None, epoch: Epoch, *, is_local: bool) -> None:
        """Another epoch, or its leader became known or unknown."""


def digest_of(digest: int, records: Sequence[object]) -> int:
    """A digest of everything before and of ``records``; equal in every process while the records are numbers."""
    return (digest * _FACTOR + hash(tuple(records))) & _MASK


class DigestMachine:
    """The machine of runs that test the consensus itself: its state is a digest of all that it was given."""

    __slots__ = ("digest",)

    def __init__(self) -> None:
        self.digest = 0

    def apply(self, base_offset: Offset, epoch: Epoch, records: Sequence[object]) -> None:
        """Take one batch of committed data records."""
        del base_offset, epoch
        self.digest = digest_of(self.digest, records)

    def snapshot(self) -> object:
        """The digest."""
        return self.digest

    def restore(self, state: object) -> None:
        """Go on from another digest."""
        self.digest = state if isinstance(state, int) else 0

    def on_leader_changed(self, leader_id: NodeId | None, epoch: Epoch, *, is_local: bool) -> None:
        """Nothing depends on who leads."""
