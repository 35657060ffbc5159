"""The simulated network: streams of bytes between machines, in order, with delays, cuts and resets."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, Protocol

__all__ = ["FIRST_DESCRIPTOR", "ByteWatcher", "ListeningSocket", "Network", "SimulatedSocket", "SocketOwner"]

# Numbers from here on are simulated sockets and no descriptors of the process.
FIRST_DESCRIPTOR = 1 << 24
# Bytes that one direction of a connection holds before its sender has to wait.
_WINDOW_BYTES = 256 * 1024
# Linux's numbers of the option and of two states of TCP.
_TCP_INFO, _ESTABLISHED, _CLOSE_WAIT = 11, 1, 8


class Time(Protocol):
    """When things happen, and chance."""

    now_ns: int
    rng: Random

    def at(self, at_ns: int, action: Callable[[], None]) -> Any:
        """Let something happen at a moment."""
        ...


class SocketOwner(Protocol):
    """A machine, as sockets know it."""

    address: str

    def socket_changed(self, sock: Any) -> None:
        """It has something to read, or room to write."""

    def arrive(self, sock: SimulatedSocket, data: bytes) -> None:
        """Bytes of a connection are here: ``SimulatedSocket.arrive``, and what the machine does at once."""


class ByteWatcher(Protocol):
    """Sees every byte that reaches or leaves a process."""

    def arrived(self, sock: SimulatedSocket, data: bytes) -> None:
        """Bytes have reached a socket; none are the end of the stream."""

    def sent(self, sock: SimulatedSocket, data: bytes) -> None:
        """A process has handed bytes to a socket."""


class SimulatedSocket:
    """One end of a connection, with the methods of a non-blocking ``socket.socket``.

    Args:
        network: It belongs to.
        machine: Whose process has it.
        address: Its own.
        peer_address: Of the other end.

    Attributes:
        link: Addresses of the two machines, its own first.
        is_established: Whether its process has it; not yet at the end that connects, until it hears of the other end.
        loses_output: Whether what is sent from now on never arrives: the connection is about to be reset.
        watched_by: What the byte watcher keeps of this end.
        arrives_ns: When the last bytes arrive of those that are on their way here.
    """

    def __init__(
        self, network: Network, machine: SocketOwner, address: tuple[str, int], peer_address: tuple[str, int]
    ) -> None:
        self.network = network
        self.machine = machine
        self.link = (machine.address, peer_address[0])
        self.peer: SimulatedSocket | None = None
        self._address = address
        self._peer_address = peer_address
        self._descriptor = network.next_descriptor()
        self._received = bytearray()
        self._in_flight: deque[bytes] = deque()
        self._in_flight_bytes = 0
        self.arrives_ns = 0
        self._is_ended = False
        self._error: int | None = None
        self.is_established = True
        self.loses_output = False
        self.watched_by: Any = None
        self.is_closed = False
        network.sockets[self._descriptor] = self

    def fileno(self) -> int:
        """A number for ``add_reader`` and ``add_writer`` of the machine's loop."""
        return -1 if self.is_closed else self._descriptor

    def setsockopt(self, *_: Any) -> None:
        """Nothing."""

    def getsockopt(self, level: int, option: int, _size: int = 0) -> bytes:
        """The state of the connection, the first byte of Linux's ``TCP_INFO``; there are no other options.

        Raises:
            OSError: EBADF once this end is closed, ENOPROTOOPT for another option.
        """
        if self.is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if (level, option) != (socket.IPPROTO_TCP, _TCP_INFO):
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        return bytes([_CLOSE_WAIT if self._is_ended or self._error is not None else _ESTABLISHED])

    def setblocking(self, _: bool) -> None:
        """Nothing: it never blocks."""

    def getsockname(self) -> tuple[str, int]:
        """Address and port."""
        return self._address

    def getpeername(self) -> tuple[str, int]:
        """Address and port of the other end."""
        return self._peer_address

    # Reading

    @property
    def is_readable(self) -> bool:
        """Whether ``recv`` would not raise ``BlockingIOError``."""
        return bool(self._received) or self._is_ended or self._error is not None

    def recv(self, size_bytes: int) -> bytes:
        """Bytes that have arrived; empty at the end of the stream.

        Raises:
            BlockingIOError: None have arrived.
            ConnectionResetError: The connection was reset.
        """
        received = self._received
        if received:
            if len(received) <= size_bytes:
                data = bytes(received)
                received.clear()
            else:
                data = bytes(received[:size_bytes])
                del received[:size_bytes]
            if self.peer is not None:
                self.peer.drained(len(data))
            return data
        if self._error is not None:
            raise OSError(self._error, os.strerror(self._error))
        if self._is_ended:
            return b""
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def recv_into(self, buffer: Any, nbytes: int = 0) -> int:
        """As ``recv``, into ``buffer``."""
        view = memoryview(buffer)
        data = self.recv(nbytes or len(view))
        size_bytes = len(data)
        view[:size_bytes] = data
        return size_bytes

    @property
    def is_broken(self) -> bool:
        """Whether the connection was reset."""
        return self._error is not None

    # Writing

    @property
    def is_writable(self) -> bool:
        """Whether ``send`` would not raise ``BlockingIOError``."""
        return self._in_flight_bytes < _WINDOW_BYTES or self._error is not None

    def send(self, data: Any) -> int:
        """Send some bytes.

        Raises:
            BlockingIOError: The peer has to take some first.
            OSError: The connection was reset or the peer is gone.
        """
        return self._send(bytes(data))

    def sendmsg(self, buffers: Any, _ancillary: Any = (), _flags: int = 0) -> int:
        """Send some of the bytes of several buffers; errors as ``send``."""
        return self._send(b"".join(buffers))

    def _send(self, data: bytes) -> int:
        if self._error is not None:
            raise OSError(self._error, os.strerror(self._error))
        peer = self.peer
        if peer is None or peer.is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = _WINDOW_BYTES - self._in_flight_bytes
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = data[:room]
        self._in_flight_bytes += len(data)
        if self.network.byte_watcher is not None:
            self.network.byte_watcher.sent(self, data)
        self.network.carry(self, data)
        return len(data)

    def drained(self, size_bytes: int) -> None:
        """The other end took bytes out of its buffer."""
        was_full = self._in_flight_bytes >= _WINDOW_BYTES
        self._in_flight_bytes -= size_bytes
        if was_full:
            self.machine.socket_changed(self)

    # The network's side

    def arrive(self, data: bytes) -> None:
        """Bytes are here; empty bytes are the end of the stream."""
        if self.take(data):
            self.machine.socket_changed(self)

    def take(self, data: bytes) -> bool:
        """As ``arrive``, without waking its machine; returns whether there is something to read."""
        if self.is_closed or self._error is not None:
            return False
        if data:
            self._received += data
            if self.network.byte_watcher is not None:
                self.network.byte_watcher.arrived(self, data)
        else:
            self._is_ended = True
        return True

    def reset(self, error: int = errno.ECONNRESET) -> None:
        """Break the connection: both ends learn it, what is on its way is lost."""
        for end in (self, self.peer):
            if end is not None and not end.is_closed and end._error is None:
                end._error = error
                end._received.clear()
                end.machine.socket_changed(end)

    def shutdown(self, _how: int) -> None:
        """Send the end of the stream."""
        self.network.carry(self, b"")

    def close(self) -> None:
        """Close; the peer reads the end of the stream behind what was sent."""
        if not self.is_closed:
            self.is_closed = True
            if self._error is None:
                self.network.carry(self, b"")
            self.network.sockets.pop(self._descriptor, None)


