"""The sockets that I/O threads own, and what these threads hand over to the event loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kraftlog._kraftlog import DataPath
from kraftlog.errors import LogError
from kraftlog.transport.native_connection import NativeConnection
from kraftlog.transport.request_room import REQUESTS_MAX

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Iterable, Sequence

    from kraftlog._kraftlog import GrantTable, Inbox, Partitions
    from kraftlog.transport.exchange import Exchange, PeerContext
    from kraftlog.transport.peer_log import PeerLog
    from kraftlog.transport.scheduler import Scheduler

    SocketEvent = tuple[int, int, bytes | memoryview | str | None]

__all__ = ["DataPathLimits", "NativeSockets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPathLimits:
    """Bounds of the I/O threads.

    Attributes:
        threads: How many; at least one.
        max_frame_bytes: socket.request.max.bytes.
        max_idle_ms: connections.max.idle.ms; 0 or less closes none.
        fetch_max_bytes: fetch.max.bytes.
        fetch_sessions_max: max.incremental.fetch.session.cache.slots.
        fetch_session_eviction_ms: A session unused for so long gives way to another one.
        selects_replicas: Whether consumers that name their rack may be sent to followers.
        max_queued_requests: queued.max.requests.
        max_queued_bytes: queued.max.request.bytes; 0 or less is no bound.
    """

    threads: int
    max_frame_bytes: int
    max_idle_ms: int
    fetch_max_bytes: int
    fetch_sessions_max: int
    fetch_session_eviction_ms: int
    selects_replicas: bool = False
    max_queued_requests: int = REQUESTS_MAX
    max_queued_bytes: int = -1


class SocketInbox(Protocol):
    """As much of an event loop's mailbox as sockets need."""

    native: Inbox

    def handle_sockets(self, handler: Callable[[Sequence[SocketEvent]], None]) -> None:
        """Call ``handler`` with the events of sockets of a wake-up."""

    def take(self) -> None:
        """Deliver what waits."""


class NativeSockets:
    """Owns the I/O threads of a node.

    Args:
        loop: The node's loop.
        partitions: Those of which the threads answer Produce and Fetch requests, as far as they are plain.
        inbox: The mailbox of the loop, which passes events of sockets on.
        limits: Their number, and bounds of connections and answers.
        scheduler: Shares the loop among the connections.
        on_failure: Called when a thread ended by a defect: its connections are gone, and the node has to end.
        grants: With an authorizer: the threads answer only what it has allowed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Partitions,
        inbox: SocketInbox,
        limits: DataPathLimits,
        *,
        scheduler: Scheduler,
        on_failure: Callable[[BaseException], None],
        grants: GrantTable | None = None,
    ) -> None:
        self._loop = loop
        self._scheduler = scheduler
        self._on_failure = on_failure
        self._inbox = inbox
        self._path = DataPath(
            partitions,
            inbox.native,
            threads=limits.threads,
            max_frame_bytes=limits.max_frame_bytes,
            max_idle_ms=limits.max_idle_ms,
            fetch_max_bytes=limits.fetch_max_bytes,
            fetch_sessions_max=limits.fetch_sessions_max,
            fetch_session_eviction_ms=limits.fetch_session_eviction_ms,
            selects_replicas=limits.selects_replicas,
            max_queued_requests=limits.max_queued_requests,
            max_queued_bytes=limits.max_queued_bytes,
            grants=grants,
        )
        self._by_key: dict[int, NativeConnection] = {}
        self._is_flush_armed = False
        self._is_closed = False
        inbox.handle_sockets(self._on_events)

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
        data_socket = self._path.adopt(
            sock.detach(), listener=listener, host=context.client_host, principal=str(context.principal)
        )
        connection = NativeConnection(
            self._loop,
            data_socket,
            exchange,
            context,
            on_lost=on_lost,
            peer_log=peer_log,
            scheduler=self._scheduler,
            flush_soon=self._flush_soon,
        )
        self._by_key[data_socket.key] = connection
        return connection

    def publish_brokers(self, by_listener: Sequence[Sequence[tuple[int, str, int, str | None]]]) -> None:
        """Let the threads name brokers that lead; id, host, port and rack of each, by the index of the listener."""
        self._path.publish_brokers(by_listener)

    def hand_over_clients(self, is_on: bool) -> None:
        """Whether the threads hand every Produce and every consumer's Fetch over: a client quota may apply to it."""
        self._path.hand_over_clients(is_on)

    def close(self) -> None:
        """Close all connections and end the threads. Harmless when called again."""
        if self._is_closed:
            return
        self._is_closed = True
        self._path.stop()
        self._inbox.take()

    def _on_events(self, events: Sequence[SocketEvent]) -> None:
        connections = self._pass_on(events)
        if not self._is_closed:
            for connection in connections:
                connection.work()
            self._path.flush()

    def _pass_on(self, events: Sequence[SocketEvent]) -> Iterable[NativeConnection]:
        """Pass events on; gives the connections that have something to do, in the order of their first event."""
        with_work: dict[NativeConnection, None] = {}
        for key, number, payload in events:
            if number == DataPath.FAILED:
                self._on_failure(LogError(f"an I/O thread of the data path failed: {payload!r}"))
                continue
            connection = self._by_key[key]
            if number == DataPath.LOST:
                del self._by_key[key]
                with_work.pop(connection, None)
                connection.connection_lost(payload if isinstance(payload, str) else None)
                continue
            if payload is not None and not isinstance(payload, str):
                connection.frame_received(number, payload)  # bytes, or a memoryview of a large frame
            with_work[connection] = None
        return with_work

    def _flush_soon(self) -> None:
        """Tell the threads at the end of this turn of the loop what was asked of sockets in it."""
        if not self._is_flush_armed and not self._is_closed:
            self._is_flush_armed = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_armed = False
        self._path.flush()
