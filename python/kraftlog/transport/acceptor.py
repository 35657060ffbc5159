"""Listening sockets and the set of open connections, with its bounds."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from kraftlog import host
from kraftlog._kraftlog import Admission, release_free_memory
from kraftlog.ordered_set import OrderedSet
from kraftlog.security.principal import ANONYMOUS, Principal
from kraftlog.transport.connection import Connection
from kraftlog.transport.exchange import PeerContext, PeerLoss, PeerThrottle
from kraftlog.transport.frame_reader import RECEIVE_BUFFER_BYTES, FrameReader
from kraftlog.transport.handshake_reader import HandshakeReader
from kraftlog.transport.listener import ConfigError, EndPoint
from kraftlog.transport.peer_log import PeerLog
from kraftlog.transport.peer_watch import PeerWatch
from kraftlog.transport.request_room import REQUESTS_MAX, RequestRoom
from kraftlog.transport.scheduler import TURN_S, Scheduler

if TYPE_CHECKING:
    from ssl import SSLContext

    from kraftlog._kraftlog import DataSocket
    from kraftlog.transport.exchange import Exchange
    from kraftlog.transport.native_connection import NativeConnection
    from kraftlog.transport.native_sockets import NativeSockets
    from kraftlog.transport.sasl_exchange import SaslExchange, SaslListener

__all__ = ["Acceptor", "ConnectionLimits", "Connections"]

logger = logging.getLogger(__name__)

_ACCEPTS_PER_WAKE_UP = 64
_OUT_OF_FILES_PAUSE_S = 1.0
# Descriptors that connections leave for the files of the logs, as long as the limit is large enough to share.
_RESERVED_DESCRIPTORS = 256
_RESERVED_SHARE = 4
_NO_DESCRIPTOR = 1 << 30
_DRAIN_S = 2.0
# How long after the end of a connection the memory that it used goes back to the operating system: an I/O thread drops
# buffers that nothing used for one to two seconds.
_RELEASE_AFTER_S = 2.5
# Connections of a listener that an address made too often; further ones are closed at once, so that an address with a
# quota cannot use up the descriptors.
_HELD_MAX = 1024
_SLOT_CHECK_S = 0.05  # while a listener has all the connections that it may have


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Kafka's bounds on connections, under the names of its keys.

    Attributes:
        max_connections, max_connections_per_ip: Connections open at once, of the node and of one address.
        max_connections_per_ip_overrides: The latter for single addresses.
        max_idle_ms: connections.max.idle.ms; 0 or less closes none.
        max_frame_bytes: socket.request.max.bytes.
        send_buffer_bytes, receive_buffer_bytes: Sizes for the kernel; -1 leaves them to its own tuning.
        listen_backlog: socket.listen.backlog.size.
        max_connection_creation_rate: New connections per second; those above it wait.
        max_connections_by_listener, max_connection_creation_rate_by_listener: The same under
            ``listener.name.<name>.``, by lower-case name of the listener.
        max_queued_requests: queued.max.requests, of the connections on the event loop.
        max_queued_bytes: queued.max.request.bytes, likewise; 0 or less is no bound.
        unlimited_listener: Name of the listener for which the rate of the whole node does not count; empty for none.
    """

    max_connections: int
    max_connections_per_ip: int
    max_idle_ms: int
    max_frame_bytes: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    listen_backlog: int
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = 2**31 - 1
    max_connections_by_listener: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate_by_listener: Mapping[str, int] = field(default_factory=dict)
    unlimited_listener: str = ""
    max_queued_requests: int = REQUESTS_MAX
    max_queued_bytes: int = -1