class ListeningSocket:
    """Accepts connections on one address."""

    def __init__(self, network: Network, machine: SocketOwner, address: tuple[str, int]) -> None:
        self.network = network
        self.machine = machine
        self._address = address
        self._descriptor = network.next_descriptor()
        self._waiting: deque[SimulatedSocket] = deque()
        self.is_closed = False
        network.sockets[self._descriptor] = self

    is_writable = False
    is_established = True

    @property
    def is_readable(self) -> bool:
        """Whether a connection waits to be accepted."""
        return bool(self._waiting)

    def fileno(self) -> int:
        """As of a connection."""
        return -1 if self.is_closed else self._descriptor

    def getsockname(self) -> tuple[str, int]:
        """Address and port."""
        return self._address

    def arrived(self, sock: SimulatedSocket) -> None:
        """A connection was made."""
        self._waiting.append(sock)
        self.machine.socket_changed(self)

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        """The next connection.

        Raises:
            BlockingIOError: None waits.
        """
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        sock = self._waiting.popleft()
        return sock, sock.getpeername()

    def close(self) -> None:
        """Listen no more; what was not accepted is reset."""
        if not self.is_closed:
            self.is_closed = True
            self.network.listening.pop(self._address, None)
            self.network.sockets.pop(self._descriptor, None)
            for sock in self._waiting:
                sock.reset()
                sock.close()


