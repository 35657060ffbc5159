"""Shares the event loop among connections: those that sent much wait behind those that sent little.

``docs/design/0016-fair-service.md`` has the reasons for the figures.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from kraftlog import host

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["SLICE_S", "TURN_S", "Scheduler", "Served", "Weight"]

# What one connection may use before another one's turn comes.
SLICE_S: Final = 0.0005
# What all connections may use in one turn of the loop: this much from the queue, and this much at once.
TURN_S: Final = 0.002
# Work of connections in one turn of the loop has no such gap, unless something else used the loop.
_GAP_S: Final = 0.001


class Weight(Enum):
    """What is known about the work of a connection."""

    LIGHT = auto()
    """Its last work fitted one slice."""
    UNKNOWN = auto()
    """It is new, or its work was light until it used up a slice."""
    HEAVY = auto()
    """It has work for several slices."""


class Served(Protocol):
    """Whatever takes slices of the loop: a connection, or a large request."""

    def serve(self, slice_end_s: float) -> Weight | None:
        """Work until the clock of the scheduler says ``slice_end_s``.

        Returns:
            Where to wait for the next slice, or None when there is nothing to do; then ``Scheduler.add`` brings it
            back.
        """
        ...


class Scheduler:
    """A queue of connections that have something to do, and a budget for those that need not queue.

    A connection that becomes readable is served at once while the current turn of the loop has time left. Beyond that
    it joins the queue, and so does a connection with work for more than one slice. The queue has three parts, by
    weight, and each is a round. A connection thus waits for at most one slice of each other one of its weight, and not
    for those that sent much. The loop runs everything else it has, such as reading sockets, between two turns.

    Args:
        loop: Runs the queue.
        clock: Seconds; also while a callback runs, unlike the time of some loops.

    Attributes:
        on_large_request: Called with 1 when the objects of a large request come into memory, with -1 when they are
            gone.
    """

    __slots__ = ("_at_once_until", "_is_armed", "_last_end", "_loop", "_parts", "clock", "on_large_request")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] | None = None) -> None:
        self._loop = loop
        self.clock = clock or host.clock_of(loop)
        self._parts: dict[Weight, deque[Served]] = {weight: deque() for weight in Weight}
        self._is_armed = False
        self._at_once_until = 0.0
        self._last_end = 0.0
        self.on_large_request: Callable[[int], None] | None = None

    def count_large(self, change: int) -> None:
        """Note that the objects of a large request are in memory (1), or are gone (-1)."""
        if self.on_large_request is not None:
            self.on_large_request(change)

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def admits(self, now_s: float) -> bool:
        """Whether a slice of work may be done at once; else the caller joins the queue with ``add``.

        The time at once is bounded per turn of the loop, although nothing tells one turn from the next: it ends at an
        instant, and begins anew when the queue ran, which is once per turn, or after a pause of all connections.
        """
        if now_s < self._at_once_until:
            return True
        if self._is_armed or now_s - self._last_end < _GAP_S:
            return False
        self._at_once_until = now_s + TURN_S
        return True

    def ended(self, now_s: float) -> None:
        """Note when work at once ended."""
        self._last_end = now_s

    def add(self, served: Served, weight: Weight) -> None:
        """Queue for a slice.

        Args:
            served: Not in the queue.
            weight: The part of the queue.
        """
        self._parts[weight].append(served)
        if not self._is_armed:
            self._is_armed = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """One turn of the queue; at least one slice of each part of it, so that no part starves another."""
        now_s = self.clock()
        end_s = now_s + TURN_S
        for part in self._parts.values():
            is_first = True
            while part and (is_first or now_s < end_s):
                is_first = False
                now_s = self._serve(part.popleft(), now_s)
        self._at_once_until = now_s + TURN_S
        self._last_end = now_s
        if self:
            self._loop.call_soon(self._run)
        else:
            self._is_armed = False

    def _serve(self, served: Served, now_s: float) -> float:
        weight = served.serve(now_s + SLICE_S)
        if weight is not None:
            self._parts[weight].append(served)
        return self.clock()
