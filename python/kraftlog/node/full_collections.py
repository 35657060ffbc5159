"""Full collections of garbage wait while requests with many entries are in memory.

A full collection looks at each object that may be part of a cycle, and nothing interrupts it. A request of 200 000
entries adds several hundred thousand of them, for 50 to 130 ms per collection, although none is ever garbage: they are
freed when the request is done. While there are such requests, the collector looks at young objects only.

As with ``FrozenHeap``, a broker that is embedded in another program never does this.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from typing import Final

from kraftlog.transport.scheduler import Scheduler

__all__ = ["POSTPONED_MAX_S", "FullCollections"]

POSTPONED_MAX_S: Final = 120.0
"""If large requests follow each other without end, the whole heap is collected this often nevertheless."""

# Collections of the middle generation before a full one.
_NEVER: Final = 2**30


class FullCollections:
    """Changes the threshold of full collections.

    Args:
        loop: The running loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._schedulers: list[Scheduler] = []
        self._large_count = 0
        self._thresholds = gc.get_threshold()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, schedulers: Iterable[Scheduler]) -> None:
        """Follow the large requests of these."""
        for scheduler in schedulers:
            scheduler.on_large_request = self.follow
            self._schedulers.append(scheduler)

    def follow(self, change: int) -> None:
        """A large request came into memory (1), or is gone (-1)."""
        self._large_count += change
        if self._large_count == 1 and change > 0:
            self._thresholds = gc.get_threshold()
            gc.set_threshold(*self._thresholds[:2], _NEVER)
            self._timer = self._loop.call_later(POSTPONED_MAX_S, self._collect)
        elif not self._large_count:
            self._restore()

    def end(self) -> None:
        """The node has stopped."""
        for scheduler in self._schedulers:
            scheduler.on_large_request = None
        self._schedulers.clear()
        if self._large_count:
            self._large_count = 0
            self._restore()

    def _restore(self) -> None:
        gc.set_threshold(*self._thresholds)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _collect(self) -> None:
        gc.collect()
        self._timer = self._loop.call_later(POSTPONED_MAX_S, self._collect)