class Network:
    """Every socket of a world.

    Attributes:
        latency_ms: Least and most delay of bytes between two machines.
        spikes: Share of deliveries that are held up, and for how long at most (ms). What was sent later on the same
            connection waits behind them, as on TCP.
        sockets: By descriptor.
        listening: By address.
        byte_watcher: Sees what is sent and what arrives, if there is one.
    """

    def __init__(self, world: Time) -> None:
        self.byte_watcher: ByteWatcher | None = None
        self._world = world
        self.latency_ms = (0.05, 0.3)
        self.spikes = (0.0, 0.0)
        self.sockets: dict[int, SimulatedSocket | ListeningSocket] = {}
        self.listening: dict[tuple[str, int], ListeningSocket] = {}
        self._extra_ms: dict[tuple[str, str], float] = {}
        self._cut: set[tuple[str, str]] = set()
        self._breaking: set[tuple[str, str]] = set()
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._last_descriptor = FIRST_DESCRIPTOR
        self._last_port = 32768

    def next_descriptor(self) -> int:
        """A number that no socket has had."""
        self._last_descriptor += 1
        return self._last_descriptor

    def next_port(self) -> int:
        """A port that no socket has had."""
        self._last_port += 1
        return self._last_port

    def listen(self, machine: SocketOwner, port: int) -> ListeningSocket:
        """Listen on a machine; port 0 takes a free one.

        Raises:
            OSError: EADDRINUSE.
        """
        address = (machine.address, port or self.next_port())
        if address in self.listening:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        sock = self.listening[address] = ListeningSocket(self, machine, address)
        return sock

    def connect(
        self, machine: SocketOwner, address: tuple[str, int], connected: Callable[[SimulatedSocket | OSError], None]
    ) -> None:
        """Connect from a machine; ``connected`` hears what became of it, never while the link is cut."""

        def established(near: SimulatedSocket) -> None:
            near.is_established = True
            connected(near)

        def reach() -> None:
            listener = self.listening.get(address)
            if listener is None:
                self._over((address[0], machine.address), lambda: connected(_refused()))
                return
            near = SimulatedSocket(self, machine, (machine.address, self.next_port()), address)
            near.is_established = False
            far = SimulatedSocket(self, listener.machine, address, near.getsockname())
            near.peer, far.peer = far, near
            listener.arrived(far)
            self._over((address[0], machine.address), lambda: established(near))

        self._over((machine.address, address[0]), reach)

    def carry(self, source: SimulatedSocket, data: bytes) -> None:
        """Bring bytes to the other end."""
        target = source.peer
        if target is None or source.loses_output:
            return
        link, world = source.link, self._world
        # Not before those that were sent earlier.
        target.arrives_ns = at_ns = max(target.arrives_ns, world.now_ns + self._delay_ns(link))
        if self._breaking and len(data) > 1 and link in self._breaking:
            self._breaking.discard(link)
            source.loses_output = True
            part = data[: self._world.rng.randrange(1, len(data))]
            self._world.at(at_ns, lambda: self._deliver(link, lambda: target.arrive(part)))
            # A while later, as the reset discards what the peer has not read yet.
            self._world.at(at_ns + 1_000_000, target.reset)
            return
        world.at(at_ns, partial(self._arrive, link, target, data))

    def _arrive(self, link: tuple[str, str], target: SimulatedSocket, data: bytes) -> None:
        if link in self._cut:
            self._held.setdefault(link, []).append(partial(target.arrive, data))
        else:
            target.machine.arrive(target, data)

    def _over(self, link: tuple[str, str], action: Callable[[], None]) -> None:
        self._world.at(self._world.now_ns + self._delay_ns(link), lambda: self._deliver(link, action))

    def _deliver(self, link: tuple[str, str], action: Callable[[], None]) -> None:
        if link in self._cut:
            self._held.setdefault(link, []).append(action)
        else:
            action()

    def _delay_ns(self, link: tuple[str, str]) -> int:
        low, high = self.latency_ms
        delay_ms = low + (high - low) * self._world.rng.random()
        if self._extra_ms:
            delay_ms += self._extra_ms.get(link, 0.0)
        share, most_ms = self.spikes
        if share and self._world.rng.random() < share:
            delay_ms += self._world.rng.uniform(0.0, most_ms)
        return int(delay_ms * 1e6)

    # Faults

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from one address to another; it is held, as TCP sends it again."""
        self._cut.add((source, target))

    def heal(self, source: str, target: str) -> None:
        """Let through what was held and what comes."""
        self._cut.discard((source, target))
        for action in self._held.pop((source, target), []):
            action()

    def heal_all(self) -> None:
        """No link is cut, slow or about to break."""
        self._extra_ms.clear()
        self._breaking.clear()
        self.spikes = (0.0, 0.0)
        for link in sorted(self._cut):
            self.heal(*link)

    def slow_down(self, source: str, target: str, extra_ms: float) -> None:
        """Delay everything from one address to another by so much more."""
        self._extra_ms[source, target] = extra_ms

    def isolate(self, address: str, others: Iterable[str]) -> None:
        """Cut one address off from others, both ways."""
        for other in others:
            if other != address:
                self.cut(address, other)
                self.cut(other, address)

    def break_within_frame(self, source: str, target: str) -> None:
        """Deliver only a part of what is sent next from one address to another, then reset that connection."""
        self._breaking.add((source, target))

    def reset_between(self, first: str, second: str) -> int:
        """Break every connection between two addresses; returns how many there were."""
        ends = {first, second}
        found = [
            sock
            for sock in self.sockets.values()
            if isinstance(sock, SimulatedSocket)
            and sock.peer is not None
            and {sock.machine.address, sock.peer.machine.address} == ends
        ]
        for sock in found:
            sock.reset()
        return len(found) // 2


def _refused() -> OSError:
    return ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
