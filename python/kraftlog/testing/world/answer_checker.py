"""Whether servers answer every request once, in order and in time (RINV-38, INV-31), seen at their sockets."""

from __future__ import annotations

import struct
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.frame_stream import FrameStream
from kraftlog.testing.world.node_machine import NodeMachine

if TYPE_CHECKING:
    from kraftlog.testing.world.machine import Machine
    from kraftlog.testing.world.network import SimulatedSocket
    from kraftlog.testing.world.story import Story

__all__ = ["AnswerChecker"]

_PRODUCE: Final = 0
_FETCH: Final = 1
# API key, version, correlation id, length of the client id.
_HEADER: Final = struct.Struct(">hhih")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PRODUCE_WITH_TRANSACTIONAL_ID: Final = 3
_FLEXIBLE_PRODUCE: Final = 9
_FLEXIBLE_FETCH: Final = 12
_FETCH_WITH_REPLICA_STATE: Final = 15
# A tick of the node's timers and the work on its threads.
_SLACK_MS: Final = 2_000
# Of all clocks; a time-out of a slow one takes longer.
_SLOWEST_CLOCK: Final = 1.5
# A transaction is verified with its coordinator first, which timeout.ms does not count (nor does it in Kafka).
_VERIFICATION_MS: Final = 60_000
_NEVER: Final = float("inf")
# No workload writes so often that followers fetch, or coordinators write markers, as often as this.
_MOST_REQUESTS_PER_S: Final = 1_000
_COUNTED_NS: Final = 1_000_000_000


class _Request:
    """A request that has arrived whole and is not answered."""

    __slots__ = ("allowed_ms", "correlation_id", "paused_ns", "since_ns", "what")

    def __init__(self, correlation_id: int, what: str, allowed_ms: float) -> None:
        self.correlation_id = correlation_id
        self.what = what
        self.allowed_ms = allowed_ms
        # From when its time counts, and how long the machine had been paused by then.
        self.since_ns = 0
        self.paused_ns = 0


class _Connection:
    """The server's end of a connection."""

    __slots__ = (
        "counted_since_ns",
        "incoming",
        "is_full",
        "is_of_node",
        "machine",
        "outgoing",
        "request_count",
        "waiting",
    )

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.is_full = False
        self.incoming, self.outgoing = FrameStream(), FrameStream()
        self.is_of_node = False
        self.request_count = 0
        self.counted_since_ns = 0
        self.waiting: deque[_Request] = deque()