class Connections:
    """Every open connection of a node; closes those that are idle.

    Attributes:
        admission: Decides which new connections the node takes, for the acceptors of the loop and the I/O threads.
        native: Accepts connections of clients without TLS and owns their sockets, if the data path is native.
        scheduler: Shares the loop among the connections of clients.
        peer_watch: Notices the end of connections that are not read for now.
        room: Bounds the requests of clients that wait for the loop; those of the controller's listeners have their own.
        controller_room: The latter.
        controller_scheduler: The same for those of the controller's listeners, which do not wait behind clients.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: ConnectionLimits) -> None:
        self._loop = loop
        self.admission = Admission()
        self.limits = limits
        self.native: NativeSockets | None = None
        self._open: OrderedSet[Connection | NativeConnection] = OrderedSet()
        self._is_draining = False
        self.scratch = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.peer_log = PeerLog(loop, logger)
        self.scheduler = Scheduler(loop)
        self.controller_scheduler = Scheduler(loop)
        self.room, self.controller_room = (
            RequestRoom(loop, requests_max=limits.max_queued_requests, bytes_max=limits.max_queued_bytes)
            for _ in range(2)
        )
        self.peer_watch = PeerWatch(loop)
        self._release_timer: asyncio.TimerHandle | None = None
        self._removed_at_s = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._arm_idle_timer()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection | NativeConnection]:
        return iter(list(self._open))

    @property
    def limits(self) -> ConnectionLimits:
        """In force for new connections; may be replaced at any time."""
        return self._limits

    @limits.setter
    def limits(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.admission.publish(
            max_connections=limits.max_connections,
            max_connections_per_ip=limits.max_connections_per_ip,
            per_ip_overrides=dict(limits.max_connections_per_ip_overrides),
            creation_rate=limits.max_connection_creation_rate,
            max_connections_by_listener=dict(limits.max_connections_by_listener),
            creation_rate_by_listener=dict(limits.max_connection_creation_rate_by_listener),
            unlimited_listener=limits.unlimited_listener or None,
        )

    def add(self, connection: Connection | NativeConnection) -> None:
        """Keep a new connection, which was admitted."""
        self._open.add(connection)
        if self._is_draining and not connection.context.is_controller_listener:
            connection.stop_reading()  # an I/O thread accepted it just before the listener ended

    def remove(self, connection: Connection | NativeConnection) -> None:
        """Forget a closed connection."""
        if connection not in self._open:
            return
        self._open.remove(connection)
        context = connection.context
        if not context.is_on_data_path:  # else the I/O thread has given its place back
            self.admission.ended(context.listener_name, context.client_host)
        self._removed_at_s = self._loop.time()
        if self._release_timer is None:
            self._release_timer = self._loop.call_later(_RELEASE_AFTER_S, self._release_memory)

    def replace(self, connection: Connection, make: Callable[[], NativeConnection]) -> NativeConnection:
        """Keep another connection, which takes over the place of one that was admitted, also if it cannot be made."""
        self._open.discard(connection)
        made = make()
        self.add(made)
        return made

    def _release_memory(self) -> None:
        """Free what connections left to the allocator; on a thread, as it takes milliseconds after large frames."""
        self._release_timer = None
        self._loop.run_in_executor(None, release_free_memory)
        left_s = self._removed_at_s + _RELEASE_AFTER_S - self._loop.time()
        if left_s > 0:  # the I/O threads still keep the buffers of the connections that were closed since
            self._release_timer = self._loop.call_later(left_s, self._release_memory)

    def stop_reading(self) -> None:
        """Take no more requests of clients; other replicas of the metadata log are still answered."""
        self._is_draining = True
        for connection in self._of_clients():
            connection.stop_reading()

    async def drain(self) -> None:
        """Let requests of clients that are being answered end, for a moment, then close their connections."""
        deadline = self._loop.time() + _DRAIN_S
        self.stop_reading()
        # An event would have to be touched on the hot path; this happens once in a node's life.
        while self._is_owed() and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        for connection in self._of_clients():
            connection.close(None)

    def _is_owed(self) -> bool:
        """Whether a client waits for a response, or may be connected without having been reported."""
        if self.native is not None and self.native.has_listeners:
            return True
        return any(connection.is_owed for connection in self._of_clients())

    def _of_clients(self) -> list[Connection | NativeConnection]:
        return [connection for connection in self if not connection.context.is_controller_listener]

    def close_all(self) -> None:
        """Close every connection now."""
        for connection in self:
            connection.close(None)
        self.peer_watch.close()
        if self.native is not None:
            self.native.close()
        for timer in (self._idle_timer, self._release_timer):
            if timer is not None:
                timer.cancel()

    def _arm_idle_timer(self) -> None:
        if self.limits.max_idle_ms > 0:
            self._idle_timer = self._loop.call_later(min(self.limits.max_idle_ms / 4000, 30), self._close_idle)

    def _close_idle(self) -> None:
        deadline = self.scheduler.clock() - self.limits.max_idle_ms / 1000
        for connection in self:
            if connection.last_active >= deadline:
                continue
            if connection.has_partial_frame:
                connection.close(f"no bytes for connections.max.idle.ms={self.limits.max_idle_ms} inside a frame")
            elif connection.is_idle or connection.is_stuck:
                connection.close(None)
        self._arm_idle_timer()


def _first_reserved_descriptor() -> int:
    """The descriptor number from which on no connection is accepted.

    The kernel gives out the lowest free number: a socket with at least this number has at least as many open files and
    sockets below it.
    """
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return _NO_DESCRIPTOR
    return soft_limit - min(_RESERVED_DESCRIPTORS, soft_limit // _RESERVED_SHARE)


def _known_already(_principal: Principal) -> None:
    """A peer authenticated again, which it can only as the user that it was."""


def _lowest_free_descriptor() -> int:
    """The number that the next file gets; a very large one if there is none."""
    try:
        number = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return _NO_DESCRIPTOR
    os.close(number)
    return number


class Acceptor:
    """One listening socket: of the loop, or of the I/O threads for clients without TLS if the data path is native.

    It stops accepting when the process runs out of descriptors but for a reserve, which the files of the logs need, and
    goes on when connections were closed.

    Args:
        loop: The node's loop.
        end_point: Where to listen; port 0 takes a free one.
        connections: Of the whole node.
        is_controller_listener: Part of the context of its connections.
        tls: For a listener with SSL.
        sasl: For a listener with SASL.
        index: Of the listener in the configuration.

    Raises:
        ConfigError: The address cannot be bound.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        end_point: EndPoint,
        connections: Connections,
        *,
        is_controller_listener: bool,
        tls: SSLContext | None = None,
        sasl: SaslListener | None = None,
        index: int = 0,
    ) -> None:
        self._loop = loop
        self._index = index
        self._tls = tls
        self._sasl = sasl
        self._exchange: Exchange | None = None
        self._native: NativeSockets | None = None
        self._connections = connections
        self.is_controller_listener = is_controller_listener
        self._is_accepting = False
        self._is_short_of_descriptors = False
        self._pause_timer: asyncio.TimerHandle | None = None
        self._waiting: socket.socket | None = None
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        limits = connections.limits
        try:
            self._sock = host.listen(
                end_point.host,
                end_point.port,
                backlog=limits.listen_backlog,
                receive_buffer_bytes=limits.receive_buffer_bytes,
            )
        except OSError as error:
            msg = f"cannot listen on {end_point}: {error.strerror or error}"
            raise ConfigError(msg) from error
        self.end_point = EndPoint(end_point.listener_name, end_point.host, self._sock.getsockname()[1])

    def start(self, exchange: Exchange) -> None:
        """Take connections from here on; earlier ones wait in the kernel's queue. Harmless when called again.

        Args:
            exchange: Answers what these connections ask.
        """
        if self._exchange is not None:
            return
        self._exchange = exchange
        native = self._connections.native
        if native is None or self._tls is not None or self._sasl is not None or self.is_controller_listener:
            self._accept()
            return
        self._native = native
        native.listen(
            self._sock,
            self,
            number=self._index,
            name=self.end_point.listener_name,
            admission=self._connections.admission,
            send_buffer_bytes=self._connections.limits.send_buffer_bytes,
        )

    def _accept(self) -> None:
        if not self._is_accepting:
            self._is_accepting = True
            self._loop.add_reader(self._sock.fileno(), self._on_readable)

    def close(self) -> None:
        """Stop listening; open connections stay. Harmless when called again."""
        if self._native is not None:
            self._native.end_listener(self._index)
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._sock.fileno())
        if self._waiting is not None:
            self._waiting.close()
        for sock in list(self._held):
            self._end_hold(sock)
        self._sock.close()

    def _on_readable(self) -> None:
        first_reserved = _first_reserved_descriptor()
        clock = self._connections.scheduler.clock
        end_s = clock() + 2 * TURN_S
        for _ in range(_ACCEPTS_PER_WAKE_UP):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause(error.strerror or str(error))
                    return
                raise
            number = sock.fileno()
            name = self.end_point.listener_name
            admission = self._connections.admission
            delay_s = 0.0 if self.is_controller_listener else admission.arrived(name, self._loop.time())
            if delay_s or not admission.has_slot(name):
                self._wait(sock, address, delay_s)
                return
            self._accepted(sock, address)
            if number >= first_reserved and isinstance(sock, socket.socket):
                self._pause(f"{first_reserved} file descriptors are in use, the others are kept for files")
                return
            if clock() >= end_s:
                return

    def _accepted(self, sock: socket.socket, address: tuple[str, int]) -> None:
        host, port = address[0], address[1]
        if self._exchange is None:
            sock.close()
            return
        admission, name = self._connections.admission, self.end_point.listener_name
        held_s = 0.0 if self.is_controller_listener else admission.held_for(host, self._loop.time())
        if held_s:
            if len(self._held) < _HELD_MAX:
                self._held[sock] = self._loop.call_later(held_s, self._end_hold, sock)
            else:
                sock.close()
            return
        refusal = admission.admit(name, host)
        if refusal is not None:
            self.refused(host, port, refusal)
            sock.close()
            return
        try:
            self._connections.add(self._connection(sock, self._exchange, host, port))
        except BaseException:
            admission.ended(name, host)
            sock.close()
            raise

    def _connection(self, sock: socket.socket, exchange: Exchange, host: str, port: int) -> Connection:
        """A connection of the loop."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connections = self._connections
        limits = connections.limits
        if limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        sasl = self._sasl
        reader: FrameReader | HandshakeReader = FrameReader(connections.scratch, limits.max_frame_bytes)
        gate: SaslExchange | None = None
        if sasl is not None:
            from kraftlog.transport.sasl_exchange import SaslExchange

            reader = HandshakeReader(connections.scratch, sasl.max_receive_bytes)
            exchange = gate = SaslExchange(self._loop, exchange, sasl, connections.scheduler.clock)
        connection = Connection(
            self._loop,
            sock,
            reader,
            exchange,
            self._context(host, port),
            on_lost=connections.remove,
            peer_log=connections.peer_log,
            scheduler=connections.controller_scheduler if self.is_controller_listener else connections.scheduler,
            peer_watch=connections.peer_watch,
            room=connections.controller_room if self.is_controller_listener else connections.room,
            tls=self._tls,
        )
        if gate is None:
            return connection
        if self._tls is None and not self.is_controller_listener and connections.native is not None:
            move = partial(self._move, connection, gate, connections.native)
            gate.on_authenticated = lambda principal: connection.leave(partial(move, principal))
        else:
            gate.on_authenticated = lambda principal: connection.authenticated(
                principal, lambda: FrameReader(connections.scratch, limits.max_frame_bytes)
            )
        return connection

    def _move(
        self,
        connection: Connection,
        gate: SaslExchange,
        native: NativeSockets,
        principal: Principal,
        sock: socket.socket,
        received: bytes,
        unsent: bytes,
    ) -> None:
        """An I/O thread serves a peer that has authenticated; what it hands over passes ``gate`` if sessions end."""
        connections = self._connections
        session_ms = gate.session_left_ms
        moved = connections.replace(
            connection,
            lambda: native.adopt(
                sock,
                gate.exchange if session_ms is None else gate,
                replace(connection.context, principal=principal, is_on_data_path=True),
                listener=self._index,
                on_lost=connections.remove,
                peer_log=connections.peer_log,
                received=received,
                unsent=unsent,
                place=(connections.admission, self.end_point.listener_name),
                session_ms=session_ms,
            ),
        )
        gate.on_authenticated = _known_already
        gate.on_session = moved.set_session

    def _context(self, host: str, port: int) -> PeerContext:
        return PeerContext(
            listener_name=self.end_point.listener_name,
            is_controller_listener=self.is_controller_listener,
            principal=ANONYMOUS,
            client_host=host,
            peer=f"{host}:{port}",
            is_on_data_path=self._native is not None,
            loss=PeerLoss(),
            # Nodes send their heartbeats over connections of controllers.
            throttle=None if self.is_controller_listener else PeerThrottle(),
        )

    def accepted(self, data_socket: DataSocket, host: str, port: int) -> None:
        """An I/O thread accepted a connection, which was admitted."""
        if self._native is not None and self._exchange is not None:
            connections = self._connections
            connection = self._native.keep(
                data_socket,
                self._exchange,
                self._context(host, port),
                on_lost=connections.remove,
                peer_log=connections.peer_log,
            )
            connections.add(connection)

    def refused(self, host: str, port: int, reason: str) -> None:
        """A connection was not admitted."""
        text = "refusing connection from %s:%d on listener %s: %s"
        self._connections.peer_log.warning(host, text, host, port, self.end_point.listener_name, reason)

    def paused(self, reason: str) -> None:
        """Descriptors or memory are short."""
        logger.error(
            "listener %s accepts no more connections until others are closed: %s",
            self.end_point.listener_name,
            reason,
        )

    def resumed(self) -> None:
        """They are not any more."""
        logger.info("listener %s accepts connections again", self.end_point.listener_name)

    def _end_hold(self, sock: socket.socket) -> None:
        """A connection of an address that connects too often was held for long enough."""
        self._held.pop(sock).cancel()
        sock.close()

    def _wait(self, sock: socket.socket, address: tuple[str, int], delay_s: float) -> None:
        """Let a connection wait, and those behind it in the kernel's queue."""
        self._loop.remove_reader(self._sock.fileno())
        self._is_accepting = False
        self._waiting = sock
        self._pause_timer = self._loop.call_later(delay_s, self._end_wait, sock, address)

    def _end_wait(self, sock: socket.socket, address: tuple[str, int]) -> None:
        if not self._connections.admission.has_slot(self.end_point.listener_name):
            self._pause_timer = self._loop.call_later(_SLOT_CHECK_S, self._end_wait, sock, address)
            return
        self._waiting = None
        self._accepted(sock, address)
        self._accept()

    def _pause(self, reason: str) -> None:
        """Out of file descriptors or memory: leave the queue alone for a moment instead of spinning on it."""
        if not self._is_short_of_descriptors:
            self._is_short_of_descriptors = True
            self.paused(reason)
        self._loop.remove_reader(self._sock.fileno())
        self._is_accepting = False
        self._pause_timer = self._loop.call_later(_OUT_OF_FILES_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if _lowest_free_descriptor() >= _first_reserved_descriptor():
            self._pause_timer = self._loop.call_later(_OUT_OF_FILES_PAUSE_S, self._resume)
            return
        self._is_short_of_descriptors = False
        self.resumed()
        self._accept()
