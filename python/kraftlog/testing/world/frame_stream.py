"""A stream of bytes cut into Kafka's frames."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["FrameStream"]

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
