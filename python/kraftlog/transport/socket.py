"""One socket on an event loop: frames in as a list per wake-up, buffers and file slices out.

This seam is narrow on purpose: the loop below it could move into Rust, and no handler would notice; ``tls_transport``
puts TLS into it.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kraftlog.errors import RemoteProtocolError
from kraftlog.transport.frame_reader import RECEIVE_BUFFER_BYTES, Frame, FrameReader
from kraftlog.transport.handshake_reader import HandshakeReader

if TYPE_CHECKING:
    import asyncio

__all__ = ["FrameReceiver", "Output", "Transport", "as_file_piece", "is_file"]

# A file slice has .fileno(), .position and .size_bytes (kraftlog._kraftlog.FileSlice).
Output = Any

# Below this a pread into user space and one send cost less than a send and a sendfile.
_COPY_BELOW_BYTES = 16 * 1024
_MAX_BUFFERS_A_SEND = 64
# Above this many unsent bytes the connection is told to stop reading, below half of it to go on.
WRITE_HIGH_WATER_BYTES = 4 * 1024 * 1024
# The same for those of them that are in memory and not in a file.
MEMORY_HIGH_WATER_BYTES = 1024 * 1024
# Bytes that go to the kernel before the loop looks at other sockets: a Fetch response of 1 MiB goes at once.
_FLUSH_BYTES = 1280 * 1024


class FrameReceiver(Protocol):
    """What a transport calls: the connection above it."""

    @property
    def is_behind(self) -> bool:
        """Whether received frames wait to be handled."""
        ...

    def may_receive(self) -> bool:
        """Whether to receive now that the socket is readable; if not, the receiver calls ``receive`` later."""
        ...

    def frames_received(self, frames: list[Frame]) -> None:
        """Frames of one wake-up, in order, at least one."""

    def connection_lost(self, reason: str | None) -> None:
        """The socket is closed; reason is None when the peer closed it between frames, or we did."""

    def writing_paused(self) -> None:
        """Too many bytes wait to be sent."""

    def writing_resumed(self) -> None:
        """Enough bytes were sent."""


class Transport:
    """Owns a connected, non-blocking socket.

    All methods are called on the loop's thread. ``write`` never blocks and never calls back synchronously, except
    ``connection_lost`` when the peer is found gone.
    """

    __slots__ = (
        "_closing",
        "_fd",
        "_file_bytes",
        "_loop",
        "_out",
        "_out_bytes",
        "_reader",
        "_reading",
        "_receiver",
        "_sends_files",
        "_sock",
        "_writer_registered",
        "_writing_paused",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        reader: FrameReader | HandshakeReader,
        receiver: FrameReceiver,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._sends_files = isinstance(sock, socket.socket)  # a simulated one takes bytes only
        self._fd = sock.fileno()
        self._reader = reader
        self._receiver = receiver
        self._out: deque[Output] = deque()
        self._out_bytes = 0
        self._file_bytes = 0
        self._reading = False
        self._writer_registered = False
        self._writing_paused = False
        self._closing = False

    @property
    def is_closed(self) -> bool:
        """Whether the socket is gone."""
        return self._fd < 0

    @property
    def fd(self) -> int:
        """The descriptor of the socket; negative once it is closed."""
        return self._fd

    @property
    def is_reading(self) -> bool:
        """Whether frames are delivered."""
        return self._reading

    @property
    def unsent_bytes(self) -> int:
        """Bytes handed to ``write`` that the kernel has not taken."""
        return self._out_bytes

    @property
    def has_partial_frame(self) -> bool:
        """Whether the peer stopped inside a frame."""
        return self._reader.has_partial_frame

    @property
    def is_before_authentication(self) -> bool:
        """Whether frames are read as those of a peer that SASL does not know."""
        return isinstance(self._reader, HandshakeReader)

    def replace_reader(self, reader: FrameReader) -> list[Frame]:
        """Read with another reader from now on; returns frames that are whole already, which are not delivered.

        Raises:
            RemoteProtocolError: A size is negative or above the limit of the new reader.
        """
        rest = self._reader.take_rest() if isinstance(self._reader, HandshakeReader) else b""
        self._reader = reader
        return reader.feed(rest) if rest else []

    def detach(self) -> tuple[socket.socket, bytes, bytes]:
        """Give up the socket of a peer that has just authenticated; the receiver hears of nothing any more.

        Returns:
            The socket, the bytes that were received and are in no frame, and those that the kernel has not taken.
        """
        self.pause_reading()
        if self._writer_registered:
            self._writer_registered = False
            self._loop.remove_writer(self._fd)
        self._fd = -1
        received = self._reader.take_rest() if isinstance(self._reader, HandshakeReader) else b""
        unsent = b"".join(self._out)  # before authentication nothing is sent from a file
        self._out.clear()
        self._out_bytes = 0
        return self._sock, received, unsent

    def resume_reading(self) -> None:
        """Deliver frames; a transport starts paused."""
        if not self._reading and self._fd >= 0 and not self._closing:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def pause_reading(self) -> None:
        """Deliver no frames until ``resume_reading``; the kernel's buffer then holds the peer back."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def write(self, outputs: Sequence[Output]) -> None:
        """Send buffers and file slices in order; what the kernel does not take now goes out when it can."""
        if self._fd < 0:
            return
        for output in outputs:
            if type(output) is bytes:
                self._out_bytes += len(output)
                self._out.append(output)
            else:
                try:
                    self._append(output)
                except OSError as error:
                    # The frame lacks bytes now: the client would wait for them for ever.
                    self.close(f"an answer cannot be read from a log: {error}")
                    return
        if self._writer_registered:
            self._check_high_water()
        else:
            self._flush()

    def _append(self, output: Output) -> None:
        if hasattr(output, "fileno"):
            size_bytes = output.size_bytes
            buffer = output if self._sends_files and size_bytes >= _COPY_BELOW_BYTES else output.read()
        else:
            buffer = memoryview(output)
            size_bytes = len(buffer)
        if size_bytes:
            self._out_bytes += size_bytes
            if buffer is output:
                self._file_bytes += size_bytes
            self._out.append(buffer)

    def close_when_sent(self) -> None:
        """Close after the bytes already written went out; nothing more is read."""
        self.pause_reading()
        self._closing = True
        if not self._has_unsent():
            self.close(None)

    def close(self, reason: str | None) -> None:
        """Close now and say so to the receiver, once."""
        if self._fd < 0:
            return
        self.pause_reading()
        if self._writer_registered:
            self._writer_registered = False
            self._loop.remove_writer(self._fd)
        self._fd = -1
        self._out.clear()
        self._out_bytes = self._file_bytes = 0
        # A cycle keeps this object until the next collection of garbage: not so the bytes of a partial frame.
        self._reader.clear()
        self._sock.close()
        self._receiver.connection_lost(reason)

    def _on_readable(self) -> None:
        if self._receiver.may_receive():
            self.receive(RECEIVE_BUFFER_BYTES)

    def receive(self, at_most_bytes: int) -> bool:
        """Receive once, and deliver the frames that are whole.

        Returns:
            False when nothing came, or nothing more may come for now.
        """
        if not self._reading:
            return False
        try:
            frames = self._reader.read(self._sock, at_most_bytes)
        except (BlockingIOError, InterruptedError):
            return False
        except RemoteProtocolError as error:
            self.close(str(error))
            return False
        except OSError as error:
            self.close(f"receive failed: {error.strerror}" if self._reader.has_partial_frame else None)
            return False
        if frames is None:
            self.close("peer closed the connection inside a frame" if self._reader.has_partial_frame else None)
            return False
        if frames:
            self._receiver.frames_received(frames)
        return True

    def _on_writable(self) -> None:
        self._flush()

    def _flush(self) -> None:
        stop_at_bytes = self._out_bytes - _FLUSH_BYTES
        try:
            while self._out_bytes >= stop_at_bytes and self._send_next():
                pass
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(f"send failed: {error.strerror}" if not isinstance(error, ConnectionError) else None)
            return
        if self._fd >= 0:
            self._after_flush()

    def _send_next(self) -> bool:
        """Send what is first; False when there is nothing, or the kernel took less."""
        if not self._out:
            return False
        return self._send_file() if is_file(self._out[0]) else self._send_buffers()

    def _has_unsent(self) -> bool:
        return bool(self._out)

    def _after_flush(self) -> None:
        if self._has_unsent():
            if not self._writer_registered:
                self._writer_registered = True
                self._loop.add_writer(self._fd, self._on_writable)
            self._check_high_water()
        else:
            if self._writer_registered:
                self._writer_registered = False
                self._loop.remove_writer(self._fd)
            if self._closing:
                self.close(None)
                return
        if (
            self._writing_paused
            and self._out_bytes <= WRITE_HIGH_WATER_BYTES // 2
            and self._out_bytes - self._file_bytes <= MEMORY_HIGH_WATER_BYTES // 2
        ):
            self._writing_paused = False
            self._receiver.writing_resumed()

    def _check_high_water(self) -> None:
        if not self._writing_paused and (
            self._out_bytes > WRITE_HIGH_WATER_BYTES or self._out_bytes - self._file_bytes > MEMORY_HIGH_WATER_BYTES
        ):
            self._writing_paused = True
            self._receiver.writing_paused()

    def _send_buffers(self) -> bool:
        """Send the run of buffers at the front in one call; False when the kernel took less."""
        out = self._out
        if len(out) == 1:
            first = out[0]
            size_bytes = len(first)
            if size_bytes > _FLUSH_BYTES:
                first, size_bytes = memoryview(first), _FLUSH_BYTES
                sent_bytes = self._sock.send(first[:size_bytes])
            else:
                sent_bytes = self._sock.send(first)
            self._out_bytes -= sent_bytes
            if sent_bytes == len(first):
                out.clear()
                return True
            out[0] = memoryview(first)[sent_bytes:]
            return sent_bytes == size_bytes
        buffers: list[bytes | memoryview] = []
        more = 0
        for output in out:
            if is_file(output):
                # The file's bytes follow at once: let the kernel fill the packet instead of sending a short one.
                more = socket.MSG_MORE
                break
            buffers.append(output)
            if len(buffers) == _MAX_BUFFERS_A_SEND:
                break
        return self._took(buffers, self._sock.sendmsg(buffers, (), more))

    def _took(self, buffers: list[bytes | memoryview], sent_bytes: int) -> bool:
        self._out_bytes -= sent_bytes
        for buffer in buffers:
            if sent_bytes < len(buffer):
                if sent_bytes:
                    self._out[0] = memoryview(buffer)[sent_bytes:]
                return False
            sent_bytes -= len(buffer)
            self._out.popleft()
        return True

    def _send_file(self) -> bool:
        piece = as_file_piece(self._out[0])
        self._out[0] = piece
        size_bytes = min(piece.remaining_bytes, _FLUSH_BYTES)
        sent_bytes = os.sendfile(self._fd, piece.fd, piece.position, size_bytes)
        if sent_bytes == 0:
            msg = "the file ended before the slice did"
            raise OSError(0, msg)
        self._out_bytes -= sent_bytes
        self._file_bytes -= sent_bytes
        piece.position += sent_bytes
        piece.remaining_bytes -= sent_bytes
        if piece.remaining_bytes:
            return sent_bytes == size_bytes
        self._out.popleft()
        return True


class _FilePiece:
    """The unsent rest of a file slice; keeps the slice, and with it the file, open."""

    __slots__ = ("fd", "position", "remaining_bytes", "slice")

    def __init__(self, file_slice: Any) -> None:
        self.slice = file_slice
        self.fd: int = file_slice.fileno()
        self.position: int = file_slice.position
        self.remaining_bytes: int = file_slice.size_bytes


def as_file_piece(output: Output) -> _FilePiece:
    """The unsent part of an output that ``is_file``."""
    return output if type(output) is _FilePiece else _FilePiece(output)


def is_file(output: Output) -> bool:
    """Whether an output is part of a file instead of bytes."""
    return type(output) is not bytes and (type(output) is _FilePiece or hasattr(output, "fileno"))
