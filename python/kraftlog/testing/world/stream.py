"""The transport of a client's connection: what ``create_connection`` gives a protocol."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftlog.testing.world.network import SimulatedSocket

__all__ = ["Stream"]

_RECEIVE_BYTES = 64 * 1024
_HIGH_WATER_BYTES = 64 * 1024


class Stream(asyncio.Transport):
    """A ``Transport`` over a simulated socket.

    Args:
        loop: Of the machine.
        sock: Connected.
        protocol: Gets what arrives, buffered or not.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: SimulatedSocket, protocol: Any) -> None:
        super().__init__({"peername": sock.getpeername(), "sockname": sock.getsockname(), "socket": sock})
        self._loop = loop
        self._sock = sock
        self._protocol = protocol
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._is_closing = False
        self._is_lost = False
        self._is_reading = False
        self._is_paused = False
        protocol.connection_made(self)
        self.resume_reading()

    def get_protocol(self) -> Any:
        """The protocol."""
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        """Give what arrives to another one."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Whether it is closed or being closed."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Whether bytes are delivered."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Deliver nothing."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._sock.fileno())

    def resume_reading(self) -> None:
        """Deliver again."""
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._loop.add_reader(self._sock.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        try:
            if isinstance(self._protocol, asyncio.BufferedProtocol) or hasattr(self._protocol, "get_buffer"):
                buffer = self._protocol.get_buffer(-1)
                count = self._sock.recv_into(buffer)
                if count:
                    self._protocol.buffer_updated(count)
                    return
            else:
                data = self._sock.recv(_RECEIVE_BYTES)
                if data:
                    self._protocol.data_received(data)
                    return
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error)
            return
        self.pause_reading()
        eof_received = getattr(self._protocol, "eof_received", None)
        if eof_received is None or not eof_received():
            self.close()

    def write(self, data: Any) -> None:
        """Send, now or when the peer has room."""
        if self._is_lost or self._is_closing:
            return
        if len(data):
            self._out.append(memoryview(data if type(data) is bytes else bytes(data)))
            self._out_bytes += len(data)
            self._flush()

    def writelines(self, list_of_data: Any) -> None:
        """Send several."""
        self.write(b"".join(list_of_data))

    def _flush(self) -> None:
        try:
            while self._out:
                sent = self._sock.send(self._out[0])
                self._out_bytes -= sent
                if sent < len(self._out[0]):
                    self._out[0] = self._out[0][sent:]
                else:
                    self._out.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._sock.fileno(), self._on_writable)
            if not self._is_paused and self._out_bytes > _HIGH_WATER_BYTES:
                self._is_paused = True
                self._protocol.pause_writing()
            return
        except OSError as error:
            self._loop.call_soon(self._lose, error)
            return
        if self._is_paused:
            self._is_paused = False
            self._protocol.resume_writing()
        if self._is_closing:
            self._lose(None)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._sock.fileno())
        self._flush()

    def can_write_eof(self) -> bool:
        """Yes."""
        return True

    def write_eof(self) -> None:
        """Send the end of the stream."""
        self._sock.shutdown(1)

    def get_write_buffer_size(self) -> int:
        """Bytes not sent yet."""
        return self._out_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Unsent bytes at which the protocol goes on, and at which it pauses."""
        return 0, _HIGH_WATER_BYTES

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing: the limits are fixed."""

    def close(self) -> None:
        """Close when everything is sent."""
        if not self._is_closing:
            self._is_closing = True
            self.pause_reading_for_good()
            if not self._out:
                self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Close now."""
        self._is_closing = True
        self._loop.call_soon(self._lose, None)

    def pause_reading_for_good(self) -> None:
        """Deliver nothing any more."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._sock.fileno())

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self.pause_reading_for_good()
        self._loop.remove_writer(self._sock.fileno())
        self._out.clear()
        self._sock.close()
        self._protocol.connection_lost(error)
