"""Batches of a slice by their headers: sound ones are given, the first damaged one is named."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kraftlog._kraftlog import FileSlice, Log, LogConfig, encode_batch
from kraftlog.errors import CorruptRecordError
from kraftlog.runtime.share.batch_bounds import ascending_bounds, batch_bounds

COUNT = 4


def written(path: Path, batches: list[bytes]) -> FileSlice:
    """A slice of a log whose file holds these bytes now; it held as many bytes of whole batches when it was read."""
    whole = b"".join(batches)
    log = Log.open(path, config=LogConfig(), now_ms=0)
    size = len(whole) - len(encode_batch([(0, None, b"", ())]))
    log.append_as_leader(encode_batch([(0, None, b"v" * size, ())]), leader_epoch=0, now_ms=0)
    found = log.read(0, max_bytes=1 << 20, end_offset=1)
    Path(found.path).write_bytes(whole.ljust(found.size_bytes, b"\0"))
    return found.part(0, len(whole))


def batch(offset: int) -> bytes:
    return encode_batch([(0, None, b"v" * 40, ())] * 2, base_offset=offset)


def message(offset: int) -> bytes:
    """Of format v1, without key and value."""
    return struct.pack(">qiibbqii", offset, 22, 0, 1, 0, 0, -1, -1)


def test_batches_and_short_messages_of_earlier_formats(tmp_path: Path) -> None:
    parts = [message(0), message(1), batch(2), batch(9), message(11)]
    bounds = list(ascending_bounds(written(tmp_path / "t-0", parts), 1))
    assert [(each.first, each.last) for each in bounds] == [(1, 1), (2, 3), (9, 10), (11, 11)]
    assert [each.end_position - each.position for each in bounds] == [len(part) for part in parts[1:]]
    assert bounds[0].position == len(parts[0])


@pytest.mark.parametrize(
    ("place", "bytes_there"),
    [
        (8, struct.pack(">i", 0)),
        (8, struct.pack(">i", -7)),
        (8, struct.pack(">i", 48)),
        (8, struct.pack(">i", 2**31 - 1)),
        (16, b"\xff"),
        (23, struct.pack(">i", -1)),
    ],
)
def test_a_header_that_no_batch_has_is_named(tmp_path: Path, place: int, bytes_there: bytes) -> None:
    parts = [batch(2 * number) for number in range(COUNT)]
    damaged = bytearray(parts[2])
    damaged[place : place + len(bytes_there)] = bytes_there
    found = batch_bounds(written(tmp_path / "t-0", [*parts[:2], bytes(damaged), parts[3]]))
    assert [next(found).first, next(found).first] == [0, 2]
    with pytest.raises(CorruptRecordError, match=f"log position {2 * len(parts[0])}: no batch has"):
        next(found)


def test_half_a_batch_at_the_end_is_named(tmp_path: Path) -> None:
    half = batch(2)[:30]
    found = batch_bounds(written(tmp_path / "t-0", [batch(0), half]))
    assert next(found).last == 1
    with pytest.raises(CorruptRecordError, match="no batch has"):
        next(found)