class AnswerChecker:
    """Follows the bytes that reach and leave the sockets on which brokers or controllers listen.

    The time of a request counts while its machine runs, from its arrival or from the answer before it on the same
    connection, as answers keep their order. A client that takes no bytes is waited for.

    Args:
        port: That they listen on.
        story: What is shown with a broken rule.
        rule: Which one is broken by what they do.

    Attributes:
        looked: How often the rule had something to look at.
    """

    def __init__(self, port: int, story: Story, *, rule: str = "RINV-38") -> None:
        self._rule = rule
        self._port = port
        self._story = story
        self._connections: dict[SimulatedSocket, _Connection] = {}
        self.looked: Counter[str] = Counter()

    def arrived(self, sock: SimulatedSocket, data: bytes) -> None:
        """Bytes have reached a socket; none are the end of the stream."""
        connection = self._connections.get(sock)
        if connection is None:
            if sock.getsockname()[1] != self._port:
                return
            connection = self._connections[sock] = _Connection(sock.machine)  # type: ignore[arg-type]
            connection.is_of_node = sock.peer is not None and isinstance(sock.peer.machine, NodeMachine)
            connection.counted_since_ns = connection.machine.world.now_ns
        for frame in connection.incoming.feed(data):
            connection.request_count += 1
            request = _read(frame)
            if request is not None:
                if not connection.waiting:
                    self._begin(connection, request)
                connection.waiting.append(request)

    def _begin(self, connection: _Connection, request: _Request) -> None:
        machine = connection.machine
        request.since_ns, request.paused_ns = machine.world.now_ns, machine.paused_ns

    def sent(self, sock: SimulatedSocket, data: bytes) -> None:
        """A machine has handed bytes to a socket.

        Raises:
            InvariantViolationError: They are no answer to the oldest request of the connection, or come too late.
        """
        connection = self._connections.get(sock)
        if connection is None:
            return
        if connection.is_full and connection.waiting:
            self._begin(connection, connection.waiting[0])
        connection.is_full = not sock.is_writable
        for frame in connection.outgoing.feed(data):
            correlation_id = _INT32.unpack_from(frame)[0]
            if not connection.waiting or connection.waiting[0].correlation_id != correlation_id:
                expected = connection.waiting[0].correlation_id if connection.waiting else "no request"
                self._fail(connection, f"answers request {correlation_id} where {expected} is next")
            request = connection.waiting.popleft()
            self._check_time(connection, request)
            if connection.waiting:
                self._begin(connection, connection.waiting[0])

    def _check_time(self, connection: _Connection, request: _Request) -> float:
        """How much of its time is left, milliseconds."""
        machine = connection.machine
        if request.allowed_ms == _NEVER:
            return _NEVER
        self.looked[self._rule] += 1
        took_ms = (machine.world.now_ns - request.since_ns - (machine.paused_ns - request.paused_ns)) / 1e6
        left_ms = request.allowed_ms + 4 * machine.flush_ms[1] - took_ms
        if left_ms < 0:
            self._fail(connection, f"{request.what} took {took_ms:.0f} ms of {request.allowed_ms:.0f}")
        return left_ms

    def look(self) -> float:
        """Look for requests whose time is over; returns the milliseconds within which no other one's will be.

        Raises:
            InvariantViolationError: There is one.
        """
        # Of requests that arrive from now on.
        next_ms = float(_SLACK_MS)
        for sock, connection in list(self._connections.items()):
            if sock.is_closed or sock.is_broken:
                del self._connections[sock]
                continue
            if connection.is_of_node:
                self._check_rate(connection)
            if connection.waiting and sock.is_writable and not connection.machine.is_paused:
                next_ms = min(next_ms, self._check_time(connection, connection.waiting[0]))
        return next_ms

    def _check_rate(self, connection: _Connection) -> None:
        """Nodes do not ask each other again and again without a pause (RINV-39)."""
        now_ns = connection.machine.world.now_ns
        took_ns = now_ns - connection.counted_since_ns
        if took_ns < _COUNTED_NS:
            return
        self.looked["RINV-39"] += 1
        rate = connection.request_count * 1e9 / took_ns
        connection.request_count, connection.counted_since_ns = 0, now_ns
        if rate > _MOST_REQUESTS_PER_S:
            reason = f"{connection.machine.name}: a node sends {rate:.0f} requests per second on one connection"
            raise InvariantViolationError("RINV-39", reason, self._story.last(40))

    def _fail(self, connection: _Connection, reason: str) -> None:
        raise InvariantViolationError(self._rule, f"{connection.machine.name}: {reason}", self._story.last(40))


def _read(frame: bytes) -> _Request | None:
    """A request; None if it gets no answer."""
    api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
    position = _HEADER.size + max(length, 0)
    if api_key == _PRODUCE:
        is_flexible = version >= _FLEXIBLE_PRODUCE
        position += is_flexible
        allowed_ms = float(_SLACK_MS)
        if version >= _PRODUCE_WITH_TRANSACTIONAL_ID:
            if is_flexible:
                length, position = _unsigned(frame, position)
                length -= 1
            else:
                length = _INT16.unpack_from(frame, position)[0]
                position += _INT16.size
            allowed_ms += _VERIFICATION_MS * (length >= 0)
            position += max(length, 0)
        acks = _INT16.unpack_from(frame, position)[0]
        if acks == 0:
            return None
        timeout_ms = _INT32.unpack_from(frame, position + _INT16.size)[0]
        return _Request(correlation_id, f"Produce of {timeout_ms} ms", allowed_ms + timeout_ms * _SLOWEST_CLOCK)
    if api_key == _FETCH:
        position += version >= _FLEXIBLE_FETCH
        position += 0 if version >= _FETCH_WITH_REPLICA_STATE else _INT32.size
        wait_ms = _INT32.unpack_from(frame, position)[0]
        return _Request(correlation_id, f"Fetch of {wait_ms} ms", _SLACK_MS + wait_ms * _SLOWEST_CLOCK)
    return _Request(correlation_id, f"API {api_key}", _NEVER)


def _unsigned(frame: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint and the position behind it."""
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
