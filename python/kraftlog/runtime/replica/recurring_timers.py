"""Work that recurs on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["RecurringTimers"]


class RecurringTimers:
    """Timers that are armed again after each run.

    Args:
        loop: Where the work runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._is_stopped = False

    def every(self, interval_ms: int, work: Callable[[], None], *, delay_ms: int | None = None) -> None:
        """Run ``work`` after ``delay_ms`` (the interval when None), then each ``interval_ms``."""

        def run() -> None:
            work()
            if not self._is_stopped:
                self._timers[work] = self._loop.call_later(interval_ms / 1000, run)

        self._timers[work] = self._loop.call_later((interval_ms if delay_ms is None else delay_ms) / 1000, run)

    def stop(self) -> None:
        """Nothing recurs after this."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
