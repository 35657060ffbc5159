"""TCP proxies on the loopback interface: where the network of a node can be cut without a privilege.

A cut keeps connections open and holds their bytes back, as a network does that loses packets. When it ends, the bytes
go on. New connections are accepted and forwarded after the cut.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["TcpProxy"]

_HOST: Final = "127.0.0.1"


class TcpProxy:
    """One listening socket whose connections are forwarded to a port of a node.

    Args:
        listener: Bound to 127.0.0.1.
        target_port: Of the node, on 127.0.0.1.
        is_blocked: Whether a connection from this local port of the sender has to be held back now.
    """

    def __init__(self, listener: socket.socket, target_port: int, is_blocked: Callable[[int], bool]) -> None:
        self._listener = listener
        self.target_port = target_port
        self.is_blocked = is_blocked
        self.links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where senders connect."""
        return int(self._listener.getsockname()[1])

    @property
    def sender_ports(self) -> list[int]:
        """Local ports of the senders of all connections."""
        return [link.sender_port for link in self.links]

    async def start(self) -> None:
        """Accept connections on the running loop."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Link(self).sender, sock=self._listener)

    def apply_cut(self) -> None:
        """Hold back or release every connection, as ``is_blocked`` says now."""
        for link in list(self.links):
            link.apply_cut()

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        self._listener.close()
        for link in list(self.links):
            link.abort()


class _Side(asyncio.Protocol):
    """One of the two connections of a link."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self.transport: asyncio.Transport | None = None
        self.is_full = False
        self._is_reading = True

    @property
    def other(self) -> _Side:
        return self._link.target if self is self._link.sender else self._link.sender

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._link.opened(self)

    def data_received(self, data: bytes) -> None:
        transport = self.other.transport
        if transport is not None:
            transport.write(data)

    def pause_writing(self) -> None:
        self.is_full = True
        self.other.let_read()

    def resume_writing(self) -> None:
        self.is_full = False
        self.other.let_read()

    def let_read(self) -> None:
        """Read while the network is whole and the other side takes what was read."""
        if self.transport is None or self.transport.is_closing():
            return
        wanted = not self._link.is_held and self.other.transport is not None and not self.other.is_full
        if wanted != self._is_reading:
            self._is_reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._link.lost(self, exc)


class _Link:
    """A connection of a sender and the one to the node that belongs to it."""

    def __init__(self, proxy: TcpProxy) -> None:
        self._proxy = proxy
        self.sender = _Side(self)
        self.target = _Side(self)
        self.is_held = False
        self.sender_port = 0
        self._connecting: asyncio.Task[None] | None = None

    def opened(self, side: _Side) -> None:
        if side is self.sender:
            assert side.transport is not None
            self.sender_port = side.transport.get_extra_info("peername")[1]
            self._proxy.links.add(self)
            side.let_read()
            self.apply_cut()
        else:
            self._let_read()

    def apply_cut(self) -> None:
        self.is_held = self._proxy.is_blocked(self.sender_port)
        self._let_read()
        if not self.is_held and self.target.transport is None and self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.target, _HOST, self._proxy.target_port)
        except OSError:
            # Nobody listens: the sender sees that its connection ends.
            self.abort()

    def _let_read(self) -> None:
        for side in self._sides():
            side.let_read()

    def lost(self, side: _Side, error: Exception | None) -> None:
        self._proxy.links.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        transport = side.other.transport
        if transport is not None:
            if error is None:
                transport.close()
            else:
                transport.abort()

    def abort(self) -> None:
        for side in self._sides():
            if side.transport is not None:
                side.transport.abort()

    def _sides(self) -> Iterable[_Side]:
        return self.sender, self.target
