"""Small steps on the event loop, a bounded amount per turn, so that clients are served in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from kraftlog import host

__all__ = ["STEPS_PER_TURN", "StepQueue"]

STEPS_PER_TURN = 32
_TURN_NS = 4_000_000

T = TypeVar("T")


class StepQueue:
    """Runs steps in order, at most ``STEPS_PER_TURN`` of them, or about 4 ms, in one turn of the loop.

    Args:
        loop: Where the steps run.

    Attributes:
        largest_turn: The most steps that one turn has run.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Each with the arguments of the steps that are left; a large number of steps is one entry.
        self._steps: deque[tuple[Callable[[Any], None], Iterator[Any]]] = deque()
        self._is_scheduled = False
        self._is_paused = False
        self._is_closed = False
        self.largest_turn = 0

    def __bool__(self) -> bool:
        """Whether any step is left."""
        return bool(self._steps)

    def add(self, step: Callable[[], None]) -> None:
        """Run ``step`` after those added before; called on the loop."""
        self.add_each(lambda _: step(), (None,))

    def add_each(self, step: Callable[[T], None], arguments: Iterable[T]) -> None:
        """Run ``step`` for each argument after those added before; called on the loop.

        Args:
            step: Runs once per argument.
            arguments: Nobody changes them until the last one has been taken.
        """
        if not self._is_closed:
            self._steps.append((step, iter(arguments)))
            self._schedule()

    def add_threadsafe(self, step: Callable[[], None]) -> None:
        """Like ``add``, from any thread; a loop that is closed has no use for the step."""
        try:
            self._loop.call_soon_threadsafe(self.add, step)
        except RuntimeError:
            return

    def pause(self) -> None:
        """Keep what is added until ``resume``."""
        self._is_paused = True

    def resume(self) -> None:
        """Run steps again."""
        self._is_paused = False
        self._schedule()

    def close(self) -> None:
        """Forget the steps that are left and all that are added later."""
        self._is_closed = True
        self._steps.clear()

    def _schedule(self) -> None:
        if self._steps and not self._is_scheduled and not self._is_paused:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        end_ns = host.monotonic_ns() + _TURN_NS
        count = 0
        try:
            while self._steps and not self._is_paused and count < STEPS_PER_TURN:
                step, arguments = self._steps[0]
                try:
                    argument = next(arguments)
                except StopIteration:
                    self._steps.popleft()
                    continue
                count += 1
                step(argument)
                if host.monotonic_ns() >= end_ns:
                    break
        finally:
            self.largest_turn = max(self.largest_turn, count)
            self._schedule()
