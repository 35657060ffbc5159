"""The record batches of a log or checkpoint file, a window of it at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kraftlog._kraftlog import RecordBatch, list_segments, read_batches
from kraftlog.cli.progress import Progress
from kraftlog.errors import CorruptRecordError

__all__ = ["log_batches", "record_batches"]

_WINDOW_BYTES = 4 << 20
_LENGTH_END = 12


def record_batches(path: Path, bar: Progress | None = None) -> Iterator[RecordBatch]:
    """The batches of a file, up to one that is cut short or to space that was allocated in advance.

    Raises:
        CorruptRecordError: Bytes that are no batch, or a wrong checksum; names file and position.
    """
    position, window = 0, _WINDOW_BYTES
    size = path.stat().st_size
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            data = file.read(window)
            whole = _whole_batches(data)
            if whole == 0:
                length = int.from_bytes(data[8:_LENGTH_END], "big", signed=True)
                if length <= 0 and any(data[: _LENGTH_END + 5]) and len(data) >= _LENGTH_END:
                    raise CorruptRecordError(f"{path} position {position}: batch length {length}")
                if length <= 0 or len(data) < window:
                    return
                window *= 2
                continue
            try:
                batches = read_batches(memoryview(data)[:whole])
            except CorruptRecordError as error:
                raise CorruptRecordError(f"{path}, {error} counted from byte {position}") from None
            yield from batches
            position += whole
            window = _WINDOW_BYTES
            if bar is not None:
                bar.advance(whole)


def log_batches(directory: Path, start_offset: int, bar: Progress | None = None) -> Iterator[RecordBatch]:
    """The batches of a partition's directory that have offsets from ``start_offset`` on.

    Raises:
        CorruptRecordError: As :func:`record_batches`.
    """
    segments = list_segments(directory)
    for number, (_, path, _) in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1][0] <= start_offset:
            continue
        for batch in record_batches(path, bar):
            if batch.last_offset >= start_offset:
                yield batch


def _whole_batches(data: bytes) -> int:
    """Bytes of the whole batches at the front; a length that no batch has ends it."""
    end = 0
    while end + _LENGTH_END <= len(data):
        size = _LENGTH_END + int.from_bytes(data[end + 8 : end + _LENGTH_END], "big", signed=True)
        if size <= _LENGTH_END or end + size > len(data):
            break
        end += size
    return end
