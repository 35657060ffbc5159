"""Each wrong bit of a batch header, in each golden topic: scans and salvage lose that batch at the most, and say so.

A flip is one bit of the 61 bytes of one header. After it, a scan gives what Kafka's consumer would, or names the batch:
as an error after the rows before it, or as a skipped range beside all other rows. Salvage keeps all other batches, and
its result passes ``verify`` and opens. What nobody can detect, since no checksum covers it:

* the partition leader epoch (bytes 12 to 15);
* a base offset (bytes 0 to 7) that stays between its neighbours: in a hole of compaction, and at the end of a log.

In a log with holes two batches may overlap where either could be the wrong one: both are refused then.

CI takes a sample; all flips of all batches: ``KRAFTLOG_ALL_FLIPS=1 pytest tests/property/test_header_flips.py``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kraftlog
from batch_rows import GOLDEN
from kraftlog._kraftlog import Log, LogConfig, salvage_files, verify_files
from kraftlog.errors import CorruptRecordError, LogError

PARTITIONS = sorted(
    path for path in (GOLDEN / "topics").glob("*/*-[0-9]*") if any(log.stat().st_size for log in path.glob("*.log"))
)
BITS = 61 * 8
ALL_FLIPS = os.environ.get("KRAFTLOG_ALL_FLIPS", "") not in {"", "0"}
# Of the bits of a header one in so many is flipped for each topic, and in one batch; salvage writes files.
SCAN_STRIDE = 40
SALVAGE_STRIDE = 2
# Found by flipping all: the wrong length leads into a record whose bytes look like a header of the old formats.
FOUND_BEFORE = {"__consumer_offsets-1": [(1, 91)]}
COLUMNS = ["offset", "key", "value", "headers", "timestamp", "producer_id", "batch_position"]


@dataclass(frozen=True)
class Batch:
    """One batch of the sound log, with what bounds its base offset."""

    file: Path
    position: int
    base_offset: int
    last_offset: int
    lowest: int
    end: int
    # The log has holes: of two batches that overlap nothing may tell which one is wrong, and then both are refused.
    is_sparse: bool = False


def batches_of(directory: Path) -> list[Batch]:
    columns = ["segment_base_offset", "position", "base_offset", "last_offset"]
    rows = pa.table(kraftlog.open_log(directory).batches(check_crc=True)).select(columns).to_pylist()
    found = []
    for index, row in enumerate(rows):
        before = rows[index - 1] if index else None
        after = rows[index + 1] if index + 1 < len(rows) else None
        base = row["segment_base_offset"]
        is_first = before is None or before["segment_base_offset"] != base
        is_last = after is None or after["segment_base_offset"] != base
        lowest = base if is_first or before is None else before["last_offset"] + 1
        ends = [base + 2**31]
        if after is not None:
            ends.append(after["segment_base_offset"] if is_last else after["base_offset"])
        file = directory / f"{base:020}.log"
        found.append(Batch(file, row["position"], row["base_offset"], row["last_offset"], lowest, min(ends)))
    is_sparse = any(batch.lowest != batch.base_offset for batch in found)
    return [replace(batch, is_sparse=is_sparse) for batch in found]


def is_undetectable(batch: Batch, bit: int) -> bool:
    if bit // 8 < 8:
        shift = (batch.base_offset ^ 1 << (63 - bit)) - batch.base_offset if bit else -(2**63)
        return batch.base_offset + shift >= batch.lowest and batch.last_offset + shift < batch.end
    return 12 <= bit // 8 < 16


def flips(batches: list[Batch], seed: int, stride: int) -> Iterator[tuple[Batch, int]]:
    if ALL_FLIPS:
        yield from ((batch, bit) for batch in batches for bit in range(BITS))
        return
    for index, bit in FOUND_BEFORE.get(batches[0].file.parent.name, ()):
        yield batches[index], bit
    for bit in range(seed % stride, BITS, stride):
        # The first and the last batches have the fewest neighbours.
        chosen = (0, -1, -2, bit * 7919 + seed)[(bit // stride + seed) % 4]
        yield batches[chosen % len(batches)], bit


def flip(batch: Batch, bit: int) -> None:
    with batch.file.open("r+b") as file:
        file.seek(batch.position + bit // 8)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        # Bit 0 is the highest of the first byte, as the fields are big endian.
        file.write(bytes([byte ^ 0x80 >> bit % 8]))


def read(directory: Path, **options: Any) -> tuple[list[tuple[Any, ...]], str, list[tuple[str, int]]]:
    """The rows without the column of offsets and with it, the error, and the files and positions that were skipped."""
    scan = kraftlog.open_log(directory).scan(columns=COLUMNS, **options)
    rows: list[tuple[Any, ...]] = []
    error = ""
    try:
        for part in scan:
            columns = pa.record_batch(part).columns
            # Times of any 64 bits: not all are dates.
            columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in columns]
            rows += zip(*(column.to_pylist() for column in columns), strict=True)
    except CorruptRecordError as failure:
        error = str(failure)
    return rows, error, [(skipped.path, skipped.position) for skipped in scan.report().skipped]


def without_offset(rows: list[tuple[Any, ...]]) -> list[str]:
    return [repr(row[1:]) for row in rows]


def without_lists(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(repr(value) for value in row)


@pytest.fixture(params=PARTITIONS, ids=lambda path: f"{path.parent.name}-{path.name}")
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    source: Path = request.param
    copy = tmp_path / source.name
    shutil.copytree(source, copy)
    return copy


def check_scan(directory: Path, batch: Batch, bit: int, sound: list[tuple[Any, ...]], **options: Any) -> None:
    what = f"bit {bit} of the batch at {batch.position} of {batch.file.name}, {options}"
    is_committed = "isolation_level" in options
    rows, error, _ = read(directory, **options)
    if error and batch.is_sparse and bit < 96:
        check_doubtful(directory, batch, what, sound, (rows, error), **options)
        return
    if error:
        # The error names the batch, and comes after the rows before it. The look for transactions begins in the middle
        # of a segment, like a split: it may name the neighbour.
        place = batch.file.name if is_committed else f"{batch.file.name} position {batch.position}"
        assert place in error, f"{what}: {error}"
        assert rows == sound[: len(rows)], what
        assert is_committed or len(rows) == sum(row[0] < batch.base_offset for row in sound), what
    else:
        # Behind the last stable offset nothing is read.
        is_unread = is_committed and bool(sound) and batch.base_offset > sound[-1][0] and rows == sound
        assert is_undetectable(batch, bit) or is_unread, f"{what}: no error"
        assert is_committed or without_offset(rows) == without_offset(sound), what
    rows, _, skipped = read(directory, on_corrupt="skip", **options)
    if error:
        assert (str(batch.file), batch.position) in skipped, what
        assert {path for path, _ in skipped} == {str(batch.file)}, what
        assert len(skipped) <= (2 if is_committed else 1), what
        if is_committed:
            # Without its marker a transaction stays open, or ends with the next one of its producer.
            assert set(map(repr, rows)) <= set(map(repr, sound)), what
        else:
            assert rows == [row for row in sound if not batch.base_offset <= row[0] <= batch.last_offset], what
    else:
        assert not skipped, what
        assert is_committed or without_offset(rows) == without_offset(sound), what


def check_doubtful(
    directory: Path,
    batch: Batch,
    what: str,
    sound: list[tuple[Any, ...]],
    found: tuple[list[tuple[Any, ...]], str],
    **options: Any,
) -> None:
    """A wrong base offset or length between holes: told in this file, and no row is wrong."""
    rows, error = found
    assert batch.file.name in error, f"{what}: {error}"
    assert rows == sound[: len(rows)], what
    rows, _, skipped = read(directory, on_corrupt="skip", **options)
    assert 1 <= len(skipped) <= 2, what
    assert {path for path, _ in skipped} == {str(batch.file)}, what
    assert set(map(repr, rows)) <= set(map(repr, sound)), what


@pytest.mark.parametrize(
    "options",
    [{}, {"threads": 2}, {"columns_only": True}, {"isolation_level": "read_committed"}],
    ids=["default", "threads", "offsets", "committed"],
)
def test_a_scan_loses_one_batch_at_the_most_and_says_so(directory: Path, options: dict[str, Any]) -> None:
    batches = batches_of(directory)
    seed = PARTITIONS.index(next(path for path in PARTITIONS if path.name == directory.name)) + len(options)
    if options.pop("columns_only", False):
        count_rows(directory, batches, seed)
        return
    sound, error, skipped = read(directory, **options)
    assert not error
    assert not skipped
    for batch, bit in flips(batches, seed, SCAN_STRIDE):
        flip(batch, bit)
        check_scan(directory, batch, bit, sound, **options)
        flip(batch, bit)


def count_rows(directory: Path, batches: list[Batch], seed: int) -> None:
    """Rows that headers alone determine are not counted before the checksum is compared."""
    log = kraftlog.open_log(directory)
    sound = sum(part.num_rows for part in log.scan(columns=[]))
    for batch, bit in flips(batches, seed, SCAN_STRIDE):
        flip(batch, bit)
        if is_undetectable(batch, bit):
            assert sum(part.num_rows for part in log.scan(columns=[])) == sound
        else:
            place = batch.file.name if batch.is_sparse else f"{batch.file.name} position {batch.position}\\b"
            with pytest.raises(CorruptRecordError, match=place):
                sum(part.num_rows for part in log.scan(columns=[]))
        flip(batch, bit)


def test_splits_together_lose_one_batch_at_the_most_and_say_so(directory: Path) -> None:
    """Cuts are planned by headers, and the end of the last split by that of the last batch."""
    batches = batches_of(directory)
    sound, _, _ = read(directory)
    seed = PARTITIONS.index(next(path for path in PARTITIONS if path.name == directory.name))
    base_offset_bits = ((batch, bit) for batch, bit in flips(batches, seed, 3) if bit < 64)
    for batch, bit in base_offset_bits:
        flip(batch, bit)
        rows: list[int] = []
        error = ""
        try:
            for split in kraftlog.open_log(directory).scan(columns=["offset"]).splits(split_bytes=10_000):
                for part in split:
                    rows += pa.record_batch(part)["offset"].to_pylist()
        except CorruptRecordError as failure:
            error = str(failure)
        flip(batch, bit)
        what = f"bit {bit} of the batch at {batch.position} of {batch.file.name}: {error}"
        if error:
            # A split that begins in front of the batch knows no batch before: it may name the neighbour.
            assert batch.file.name in error, what
        else:
            assert is_undetectable(batch, bit), what
            assert len(rows) == len(sound), what


def test_salvage_loses_one_batch_at_the_most_and_its_result_opens(directory: Path, tmp_path: Path) -> None:
    batches = batches_of(directory)
    seed = PARTITIONS.index(next(path for path in PARTITIONS if path.name == directory.name))
    sound, _, _ = read(directory)
    for number, (batch, bit) in enumerate(flips(batches, seed, SCAN_STRIDE * SALVAGE_STRIDE)):
        what = f"bit {bit} of the batch at {batch.position} of {batch.file.name}"
        flip(batch, bit)
        output = tmp_path / f"salvaged-{number}"
        [partition] = json.loads(salvage_files(directory, output))["partitions"]
        flip(batch, bit)
        result = output / directory.name
        findings = json.loads(verify_files([result]))
        assert findings["status"] == "sound", f"{what}: {findings['findings']}"
        rows, error, _ = read(result)
        assert not error, what
        if is_undetectable(batch, bit):
            assert (partition["batches"], partition["losses"]) == (len(batches), []), what
        elif batch.is_sparse and bit < 96:
            assert len(batches) - 2 <= partition["batches"] < len(batches), f"{what}: {partition}"
            assert {loss["file"] for loss in partition["losses"]} == {str(batch.file)}, what
            assert {row[:-1] for row in map(without_lists, rows)} <= {row[:-1] for row in map(without_lists, sound)}, (
                what
            )
        else:
            kept = [row for row in sound if not batch.base_offset <= row[0] <= batch.last_offset]
            assert partition["batches"] == len(batches) - 1, f"{what}: {partition}"
            [loss] = partition["losses"]
            assert (loss["file"], loss["position"]) == (str(batch.file), batch.position), what
            assert [row[:-1] for row in rows] == [row[:-1] for row in kept], what
        try:
            opened = Log.open(result, config=LogConfig(), now_ms=0)
        except LogError as refused:
            pytest.fail(f"{what}: {refused}")
        assert opened.log_end_offset == partition["nextOffset"], what
        opened.close()
        shutil.rmtree(output)
