"""The decisions of a replica's move to another data directory, without I/O (KIP-113, KIP-858).

A copy of the log, the future replica, is filled in the other directory. Once it has caught up, the broker tells the
controller that the replica is there. When the metadata says so and the copy has caught up again, it takes the place of
the log.

    COPYING     the copy is being filled
    ASSIGNING   it has caught up, and the controller has been told; the copy follows the log
    ACCEPTED    the metadata names the other directory; the copy follows the log
    REPLACING   it takes the place of the log, or finds that it has to catch up first
    DONE        it has
    FAILED      it cannot be filled; it stays as it is until the next request, or the next start
    CANCELLED   the log stays where it is

Source: Kafka's ``ReplicaAlterLogDirsThread`` with its ``PromotionState``; KAFKA-16082, KAFKA-16297.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftlog.types import Uuid

__all__ = ["DirectoryMove", "FutureFate", "MoveState", "MoveStep", "future_fate"]


class MoveState(Enum):
    """How far a move is."""

    COPYING = "copying"
    ASSIGNING = "assigning"
    ACCEPTED = "accepted"
    REPLACING = "replacing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class MoveStep(Enum):
    """What is to be done next."""

    COPY = "copy"
    """Copy the next part, then call ``on_copied``."""
    WAIT = "wait"
    """Nothing for a moment; then COPY."""
    ASSIGN = "assign"
    """Tell the controller that the replica is in the other directory; then WAIT."""
    REPLACE = "replace"
    """Let the copy take the place of the log, then call ``on_replaced`` or ``on_behind``."""
    END = "end"
    """Nothing any more."""


class FutureFate(Enum):
    """What becomes of a future replica that is found at start."""

    STRAY = "stray"
    """The metadata does not place the partition here: it is kept under another name."""
    CURRENT = "current"
    """The metadata places the replica in its directory, and there is no other log: it becomes the log."""
    RESUMED = "resumed"
    """It is filled on."""


_ENDED = frozenset({MoveState.DONE, MoveState.FAILED, MoveState.CANCELLED})


class DirectoryMove:
    """One replica on its way to another data directory.

    Args:
        target: The id of the directory.
        needs_assignment: Whether the metadata has directories of replicas; the move does not ask for one otherwise.
    """

    def __init__(self, target: Uuid, *, needs_assignment: bool = True) -> None:
        self._target = target
        self._is_asked = False
        self._is_accepted = not needs_assignment
        self._needs_assignment = needs_assignment
        self._state = MoveState.COPYING

    @property
    def state(self) -> MoveState:
        """How far it is."""
        if self._state is not MoveState.COPYING:
            return self._state
        if self._is_accepted and self._needs_assignment:
            return MoveState.ACCEPTED
        return MoveState.ASSIGNING if self._is_asked else MoveState.COPYING

    @property
    def has_assignment(self) -> bool:
        """Whether the controller has been told of the other directory: nobody is to tell it of the present one."""
        return self._needs_assignment and (self._is_asked or self._is_accepted) and self._state not in _ENDED

    # -- events --------------------------------------------------------------------------------------------------

    def on_copied(self, *, future_end_offset: int, log_end_offset: int) -> MoveStep:
        """A part was copied.

        Args:
            future_end_offset: Exclusive end of the copy.
            log_end_offset: Exclusive end of the log before that part was copied.
        """
        if self._state in _ENDED:
            return MoveStep.END
        if future_end_offset < log_end_offset:
            return MoveStep.COPY
        if self._is_accepted:
            self._state = MoveState.REPLACING
            return MoveStep.REPLACE
        if self._is_asked:
            return MoveStep.WAIT
        self._is_asked = True
        return MoveStep.ASSIGN

    def on_assigned(self, directory: Uuid) -> None:
        """The metadata says in which directory the replica is."""
        if not self._needs_assignment:
            return
        was_accepted, self._is_accepted = self._is_accepted, directory == self._target
        if was_accepted and not self._is_accepted:
            # Somebody else assigned another directory: the controller has to be told again.
            self._is_asked = False

    def on_behind(self) -> MoveStep:
        """The log had grown too far for the copy to take its place."""
        if self._state in _ENDED:
            return MoveStep.END
        self._state = MoveState.COPYING
        return MoveStep.COPY

    def on_replaced(self) -> MoveStep:
        """The copy has taken the place of the log."""
        self._state = MoveState.DONE
        return MoveStep.END

    def on_failed(self) -> bool:
        """The copy cannot be filled. Whether the controller has to be told again where the replica is."""
        return self._end(MoveState.FAILED)

    def cancel(self) -> bool:
        """The move is given up. Whether the controller has to be told again where the replica is (RFET-85)."""
        return self._end(MoveState.CANCELLED)

    def _end(self, state: MoveState) -> bool:
        has_assignment = self.has_assignment
        if self._state is not MoveState.DONE:
            self._state = state
        return has_assignment


def future_fate(*, is_placed_here: bool, is_assigned: bool, has_current: bool) -> FutureFate:
    """What becomes of a future replica that is found at start (RDLT-56).

    Kafka lets one that the metadata names take the place of the current log also if that has more records. Here it is
    filled on first, so that a crash between the controller's answer and the replacement loses nothing.

    Args:
        is_placed_here: The metadata has a replica of this partition, with this topic id, on this node.
        is_assigned: The metadata has it in the directory of the future replica.
        has_current: There is a log of the partition in another directory.
    """
    if not is_placed_here:
        return FutureFate.STRAY
    return FutureFate.CURRENT if is_assigned and not has_current else FutureFate.RESUMED
