"""An event that a task waits for until a moment, without a timer for each wait."""

from __future__ import annotations

import asyncio
import math

__all__ = ["TimedEvent"]


class TimedEvent:
    """``asyncio.Event`` for one task that waits for it again and again, each time until some moment.

    A loop that does its work whenever it is woken, and at the latest when something is due, would make a timer under
    ``asyncio.timeout`` for each turn and cancel it. Here a timer that is early enough for the next wait is kept.
    """

    __slots__ = ("_is_set", "_timer", "_until_s", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = math.inf

    def set(self) -> None:
        """Wake the task that waits, or let its next wait return at once."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        """Let the next wait last until ``set``."""
        self._is_set = False

    async def wait_until(self, until_s: float | None = None) -> bool:
        """Wait; returns whether the event is set, False only after ``until_s``.

        Args:
            until_s: Time of the loop; None for no limit.

        Raises:
            RuntimeError: Another task waits for it.
        """
        if self._is_set:
            return True
        if self._waiter is not None:
            msg = "another task waits for this event"
            raise RuntimeError(msg)
        loop = asyncio.get_running_loop()
        self._until_s = math.inf if until_s is None else until_s
        if until_s is not None and (self._timer is None or self._timer.when() > until_s):
            self._arm(loop, until_s)
        self._waiter = loop.create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            # Nobody is left, mostly: the timer would keep the loop's owner for as long as it runs.
            self._disarm()
            raise
        finally:
            self._waiter = None
        return self._is_set

    def _arm(self, loop: asyncio.AbstractEventLoop, at_s: float) -> None:
        self._disarm()
        self._timer = loop.call_at(at_s, self._time_over, loop, at_s)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_over(self, loop: asyncio.AbstractEventLoop, at_s: float) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if at_s >= self._until_s:
            self._waiter.set_result(None)
        elif self._until_s < math.inf:
            self._arm(loop, self._until_s)
