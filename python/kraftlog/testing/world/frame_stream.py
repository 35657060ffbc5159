"""Streams of bytes cut into Kafka's frames, and which request an answer belongs to."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kraftlog.testing.world.network import SimulatedSocket

__all__ = ["REQUEST_HEADER", "Exchange", "Exchanges", "FrameStream"]

REQUEST_HEADER: Final = struct.Struct(">hhi")
"""API key, version and correlation id, with which a request begins."""

_SIZE: Final = struct.Struct(">i")


class FrameStream:
    """Cuts the bytes of one direction of a connection into frames."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that end within ``data``, without their sizes."""
        if self._rest:
            data = self._rest + data
        elif len(data) >= _SIZE.size and _SIZE.unpack_from(data)[0] == len(data) - _SIZE.size:
            return [data[_SIZE.size :]]  # one frame, as mostly
        frames: list[bytes] = []
        position = 0
        while len(data) - position >= _SIZE.size:
            end = position + _SIZE.size + _SIZE.unpack_from(data, position)[0]
            if end > len(data):
                break
            frames.append(data[position + _SIZE.size : end])
            position = end
        self._rest = data[position:]
        return frames


class Exchange:
    """What goes over one end of a connection.

    Attributes:
        incoming, outgoing: Both directions.
        asked: Requests that have arrived and are not answered, whole frames by correlation id.
        before: What a checker noted when such a request arrived, by correlation id.
    """

    __slots__ = ("asked", "before", "incoming", "outgoing")

    def __init__(self) -> None:
        self.incoming, self.outgoing = FrameStream(), FrameStream()
        self.asked: dict[int, bytes] = {}
        self.before: dict[int, Any] = {}

    def asked_by(self, answer: bytes) -> bytes | None:
        """The request of an answer's frame, which is answered now; None if nobody noted it."""
        return self.asked.pop(_SIZE.unpack_from(answer)[0], None)

    def noted_for(self, answer: bytes) -> Any:
        """What was noted when the request of an answer's frame arrived; None without a note."""
        return self.before.pop(_SIZE.unpack_from(answer)[0], None)


class Exchanges:
    """The ends of connections that a checker follows; those that were closed are forgotten.

    Args:
        apis: API keys of the requests that are noted.
    """

    def __init__(self, apis: frozenset[int]) -> None:
        self._apis = apis
        self._by_socket: dict[SimulatedSocket, Exchange] = {}

    def of(self, sock: SimulatedSocket) -> Exchange:
        """That of a socket."""
        found = self._by_socket.get(sock)
        if found is None:
            for known in [known for known in self._by_socket if known.is_closed]:
                del self._by_socket[known]
            found = self._by_socket[sock] = Exchange()
        return found

    def arrived(self, sock: SimulatedSocket, data: bytes) -> list[bytes]:
        """Bytes have reached a server's end: note the requests that end in them; returns these."""
        exchange = self.of(sock)
        noted = []
        for frame in exchange.incoming.feed(data):
            api_key, _, correlation_id = REQUEST_HEADER.unpack_from(frame)
            if api_key in self._apis:
                exchange.asked[correlation_id] = frame
                noted.append(frame)
        return noted
