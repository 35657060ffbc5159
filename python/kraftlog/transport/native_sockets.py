"""The sockets that I/O threads own, and what these threads hand over to the event loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kraftlog._kraftlog import DataPath
from kraftlog.errors import LogError
from kraftlog.transport.native_connection import NativeConnection
from kraftlog.transport.request_room import REQUESTS_MAX

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Iterable, Sequence

    from kraftlog._kraftlog import Admission, DataSocket, GrantTable, Inbox, Partitions
    from kraftlog.transport.exchange import Exchange, PeerContext
    from kraftlog.transport.peer_log import PeerLog
    from kraftlog.transport.scheduler import Scheduler

    SocketEvent = tuple[int, int, Any]

__all__ = ["DataPathLimits", "NativeListener", "NativeSockets"]


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


class NativeListener(Protocol):
    """Hears of the connections that an I/O thread accepts."""

    def accepted(self, data_socket: DataSocket, host: str, port: int) -> None:
        """A connection was accepted: keep it (``NativeSockets.keep``) before this returns; frames of it follow."""

    def refused(self, host: str, port: int, reason: str) -> None:
        """A connection was closed at once, as it would have passed a bound."""

    def paused(self, reason: str) -> None:
        """No more are accepted until descriptors are free."""

    def resumed(self) -> None:
        """They are."""


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
        self._listeners: dict[int, NativeListener] = {}
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
        received: bytes = b"",
        unsent: bytes = b"",
        place: tuple[Admission, str] | None = None,
        session_ms: int | None = None,
    ) -> NativeConnection:
        """Give a connected, non-blocking socket to an I/O thread.

        Args:
            sock: Given away.
            exchange: Answers what the thread hands over.
            context: Who the peer is.
            listener: Index of the listener among those for clients.
            on_lost: Called once the connection is closed.
            peer_log: Has the reasons of closed connections.
            received: Bytes that were received and not handled.
            unsent: Bytes of answers that the kernel has not taken.
            place: By whom the connection was admitted, and the name of its listener; the thread gives the place back,
                also if this fails.
            session_ms: Milliseconds until the session of the peer ends; None if it does not end.
        """
        data_socket = self._path.adopt(
            sock.detach(),
            listener=listener,
            host=context.client_host,
            principal=str(context.principal),
            received=received,
            unsent=unsent,
            place=place,
            session_ms=session_ms,
        )
        return self.keep(data_socket, exchange, context, on_lost=on_lost, peer_log=peer_log)

    def keep(
        self,
        data_socket: DataSocket,
        exchange: Exchange,
        context: PeerContext,
        *,
        on_lost: Callable[[NativeConnection], None],
        peer_log: PeerLog,
    ) -> NativeConnection:
        """Make the Python half of a connection; arguments as those of ``adopt``."""
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

    def listen(
        self,
        sock: socket.socket,
        listener: NativeListener,
        *,
        number: int,
        name: str,
        admission: Admission,
        send_buffer_bytes: int,
    ) -> None:
        """Let an I/O thread accept the connections of a listening, non-blocking socket.

        Args:
            sock: Given away.
            listener: Hears of each connection.
            number: Index of the listener among those of the node.
            name: Of the listener, for ``admission``.
            admission: Decides which connections are taken.
            send_buffer_bytes: For the kernel; 0 or less leaves it to its own tuning.
        """
        self._listeners[number] = listener
        self._path.listen(
            sock.detach(), listener=number, name=name, admission=admission, send_buffer_bytes=send_buffer_bytes
        )

    def end_listener(self, number: int) -> None:
        """Close a listening socket soon; its connections stay. Harmless when called again."""
        if number in self._listeners and not self._is_closed:
            self._path.end_listener(number)

    @property
    def has_listeners(self) -> bool:
        """Whether connections may have been accepted that were not reported yet."""
        return bool(self._listeners) and not self._is_closed

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
            if number <= DataPath.FAILED:
                self._on_event(key, number, payload)
                continue
            connection = self._by_key[key]
            if number == DataPath.LOST:
                del self._by_key[key]
                with_work.pop(connection, None)
                connection.connection_lost(payload)
                continue
            if number >= 0:
                connection.frame_received(number, payload)  # bytes, or a memoryview of a large frame
            with_work[connection] = None
        return with_work

    def _on_event(self, key: int, number: int, payload: Any) -> None:
        """An event of a thread or a listener; ``key`` is the listener's number where no connection is meant."""
        if number == DataPath.ACCEPTED:
            data_socket, listener, host, port = payload
            self._listeners[listener].accepted(data_socket, host, port)
        elif number == DataPath.REFUSED:
            listener, host, port, reason = payload
            self._listeners[listener].refused(host, port, reason)
        elif number == DataPath.PAUSED:
            self._listeners[key].paused(payload)
        elif number == DataPath.RESUMED:
            self._listeners[key].resumed()
        elif number == DataPath.LISTENER_ENDED:
            del self._listeners[key]
        else:
            self._on_failure(LogError(f"an I/O thread of the data path failed: {payload!r}"))

    def _flush_soon(self) -> None:
        """Tell the threads at the end of this turn of the loop what was asked of sockets in it."""
        if not self._is_flush_armed and not self._is_closed:
            self._is_flush_armed = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_armed = False
        self._path.flush()
