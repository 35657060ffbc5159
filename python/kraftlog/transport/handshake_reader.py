"""Frames of a peer that is not authenticated yet: small ones, and nothing is allocated by the size that it claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.errors import RemoteProtocolError

if TYPE_CHECKING:
    from kraftlog.transport.frame_reader import Frame, Receiver

__all__ = ["HandshakeReader"]

_SIZE_BYTES = 4


class HandshakeReader:
    """As ``FrameReader``, until the peer is authenticated; ``take_rest`` then gives what came too early.

    Args:
        scratch: Shared by every reader of one event loop.
        max_frame_bytes: Largest frame, without its size field (``sasl.server.max.receive.size``).
    """

    __slots__ = ("_max_frame_bytes", "_received", "_scratch")

    def __init__(self, scratch: memoryview, max_frame_bytes: int) -> None:
        self._scratch = scratch
        self._max_frame_bytes = max_frame_bytes
        self._received = bytearray()

    @property
    def has_partial_frame(self) -> bool:
        """Whether the peer stopped inside a frame."""
        return bool(self._received)

    def clear(self) -> None:
        """Forget a partial frame."""
        self._received.clear()

    def take_rest(self) -> bytes:
        """Bytes that were received and are in no frame, for another reader; this one has none then."""
        rest = bytes(self._received)
        self._received.clear()
        return rest

    def read(self, sock: Receiver, at_most_bytes: int) -> list[Frame] | None:
        """Receive once and give the frames that are now whole; None at the end of the stream.

        Raises:
            RemoteProtocolError: The size of the first frame is negative or above the limit.
            OSError: As ``socket.recv_into``.
        """
        received_bytes = sock.recv_into(self._scratch[:at_most_bytes])
        if not received_bytes:
            return None
        self._received += self._scratch[:received_bytes]
        frames: list[Frame] = []
        position = 0
        while len(self._received) - position >= _SIZE_BYTES:
            start = position + _SIZE_BYTES
            size_bytes = int.from_bytes(self._received[position:start], "big", signed=True)
            if not 0 <= size_bytes <= self._max_frame_bytes:
                # Behind another frame it may be a request of a peer which that frame authenticates.
                if not frames:
                    raise RemoteProtocolError(
                        f"a frame of {size_bytes} bytes before authentication, which allows {self._max_frame_bytes}"
                    )
                break
            if len(self._received) < start + size_bytes:
                break
            position = start + size_bytes
            frames.append(bytes(self._received[start:position]))
        del self._received[:position]
        return frames
