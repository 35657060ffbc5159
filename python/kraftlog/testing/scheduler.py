"""Virtual time: events by time, and by the order in which they were asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Scheduler"]

Action: TypeAlias = Callable[..., object]

_FACTOR = 1_000_003
_MASK = (1 << 64) - 1


class Scheduler:
    """An event queue. Nothing happens between two events, so idle time costs nothing.

    Attributes:
        now_us: Virtual time in microseconds.
        event_count: Events carried out.
        fingerprint: 64 bits that depend on the time and the order of every event so far.
    """

    __slots__ = ("_queue", "_sequence", "event_count", "fingerprint", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.event_count = 0
        self.fingerprint = 0
        self._queue: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._sequence = 0

    def after(self, delay_us: int, action: Action, *arguments: object) -> None:
        """Call ``action`` with the arguments once ``delay_us`` microseconds have passed."""
        self._sequence = sequence = self._sequence + 1
        heapq.heappush(self._queue, (self.now_us + delay_us, sequence, action, arguments))

    def run_until(self, end_us: int, is_over: Callable[[], bool] | None = None) -> None:
        """Carry out every event that is due before ``end_us`` (exclusive); time stands at ``end_us`` afterwards.

        Args:
            end_us: Virtual time.
            is_over: Asked after each event; time stands still once it says yes.
        """
        queue, pop, factor, mask = self._queue, heapq.heappop, _FACTOR, _MASK
        count, fingerprint = 0, self.fingerprint
        try:
            while queue and queue[0][0] < end_us:
                now_us, sequence, action, arguments = pop(queue)
                self.now_us = now_us
                count += 1
                fingerprint = (fingerprint * factor ^ now_us + (sequence << 40)) & mask
                action(*arguments)
                if is_over is not None and is_over():
                    return
            self.now_us = max(self.now_us, end_us)
        finally:
            self.event_count += count
            self.fingerprint = fingerprint
