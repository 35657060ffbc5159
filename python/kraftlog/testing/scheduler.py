"""Virtual time: events by time, and by the order in which they were asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Scheduler"]

Action: TypeAlias = Callable[[], None]


class Scheduler:
    """An event queue.

    Attributes:
        now_us: Virtual time in microseconds.
        event_count: Events carried out.
    """

    __slots__ = ("_queue", "_sequence", "event_count", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.event_count = 0
        self._queue: list[tuple[int, int, Action]] = []
        self._sequence = 0

    def after(self, delay_us: int, action: Action) -> None:
        """Call ``action`` once ``delay_us`` microseconds have passed."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_us + delay_us, self._sequence, action))

    def step(self) -> bool:
        """Carry out the next event; return False when there is none."""
        if not self._queue:
            return False
        self.now_us, _, action = heapq.heappop(self._queue)
        self.event_count += 1
        action()
        return True

    @property
    def next_us(self) -> int | None:
        """When the next event is due."""
        return self._queue[0][0] if self._queue else None
