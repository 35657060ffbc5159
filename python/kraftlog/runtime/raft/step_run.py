"""Work in steps on an event loop: a few milliseconds of it in each turn."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, Generic, TypeVar

from kraftlog import host

__all__ = ["TURN_NS", "StepRun"]

T = TypeVar("T")

TURN_NS: Final = 4_000_000
"""How long steps run in one turn of the loop; the step that is running then still ends."""


class StepRun(Generic[T]):
    """Work that goes on turn by turn.

    Args:
        steps: The work; yields between its steps, and returns its result.

    Attributes:
        result: What the work returned, once ``is_done``.
        is_done: Whether all steps have run.
    """

    result: T

    def __init__(self, steps: Generator[None, None, T]) -> None:
        self._steps = steps
        self.is_done = False

    def advance(self, end_ns: float) -> bool:
        """Run at least one step, then more until the monotonic clock is at ``end_ns``; returns ``is_done``.

        Raises:
            Exception: What a step raised; the work has ended.
        """
        try:
            while True:
                next(self._steps)
                if host.monotonic_ns() >= end_ns:
                    return False
        except StopIteration as end:
            self.result = end.value
            self.is_done = True
            return True

    def close(self) -> None:
        """Give the work up."""
        self._steps.close()
