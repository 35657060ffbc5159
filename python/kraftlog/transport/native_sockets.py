"""The sockets that I/O threads own, and what these threads hand over to the event loop."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from kraftlog._kraftlog import DataPath
from kraftlog.errors import LogError
from kraftlog.transport.native_connection import NativeConnection

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable

    from kraftlog.transport.exchange import Exchange, PeerContext
    from kraftlog.transport.peer_log import PeerLog

__all__ = ["NativeSockets"]

# What one connection may use of the loop before the turn of another one comes, and all of them in one turn.
_SLICE_S: Final = 0.001
_TURN_S: Final = 0.003


class NativeSockets:
    """Owns the I/O threads of a node; its event loop is woken by one descriptor.

    Connections with frames are served in a round, a slice each, so that none waits for all that another one sent.

    Args:
        loop: The node's loop.
        threads: How many; at least one.
        max_frame_bytes: socket.request.max.bytes.
        max_idle_ms: connections.max.idle.ms; 0 or less closes none.
        on_failure: Called when a thread ended by a defect: its connections are gone, and the node has to end.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        threads: int,
        max_frame_bytes: int,
        max_idle_ms: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self._path = DataPath(threads=threads, max_frame_bytes=max_frame_bytes, max_idle_ms=max_idle_ms)
        self._by_key: dict[int, NativeConnection] = {}
        self._round: deque[NativeConnection] = deque()
        self._is_round_armed = False
        self._is_flush_armed = False
        self._is_closed = False
        loop.add_reader(self._path.fileno(), self._on_events)

    def adopt(
        self,
        sock: socket.socket,
        exchange: Exchange,
        context: PeerContext,
        *,
        listener: int,
        on_lost: Callable[[NativeConnection], None],
        peer_log: PeerLog,
    ) -> NativeConnection:
        """Give a connected, non-blocking socket to an I/O thread.

        Args:
            sock: Given away.
            exchange: Answers what the thread hands over.
            context: Who the peer is.
            listener: Index of the listener among those for clients.
            on_lost: Called once the connection is closed.
            peer_log: Has the reasons of closed connections.
        """
        data_socket = self._path.adopt(sock.detach(), listener=listener, host=context.client_host)
        connection = NativeConnection(
            data_socket,
            exchange,
            context,
            on_lost=on_lost,
            peer_log=peer_log,
            flush_soon=self._flush_soon,
            serve_soon=self._serve_soon,
        )
        self._by_key[data_socket.key] = connection
        return connection

    def close(self) -> None:
        """Close all connections and end the threads. Harmless when called again."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._path.fileno())
        self._path.stop()
        self._take_events()
        self._round.clear()

    def _on_events(self) -> None:
        self._take_events()
        if not self._is_round_armed:
            self._serve_round()

    def _take_events(self) -> None:
        for key, number, payload in self._path.take():
            if number == DataPath.FAILED:
                self._on_failure(LogError(f"an I/O thread of the data path failed: {payload!r}"))
                continue
            connection = self._by_key[key]
            if number == DataPath.LOST:
                del self._by_key[key]
                connection.connection_lost(payload if isinstance(payload, str) else None)
                continue
            if isinstance(payload, bytes):
                connection.frame_received(number, payload)
            if not connection.is_queued:
                connection.is_queued = True
                self._round.append(connection)

    def _serve_round(self) -> None:
        """Serve the connections in turn until the time of this turn of the loop is used up."""
        self._is_round_armed = False
        clock = time.monotonic
        now_s = clock()
        turn_end_s = now_s + _TURN_S
        while self._round and now_s < turn_end_s:
            connection = self._round.popleft()
            if connection.serve(now_s + _SLICE_S, clock):
                self._round.append(connection)
            else:
                connection.is_queued = False
            now_s = clock()
        self._path.flush()
        if self._round and not self._is_closed:
            self._is_round_armed = True
            self._loop.call_soon(self._serve_round)

    def _serve_soon(self, connection: NativeConnection) -> None:
        """Serve a connection that may handle frames again."""
        if not connection.is_queued and not self._is_closed:
            connection.is_queued = True
            self._round.append(connection)
            if not self._is_round_armed:
                self._is_round_armed = True
                self._loop.call_soon(self._serve_round)

    def _flush_soon(self) -> None:
        """Tell the threads at the end of this turn of the loop what was asked of sockets in it."""
        if not self._is_flush_armed and not self._is_closed:
            self._is_flush_armed = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_armed = False
        self._path.flush()
