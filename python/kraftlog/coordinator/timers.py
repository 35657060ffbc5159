"""Deadlines of a state machine: one per key, the earliest first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable

__all__ = ["Timers"]


class Timers:
    """Deadlines with what to do when they pass.

    Scheduling a key again replaces its deadline. Deadlines that were replaced or cancelled stay in the heap until they
    come up, so that both cost O(log n).
    """

    __slots__ = ("_entries", "_heap", "_next_number")

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[int, int, Callable[[int], None]]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._next_number = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def schedule(self, key: Hashable, at_ms: int, action: Callable[[int], None]) -> None:
        """Call ``action`` with the time once ``at_ms`` has passed, unless ``key`` is scheduled or cancelled first."""
        self._next_number += 1
        self._entries[key] = (at_ms, self._next_number, action)
        heapq.heappush(self._heap, (at_ms, self._next_number, key))

    def schedule_by(self, key: Hashable, at_ms: int, action: Callable[[int], None]) -> None:
        """Call ``action`` at ``at_ms``, unless ``key`` is scheduled for that time or earlier.

        For deadlines that move into the future with each request: the action looks at the deadline and schedules it
        again if it has moved, so that a request costs no work here.
        """
        entry = self._entries.get(key)
        if entry is None or entry[0] > at_ms:
            self.schedule(key, at_ms, action)

    def cancel(self, key: Hashable) -> None:
        """Drop the deadline of ``key``, if there is one."""
        self._entries.pop(key, None)

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        while self._heap:
            at_ms, number, key = self._heap[0]
            entry = self._entries.get(key)
            if entry is not None and entry[1] == number:
                return at_ms
            heapq.heappop(self._heap)
        return None

    def run(self, now_ms: int) -> None:
        """Do what is due, the earliest first; deadlines that this adds run too if they are due."""
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            _, _, key = heapq.heappop(self._heap)
            _, _, action = self._entries.pop(key)
            action(now_ms)
