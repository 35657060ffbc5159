"""A checkpoint that a state machine takes in on another thread, while the raft side goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from kraftlog.errors import NodeClosedError
from kraftlog.types import SnapshotId

__all__ = ["Loading", "LoadingWork"]


class Loading:
    """How far a checkpoint is taken in, and whether it still is to be.

    Args:
        snapshot_id: Of the checkpoint.

    Attributes:
        snapshot_id: As given.
        record_count: Records that the state machine has got. The thread that loads changes it.
        is_void: Whether another checkpoint took its place, or the replica ends; set on the loop.
        error: What reading failed with, which is no fault of the state machine.
    """

    def __init__(self, snapshot_id: SnapshotId) -> None:
        self.snapshot_id = snapshot_id
        self.record_count = 0
        self.is_void = False
        self.error: Exception | None = None

    def counted(self, values: Iterable[bytes]) -> Iterator[bytes]:
        """The values, as long as they are wanted.

        Raises:
            NodeClosedError: They are not wanted any more.
            Exception: What reading them raises.
        """
        values = iter(values)
        while True:
            try:
                if self.is_void:
                    raise NodeClosedError("the checkpoint is not wanted any more")
                value = next(values, None)
            except Exception as error:
                self.error = error
                raise
            if value is None:
                return
            self.record_count += 1
            yield value


LoadingWork: TypeAlias = Callable[[Loading], Callable[[], None]]
"""Called on a thread of its own; what it returns puts the state in place, on the loop."""
