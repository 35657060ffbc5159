"""A connection takes no request for a time, since its client used up a quota (KIP-219)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Mute"]

_LONGEST_S = 24 * 3600.0  # what a timer of a loop may be asked for


class Mute:
    """Says whether a connection is muted.

    Args:
        loop: Has the timer.
        on_end: Called when the connection may take requests again.

    Attributes:
        is_on: Whether it is muted now.
    """

    __slots__ = ("_loop", "_on_end", "_timer", "_until_s", "is_on")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
        self._loop = loop
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        self.is_on = False

    def extend(self, duration_ms: int) -> None:
        """Mute for that time from now on, unless it is muted for longer already."""
        until_s = self._loop.time() + duration_ms / 1000
        if duration_ms <= 0 or (self.is_on and until_s <= self._until_s):
            return
        self._until_s = until_s
        self.is_on = True
        self._arm()

    def close(self) -> None:
        """End without calling anybody: the connection is gone. Harmless when called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self.close()
        left_s = self._until_s - self._loop.time()
        self._timer = self._loop.call_later(min(left_s, _LONGEST_S), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._loop.time() < self._until_s:
            self._arm()
            return
        self.is_on = False
        self._on_end()
