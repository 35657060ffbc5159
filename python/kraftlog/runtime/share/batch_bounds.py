"""Offsets of the record batches in a slice of a log, read from their headers alone.

The engine checked the checksum of each batch when it was appended.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kraftlog._kraftlog import FileSlice

__all__ = ["BatchBounds", "batch_bounds"]

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, two timestamps, producer id
_HEADER = struct.Struct(">qiibIhiqqq")
_FRAME_BYTES = 12
_TRANSACTIONAL, _CONTROL = 16, 32


class BatchBounds(NamedTuple):
    """First and last offset of a batch, both inclusive; ``producer_id`` is -1 unless it is data of a transaction."""

    first: int
    last: int
    producer_id: int


def batch_bounds(records: FileSlice) -> Iterator[BatchBounds]:
    """The batches of a slice in order; a header at a time is read."""
    position, size_bytes = 0, records.size_bytes
    if not size_bytes:
        return
    read = _reader(records)
    while position + _HEADER.size <= size_bytes:
        header = read(position)
        if len(header) < _HEADER.size:
            return
        first, length, _, magic, _, attributes, delta, _, _, producer_id = _HEADER.unpack(header)
        if magic < 2:
            # The offset of a wrapper with compressed messages is that of its last one.
            yield BatchBounds(first, first, -1)
        else:
            is_data = attributes & _TRANSACTIONAL and not attributes & _CONTROL
            yield BatchBounds(first, first + delta, producer_id if is_data else -1)
        if length <= 0:
            return
        position += _FRAME_BYTES + length


def _reader(records: FileSlice) -> Callable[[int], bytes]:
    try:
        descriptor = records.fileno()
    except (ValueError, OSError):
        # A file in memory has no descriptor.
        data = memoryview(records)
        return lambda position: bytes(data[position : position + _HEADER.size])
    start = records.position
    return lambda position: os.pread(descriptor, _HEADER.size, start + position)
