"""Notices that peers left from which nothing is received for now."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

__all__ = ["PeerWatch"]


class PeerWatch:
    """Sockets that are not read; only the end of the stream is reported.

    A loop tells that a socket ended only to who reads it, and one that may not be read for now ends unnoticed. Where
    there is no epoll, that remains so.

    Args:
        loop: Calls back.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll: Any = None
        self._callbacks: dict[int, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back once when the peer closes the connection, or its sending half.

        Remove the socket once it is closed, before another one is opened.
        """
        if self._epoll is None:
            if not hasattr(select, "epoll"):
                return
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._on_events)
        self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLONESHOT)
        self._callbacks[fd] = callback

    def remove(self, fd: int) -> None:
        """Forget a socket; harmless if it is not known."""
        if self._callbacks.pop(fd, None) is not None:
            with contextlib.suppress(OSError):  # a closed descriptor left by itself
                self._epoll.unregister(fd)

    def close(self) -> None:
        """Forget all sockets."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
            self._callbacks.clear()

    def _on_events(self) -> None:
        for fd, _ in self._epoll.poll(0):
            if (callback := self._callbacks.get(fd)) is not None:
                callback()
