"""Receive from a non-blocking socket and cut what came into Kafka's frames."""

from __future__ import annotations

from typing import Protocol

from kraftlog import _kraftlog

__all__ = ["RECEIVE_BUFFER_BYTES", "Frame", "FrameReader", "Receiver"]

Frame = bytes | bytearray | memoryview

RECEIVE_BUFFER_BYTES = 256 * 1024
# From here on the rest of a frame is received straight into the frame's own buffer.
_IN_PLACE_FROM_BYTES = 64 * 1024


class Receiver(Protocol):
    """What bytes are received from: a socket, or what decrypts one."""

    def recv_into(self, buffer: memoryview) -> int:
        """As ``socket.recv_into``: 0 at the end of the stream."""


class FrameReader:
    """Reads a socket and gives whole frames, each in one buffer of its own.

    Bytes land in a scratch buffer that all connections of a loop share, so that an idle connection holds no buffer;
    the engine cuts them. Only the rest of a large frame is received in place.

    Args:
        scratch: Shared by every reader of one event loop; nothing is kept in it between calls.
        max_frame_bytes: Largest frame, without its size field (``socket.request.max.bytes``).
    """

    __slots__ = ("_frames", "_scratch")

    def __init__(self, scratch: memoryview, max_frame_bytes: int) -> None:
        self._scratch = scratch
        self._frames = _kraftlog.FrameReader(max_frame_bytes)

    @property
    def has_partial_frame(self) -> bool:
        """Whether the peer stopped inside a frame."""
        return self._frames.pending_bytes > 0

    def clear(self) -> None:
        """Forget a partial frame and free its memory."""
        self._frames.clear()

    def feed(self, received: bytes) -> list[Frame]:
        """Give the frames that bytes complete which another reader received.

        Raises:
            RemoteProtocolError: A size is negative or above the limit.
        """
        return self._frames.feed(received)

    def read(self, sock: Receiver, at_most_bytes: int = RECEIVE_BUFFER_BYTES) -> list[Frame] | None:
        """Receive once and give the frames that are now whole; None at the end of the stream.

        Args:
            sock: Where from.
            at_most_bytes: Bytes to receive; not for the rest of a large frame, which is received in place.

        Raises:
            RemoteProtocolError: A size is negative or above the limit; nothing more can be read from this peer.
            OSError: As ``socket.recv_into``; ``BlockingIOError`` when there is nothing to read.
        """
        frames = self._frames
        if frames.pending_bytes >= _IN_PLACE_FROM_BYTES:
            with frames.get_buffer(-1) as buffer:
                received_bytes = sock.recv_into(buffer)
            return frames.buffer_updated(received_bytes) if received_bytes else None
        scratch = self._scratch
        received_bytes = sock.recv_into(scratch if at_most_bytes >= RECEIVE_BUFFER_BYTES else scratch[:at_most_bytes])
        return frames.feed(self._scratch[:received_bytes]) if received_bytes else None
