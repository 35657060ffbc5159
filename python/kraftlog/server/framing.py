"""Cut a stream of bytes into Kafka's frames: a 4-byte size, then that many bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.errors import RemoteProtocolError

if TYPE_CHECKING:
    from socket import socket

__all__ = ["RECEIVE_BUFFER_BYTES", "Frame", "FrameReader"]

Frame = bytes | bytearray

RECEIVE_BUFFER_BYTES = 256 * 1024
_FIRST_ALLOCATION_BYTES = 1024 * 1024


class FrameReader:
    """Reads a non-blocking socket and gives whole frames, each in one buffer of its own.

    Bytes land in a scratch buffer that all connections of a loop share; whole frames are copied out of it. A frame
    that does not fit gets a buffer of its own, into which the rest is received directly. That buffer grows as bytes
    arrive: a size field alone never makes us allocate more than 1 MiB.

    Args:
        scratch: Shared by every reader of one event loop; nothing is kept in it between calls.
        max_frame_bytes: Largest frame, without its size field (``socket.request.max.bytes``).
    """

    __slots__ = ("_frame", "_frame_size_bytes", "_received_bytes", "_scratch", "_size_prefix", "max_frame_bytes")

    def __init__(self, scratch: memoryview, max_frame_bytes: int) -> None:
        self._scratch = scratch
        self.max_frame_bytes = max_frame_bytes
        self._size_prefix = b""
        self._frame: bytearray | None = None
        self._frame_size_bytes = 0
        self._received_bytes = 0

    @property
    def has_partial_frame(self) -> bool:
        """Whether the peer stopped inside a frame."""
        return self._frame is not None or bool(self._size_prefix)

    def read(self, sock: socket) -> list[Frame] | None:
        """Receive once and give the frames that are now whole; None at the end of the stream.

        Raises:
            RemoteProtocolError: A size is negative or above the limit; nothing more can be read from this peer.
            OSError: As ``socket.recv_into``; ``BlockingIOError`` when there is nothing to read.
        """
        if self._frame is not None:
            return self._read_frame_rest(sock, self._frame)
        received_bytes = sock.recv_into(self._scratch)
        if received_bytes == 0:
            return None
        data = self._scratch[:received_bytes]
        if self._size_prefix:
            data = memoryview(self._size_prefix + bytes(data))
            self._size_prefix = b""
        return self._cut(data)

    def _cut(self, data: memoryview) -> list[Frame]:
        frames: list[Frame] = []
        position = 0
        end = len(data)
        while end - position >= 4:
            size_bytes = int.from_bytes(data[position : position + 4], "big", signed=True)
            if not 0 <= size_bytes <= self.max_frame_bytes:
                self._refuse(size_bytes)
            position += 4
            if end - position < size_bytes:
                self._start_frame(size_bytes, data[position:])
                return frames
            frames.append(bytes(data[position : position + size_bytes]))
            position += size_bytes
        self._size_prefix = bytes(data[position:])
        return frames

    def _refuse(self, size_bytes: int) -> None:
        if size_bytes < 0:
            msg = f"frame size {size_bytes} is negative"
        else:
            msg = f"frame size {size_bytes} is larger than socket.request.max.bytes={self.max_frame_bytes}"
        raise RemoteProtocolError(msg)

    def _start_frame(self, size_bytes: int, beginning: memoryview) -> None:
        self._frame = bytearray(min(size_bytes, max(_FIRST_ALLOCATION_BYTES, len(beginning))))
        self._frame[: len(beginning)] = beginning
        self._frame_size_bytes = size_bytes
        self._received_bytes = len(beginning)

    def _read_frame_rest(self, sock: socket, frame: bytearray) -> list[Frame] | None:
        if self._received_bytes == len(frame):
            frame.extend(bytes(min(self._frame_size_bytes - len(frame), 3 * len(frame))))
        with memoryview(frame) as view:
            received_bytes = sock.recv_into(view[self._received_bytes :])
        if received_bytes == 0:
            return None
        self._received_bytes += received_bytes
        if self._received_bytes < self._frame_size_bytes:
            return []
        self._frame = None
        return [frame]
