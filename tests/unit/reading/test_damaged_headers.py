"""A base offset with a wrong bit hides no record batch from those who list them, and moves no end of a log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch, log_end_offset
from kraftlog.errors import CorruptRecordError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Ten batches of ten records; the fifth has base offset 40 + 2^20."""
    path = tmp_path / "t-0"
    path.mkdir()
    batches = [bytearray(encode_batch([(1, None, bytes(20), [])] * 10, base_offset=base)) for base in range(0, 100, 10)]
    batches[4][5] ^= 0x10
    (path / f"{0:020}.log").write_bytes(b"".join(batches))
    return path


def bases(directory: Path, **options: int) -> list[int]:
    rows = pa.table(kraftlog.open_log(directory).batches(**options))
    found: list[int] = rows["base_offset"].to_pylist()
    return found


def test_batches_behind_a_wrong_base_offset_are_listed(directory: Path) -> None:
    assert bases(directory) == [*range(0, 40, 10), 40 + (1 << 20), *range(50, 100, 10)]
    with pytest.raises((CorruptRecordError, pa.ArrowInvalid), match=r"00000000000000000000\.log position \d+"):
        bases(directory, end_offset=80)


def test_a_scan_with_an_end_names_the_batch(directory: Path) -> None:
    parts = iter(kraftlog.open_log(directory).scan(end_offset=80, columns=["offset"]))
    assert pa.record_batch(next(parts))["offset"].to_pylist() == list(range(40))
    with pytest.raises(CorruptRecordError, match=r"last offset 1048625 where the next batch begins at 50"):
        next(parts)


@pytest.mark.parametrize("bit", range(64))
def test_a_wrong_base_offset_of_the_last_batch_does_not_lower_the_end(tmp_path: Path, bit: int) -> None:
    path = tmp_path / "t-0"
    path.mkdir()
    last = bytearray(encode_batch([(1, None, b"x", [])] * 10, base_offset=90))
    last[bit // 8] ^= 0x80 >> bit % 8
    first = encode_batch([(1, None, b"x", [])] * 10, base_offset=80)
    (path / f"{80:020}.log").write_bytes(first + bytes(last))
    try:
        assert log_end_offset(path) >= 100
    except CorruptRecordError as error:
        assert f"position {len(first)}" in str(error)
