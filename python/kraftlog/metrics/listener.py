"""Answers GET /metrics over HTTP/1.1, on the loop of the node, one request on each connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraftlog.metrics.prometheus import CONTENT_TYPE

__all__ = ["MetricsListener"]

_MAX_REQUEST_BYTES = 16 * 1024
_MAX_CONNECTIONS = 32
_TIMEOUT_S = 5.0


class MetricsListener:
    """Serves what ``render`` gives.

    It has neither a password nor TLS, and is meant for the loopback interface or a network of one's own.

    Args:
        render: Gives the text, on the loop.
    """

    def __init__(self, render: Callable[[], str]) -> None:
        self._render = render
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it is bound to.

        Raises:
            RuntimeError: It does not listen.
        """
        if self._server is None:
            msg = "the metrics listener is not open"
            raise RuntimeError(msg)
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    @property
    def url(self) -> str | None:
        """Where Prometheus scrapes; None while it does not listen."""
        if self._server is None:
            return None
        host, port = self.address
        return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"

    async def open(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            OSError: The address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self._render, self._connections), host, port)

    def close(self) -> None:
        """Listen no more and drop the connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.abort()


class _Connection(asyncio.Protocol):
    """One request and its answer; who sends none in time, or too much, is dropped."""

    def __init__(self, render: Callable[[], str], connections: set[_Connection]) -> None:
        self._render = render
        self._connections = connections
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport) or len(self._connections) >= _MAX_CONNECTIONS:
            if isinstance(transport, asyncio.Transport):
                transport.abort()
            return
        self._transport = transport
        self._connections.add(self)
        self._timer = asyncio.get_running_loop().call_later(_TIMEOUT_S, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._received += data
        if b"\r\n\r\n" in self._received:
            self._transport.write(self._answer(bytes(self._received)))
            self._transport.close()
        elif len(self._received) > _MAX_REQUEST_BYTES:
            self._transport.write(_response("431 Request Header Fields Too Large", b"the request is too long\n"))
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        if self._timer is not None:
            self._timer.cancel()
        self._connections.discard(self)

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _answer(self, request: bytes) -> bytes:
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"this is no HTTP/1.1 request\n")
        method, target = words[0], words[1].split(b"?", 1)[0]
        if target != b"/metrics":
            return _response("404 Not Found", b"look at /metrics\n", has_body=method != b"HEAD")
        if method not in {b"GET", b"HEAD"}:
            return _response("405 Method Not Allowed", b"only GET and HEAD are answered\n", "Allow: GET, HEAD\r\n")
        body = self._render().encode()
        return _response("200 OK", body, content_type=CONTENT_TYPE, has_body=method == b"GET")


def _response(
    status: str,
    body: bytes,
    headers: str = "",
    *,
    content_type: str = "text/plain; charset=utf-8",
    has_body: bool = True,
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"{headers}Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (body if has_body else b"")
