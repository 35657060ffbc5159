"""Work of the replicas that is done later on the event loop, once or again and again, as long as they are open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

__all__ = ["ReplicaTimers"]


class ReplicaTimers:
    """Timers that end with their owner.

    Args:
        loop: Where the work runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[object, asyncio.TimerHandle] = {}
        self._is_stopped = False

    def every(self, interval_ms: int, work: Callable[[], None], *, delay_ms: int | None = None) -> None:
        """Run ``work`` after ``delay_ms`` (the interval when None), then each ``interval_ms``."""

        def run() -> None:
            work()
            if not self._is_stopped:
                self._timers[work] = self._loop.call_later(interval_ms / 1000, run)

        self._timers[work] = self._loop.call_later((interval_ms if delay_ms is None else delay_ms) / 1000, run)

    def once(self, delay_s: float, work: Callable[..., None], *arguments: Any) -> None:
        """Run ``work(*arguments)`` after ``delay_s``; never once the timers are stopped."""
        if self._is_stopped:
            return
        key = object()

        def run() -> None:
            del self._timers[key]
            work(*arguments)

        self._timers[key] = self._loop.call_later(delay_s, run)

    def stop(self) -> None:
        """Nothing is done after this."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
