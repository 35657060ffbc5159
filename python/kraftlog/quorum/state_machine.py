"""What a user replicates: ``StateMachine``, and the batches it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["CommittedBatch", "StateMachine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBatch:
    """Commands that were committed together.

    Args:
        base_offset: Offset of the first command; the others follow without gaps.
        epoch: Leader epoch in which they were appended.
        timestamp_ms: When the leader appended them, Unix ms: the same on every replica.
        size_bytes: As encoded in the log.
        commands: At least one, in the order of their offsets.
    """

    base_offset: int
    epoch: int
    timestamp_ms: int
    size_bytes: int
    commands: Sequence[bytes]

    @property
    def last_offset(self) -> int:
        """Offset of the last command (inclusive)."""
        return self.base_offset + len(self.commands) - 1

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Each command with its offset."""
        return enumerate(self.commands, self.base_offset)

    def __len__(self) -> int:
        return len(self.commands)


class StateMachine(ABC):
    """The state that every replica builds from the same commands.

    The methods are called one at a time, on the event loop of the quorum, and must not block. ``apply`` has to be
    deterministic: no clock, no chance, no order of a set; ``batch.timestamp_ms`` is the same on every replica. What
    they raise stops this replica.
    """

    @abstractmethod
    def apply(self, batch: CommittedBatch) -> Sequence[object] | None:
        """Apply committed commands.

        Args:
            batch: What comes next. Offsets rise by one, but for the quorum's own records, which are not given out.

        Returns:
            One result for each command, for ``Quorum.call`` on the replica that was asked; None for none.
        """

    @abstractmethod
    def snapshot(self) -> Iterable[bytes] | Callable[[], Iterable[bytes]] | None:
        """The whole state, as the records of a checkpoint.

        An iterable is consumed before the next ``apply``. For a large state return a function instead: it is called on
        another thread while commands are being applied, so it must not look at anything that ``apply`` changes. None
        means not now.
        """

    @abstractmethod
    def restore(self, records: Sequence[bytes]) -> None:
        """Replace the state by that of a checkpoint: at the start, and after falling far behind. See ``load``."""

    def load(self, records: Iterator[bytes]) -> Callable[[], None]:
        """Prepare the state of a snapshot on another thread; what this returns puts it in place, on the loop.

        Without a method of its own, a machine gets all records at once by ``restore``. One with a large state overrides
        this: it takes the records one by one, as they are read from the file, and builds a second state beside the one
        that is still read. Nothing is applied before that is in place; the replica votes and replicates meanwhile.

        Args:
            records: Of the snapshot; it raises when the snapshot is not wanted any more, or cannot be read.

        Returns:
            What takes the new state; it must not block.
        """
        kept = list(records)
        return lambda: self.restore(kept)

    def on_leader_change(  # noqa: B027  most have nothing to do
        self, leader_id: int | None, epoch: int
    ) -> None:
        """Another leader, or none.

        This replica's own leadership is announced once everything from before its epoch is applied.
        """

    def on_stop(self, error: BaseException | None) -> None:  # noqa: B027  as above
        """The replica begins to stop: asked to (None), or because of ``error``. Called once."""
