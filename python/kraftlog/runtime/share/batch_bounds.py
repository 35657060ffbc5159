"""Offsets of the record batches in a slice of a log, read from their headers alone.

The engine checked the checksum of each batch when it was appended.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from kraftlog.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kraftlog._kraftlog import FileSlice

__all__ = ["BatchBounds", "ascending_bounds", "batch_bounds"]

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, two timestamps, producer id
_HEADER = struct.Struct(">qiibIhiqqq")
_FRAME_BYTES = 12
_MAGIC = 2
# What the length field says at least: of a batch without records, and of a message without key and value.
_LENGTH_MIN, _LENGTH_MIN_LEGACY = 49, 14
_TRANSACTIONAL, _CONTROL = 16, 32


class BatchBounds(NamedTuple):
    """Where a batch is.

    ``first`` and ``last`` are its offsets, both inclusive; ``producer_id`` is -1 unless it is data of a transaction.
    Its bytes are ``[position, end_position)`` of the file.
    """

    first: int
    last: int
    producer_id: int
    position: int
    end_position: int


def ascending_bounds(records: FileSlice, offset: int) -> Iterator[BatchBounds]:
    """The batches of a slice from the one on that ends at or after ``offset``, if they ascend.

    A write that went to the wrong place of a segment leaves whole batches of other offsets there, and what they lie
    upon would look like a gap that compaction left. One of earlier offsets shows itself, one of later offsets only by
    the batch behind it.

    Raises:
        CorruptRecordError: A batch does not ascend, or there is none; those before it have been given.
        OSError: The file cannot be read.
    """
    end: int | None = None
    doubtful: BatchBounds | None = None
    for batch in batch_bounds(records):
        if end is None and batch.last < offset:
            continue
        if end is not None and batch.first < end:
            wrong = batch if doubtful is None else doubtful
            reason = f"a batch of offset {batch.first} follows one that ends at offset {end - 1}"
            raise _corrupt(records, wrong.position, reason)
        if doubtful is not None:
            yield doubtful
        is_after_gap = batch.first > (offset if end is None else end)
        end = batch.last + 1
        doubtful = batch if is_after_gap else None
        if not is_after_gap:
            yield batch
    if doubtful is not None:
        yield doubtful


def batch_bounds(records: FileSlice) -> Iterator[BatchBounds]:
    """The batches of a slice in order; a header at a time is read.

    Raises:
        CorruptRecordError: A header has a length that no batch there can have; the batches before it have been given.
        OSError: The file cannot be read.
    """
    if not records.size_bytes:
        return
    position, slice_end = records.position, records.position + records.size_bytes
    read = _reader(records)
    while position < slice_end:
        header = read(position)
        # A message of a format before v2 may be shorter; its fields end with the magic.
        fields = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
        first, length, _, magic, _, attributes, delta, _, _, producer_id = fields
        length_min = _LENGTH_MIN if magic >= _MAGIC else _LENGTH_MIN_LEGACY
        end_position = position + _FRAME_BYTES + length
        if length < length_min or end_position > slice_end or magic < 0 or (magic >= _MAGIC and delta < 0):
            raise _corrupt(records, position, f"no batch has length {length}, magic {magic}, last offset delta {delta}")
        if magic < _MAGIC:
            # The offset of a wrapper with compressed messages is that of its last one.
            yield BatchBounds(first, first, -1, position, end_position)
        else:
            is_data = attributes & _TRANSACTIONAL and not attributes & _CONTROL
            yield BatchBounds(first, first + delta, producer_id if is_data else -1, position, end_position)
        position = end_position


def _corrupt(records: FileSlice, position: int, reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"{records.path} position {position}: {reason}")


def _reader(records: FileSlice) -> Callable[[int], bytes]:
    """Reads the first bytes of a batch at a position of the file, less at the end of the slice."""
    start, end = records.position, records.position + records.size_bytes
    try:
        descriptor = records.fileno()
    except (ValueError, OSError):
        # A file in memory has no descriptor.
        data = memoryview(records)
        return lambda position: bytes(data[position - start : position - start + _HEADER.size])
    return lambda position: os.pread(descriptor, min(_HEADER.size, end - position), position)
