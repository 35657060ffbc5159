"""How many requests may wait to be handled, over the connections of an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["REQUESTS_MAX", "RequestRoom"]

REQUESTS_MAX: Final = 500
"""The default of queued.max.requests."""


class Waiter(Protocol):
    """A connection that receives nothing because there is no room."""

    def room_freed(self) -> None:
        """Receive again; there may be no room any more."""


class RequestRoom:
    """Kafka's queue of requests and its memory pool (``RequestChannel``, ``SimpleMemoryPool``).

    A connection counts as one request, however many of its frames wait: Kafka reads the next one after the response.
    Frames count with their bytes. A connection may receive while there is any room, so that a frame that is larger
    than the bound passes alone. What waits for its own connection does not count: an earlier request, or a peer that
    takes no responses.

    Args:
        loop: Of the connections.
        requests_max: queued.max.requests.
        bytes_max: queued.max.request.bytes; 0 or less is no bound.
    """

    __slots__ = ("_bytes", "_bytes_max", "_is_armed", "_loop", "_requests", "_requests_max", "_waiters")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, requests_max: int = REQUESTS_MAX, bytes_max: int = -1
    ) -> None:
        self._loop = loop
        self._requests_max = requests_max
        self._bytes_max = bytes_max if bytes_max > 0 else None
        self._requests = 0
        self._bytes = 0
        self._waiters: dict[Waiter, None] = {}
        self._is_armed = False

    @property
    def is_free(self) -> bool:
        """Whether a connection may receive further requests."""
        return self._requests < self._requests_max and (self._bytes_max is None or self._bytes < self._bytes_max)

    def change(self, before_bytes: int, now_bytes: int) -> None:
        """The frames of one connection that wait had ``before_bytes`` and have ``now_bytes``; 0 if none waits."""
        self._requests += bool(now_bytes) - bool(before_bytes)
        self._bytes += now_bytes - before_bytes
        if self._waiters and not self._is_armed and self.is_free:
            self._arm()

    def wait(self, waiter: Waiter) -> None:
        """Call ``waiter`` once there is room, after those that wait already."""
        self._waiters[waiter] = None

    def leave(self, waiter: Waiter) -> None:
        """Wait no more."""
        self._waiters.pop(waiter, None)

    def _arm(self) -> None:
        self._is_armed = True
        self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        """Let as many go on as may find room; the others look again in the next turn, as these may not need it."""
        self._is_armed = False
        count = self._requests_max - self._requests if self.is_free else 0
        while count > 0 and self._waiters:
            count -= 1
            waiter = next(iter(self._waiters))
            del self._waiters[waiter]
            waiter.room_freed()
        if self._waiters and self.is_free:
            self._arm()
