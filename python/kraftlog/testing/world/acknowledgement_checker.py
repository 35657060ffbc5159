"""An operation that a controller acknowledged is committed and keeps its offset (docs/behaviours, INV-12)."""

from __future__ import annotations

from collections import Counter, deque
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from kraftlog.errors import PoisonedLogError
from kraftlog.testing.log_invariants import InvariantViolationError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from kraftlog.runtime.raft.log_machine import Proposed
    from kraftlog.runtime.raft.replicated_log import ReplicatedLog
    from kraftlog.storage.metadata_log import MetadataLog
    from kraftlog.testing.world.node_machine import NodeMachine

__all__ = ["AcknowledgementChecker", "PendingAnswers"]


class PendingAnswers:
    """The operations of one process whose answers wait for what it proposed.

    Args:
        replicated_log: Of the process.

    Attributes:
        proposals: Of the process.
        waiting: What waits, and the proposal that it waits for, in order.
    """

    __slots__ = ("_latest", "proposals", "waiting")

    def __init__(self, replicated_log: ReplicatedLog[Any]) -> None:
        self.proposals = replicated_log
        self._latest: Proposed[Any] | None = None
        self.waiting: deque[tuple[asyncio.Future[Any], Proposed[Any]]] = deque()

    def take_told(self) -> list[Proposed[Any]]:
        """The proposals of those that were told of success since the last call, in order."""
        pending = self.proposals.pending
        if pending and pending[-1] is not self._latest:
            new = list(takewhile(lambda proposed: proposed is not self._latest, reversed(pending)))
            self._latest = pending[-1]
            for proposed in reversed(new):
                # Of an operation with several batches the last one has the answer. Callers of a Quorum wait elsewhere.
                future = getattr(proposed.payload, "future", None)
                if future is not None:
                    self.waiting.append((future, proposed))
        told: list[Proposed[Any]] = []
        while self.waiting and self.waiting[0][0].done():
            future, proposed = self.waiting.popleft()
            if not future.cancelled() and future.exception() is None:
                told.append(proposed)
        return told


class AcknowledgementChecker:
    """Compares what operations of controllers, and callers of a ``Quorum``, were told with the committed log.

    Args:
        looked: Counts how often the rule had something to look at.
    """

    def __init__(self, looked: Counter[str]) -> None:
        self._looked = looked
        # By offset: the epoch of the record that was acknowledged there.
        self._epochs: dict[int, int] = {}

    def check(self, machine: NodeMachine, answers: PendingAnswers, *, committed: int) -> None:
        """Look at the operations that were answered.

        Args:
            machine: Of the process.
            answers: Of the process.
            committed: The greatest high watermark that any replica has shown.

        Raises:
            InvariantViolationError: One was told of success, and its records are not committed, or other ones are.
        """
        for proposed in answers.take_told():
            self._looked["INV-12"] += 1
            offset, epoch = proposed.last_offset, proposed.epoch
            if offset >= committed:
                _fail(machine, f"an operation succeeded, its offset {offset} is not below {committed}")
            self._note(machine, offset, epoch)

    def check_callers(self, machine: NodeMachine, log: MetadataLog, *, committed: int) -> None:
        """Look at the offsets that callers of a ``Quorum`` were told, who may have asked any replica.

        Args:
            machine: Whose callers they are.
            log: Of its process.
            committed: The greatest high watermark that any replica has shown.

        Raises:
            InvariantViolationError: A command is not committed, or another one is there.
        """
        offsets, machine.acknowledged = machine.acknowledged, []
        for offset in offsets:
            self._looked["INV-12"] += 1
            if offset >= committed:
                _fail(machine, f"a command succeeded, its offset {offset} is not below {committed}")
        if machine.has_bad_disk:
            return
        try:
            starts, start_offset, end_offset = log.leader_epochs, log.log_start_offset, log.log_end_offset
        except PoisonedLogError:
            return  # a flush failed: nothing is read from this log any more
        for offset in offsets:
            if start_offset <= offset < end_offset:
                self._note(machine, offset, _epoch_at(starts, offset))

    def check_leader(self, machine: NodeMachine, log: MetadataLog) -> None:
        """A new leader has all that was acknowledged, at its offset.

        Raises:
            InvariantViolationError: A record is not there, or is one of another epoch.
        """
        if machine.has_bad_disk or not self._epochs:
            return
        try:
            starts, start_offset, end_offset = log.leader_epochs, log.log_start_offset, log.log_end_offset
        except PoisonedLogError:
            return  # a flush failed: nothing is read from this log any more
        self._looked["INV-12"] += 1
        for offset, epoch in self._epochs.items():
            found = _epoch_at(starts, offset)
            if offset >= start_offset and (offset >= end_offset or found != epoch):
                reason = f"leads with epoch {found} at offset {offset} of {end_offset}; epoch {epoch} was acknowledged"
                _fail(machine, reason)

    def _note(self, machine: NodeMachine, offset: int, epoch: int | None) -> None:
        if epoch is not None and self._epochs.setdefault(offset, epoch) != epoch:
            reason = f"records of epochs {self._epochs[offset]} and {epoch} were acknowledged at offset {offset}"
            _fail(machine, reason)


def _epoch_at(starts: Sequence[tuple[int, int]], offset: int) -> int | None:
    """Of the record at an offset; None below the first epoch that is known."""
    return max((epoch for epoch, start in starts if start <= offset), default=None)


def _fail(machine: NodeMachine, reason: str) -> None:
    raise InvariantViolationError("INV-12", f"{machine.name}: {reason}")
