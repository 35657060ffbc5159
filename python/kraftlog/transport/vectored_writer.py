"""Large requests to a plain socket without a copy in between; the rest of the connection is asyncio's."""

from __future__ import annotations

import asyncio
import os
from asyncio.trsock import TransportSocket
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["VectoredWriter"]

BUFFERS_MAX = 64


class VectoredWriter:
    """Sends buffers as they are, by ``writev``; asyncio's transports join them first, and copy what has to wait.

    It has a descriptor of its own for the socket, since a loop does not let anybody else wait for a transport's.

    Args:
        loop: Runs it.
        sock: A connected stream socket without TLS that does not block.

    Attributes:
        unsent_bytes: Bytes that the socket did not take yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: TransportSocket) -> None:
        self._loop = loop
        self._descriptor: int | None = os.dup(sock.fileno())
        self._waiting: deque[memoryview] = deque()
        self._is_watching = False
        self.unsent_bytes = 0

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Send; the buffers must not change before the peer has answered."""
        if self._descriptor is None:
            return
        for buffer in buffers:
            view = memoryview(buffer)
            if view.nbytes:
                self._waiting.append(view)
                self.unsent_bytes += view.nbytes
        if not self._is_watching:
            self._flush()

    def _flush(self) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            return
        try:
            while self._waiting:
                self._took(os.writev(descriptor, list(islice(self._waiting, BUFFERS_MAX))))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # The socket is of no use any more: the transport finds that when it reads, and ends the connection.
            self._waiting.clear()
            self.unsent_bytes = 0
        is_wanted = bool(self._waiting)
        if is_wanted and not self._is_watching:
            self._loop.add_writer(descriptor, self._flush)
        elif self._is_watching and not is_wanted:
            self._loop.remove_writer(descriptor)
        self._is_watching = is_wanted

    def _took(self, count: int) -> None:
        self.unsent_bytes -= count
        while count:
            view = self._waiting[0]
            if count < view.nbytes:
                self._waiting[0] = view[count:]
                return
            count -= view.nbytes
            self._waiting.popleft()

    def close(self) -> None:
        """Forget what waits, and close the descriptor; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if self._is_watching:
            self._loop.remove_writer(descriptor)
        self._waiting.clear()
        self.unsent_bytes = 0
        os.close(descriptor)

    @staticmethod
    def serves(sock: Any) -> bool:
        """Whether a transport's socket is one of the operating system, and not a simulated one."""
        return isinstance(sock, TransportSocket)
