"""Appending to a log, beside the bare write of the same bytes.

Expected: the write itself is 1 to 2 us plus bytes / 8 GB/s; checks of a small batch add 1 to 2 us, of a large one
about 10 ns per record. With a flush each, what the disk takes.

    python -m pytest benches/test_append.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlog._kraftlog import Log, LogConfig, build_profile, encode_values

NOW_MS = 1_700_000_000_000
BATCHES = pytest.mark.parametrize(("records", "value_bytes"), [(1, 100), (160, 100), (16, 1000), (1000, 1000)], ids=str)


@pytest.fixture
def directory() -> Iterator[Path]:
    assert build_profile == "release", "a debug build says nothing about speed"
    path = Path(tempfile.mkdtemp(prefix="kraftlog-bench-"))
    yield path
    shutil.rmtree(path)


def open_log(directory: Path) -> Log:
    return Log.open(directory / "bench-0", config=LogConfig(max_message_bytes=2 << 20), now_ms=NOW_MS)


def make_batch(records: int, value_bytes: int, **options: Any) -> bytes:
    return encode_values([bytes(value_bytes)] * records, timestamps=NOW_MS, **options)


def note(benchmark: Any, what: str, batch: bytes, records: int, value_bytes: int) -> None:
    benchmark.group = f"{what}: {records} x {value_bytes} B"
    benchmark.extra_info.update(bytes=len(batch), records=records)


@BATCHES
def test_append_as_leader(benchmark: Any, directory: Path, records: int, value_bytes: int) -> None:
    log, batch = open_log(directory), make_batch(records, value_bytes)
    note(benchmark, "append", batch, records, value_bytes)
    benchmark(log.append_as_leader, batch, leader_epoch=1, now_ms=NOW_MS)
    log.delete()


@BATCHES
def test_append_idempotent(benchmark: Any, directory: Path, records: int, value_bytes: int) -> None:
    log = open_log(directory)
    sequence = 0

    def prepare() -> tuple[tuple[bytes], dict[str, int]]:
        nonlocal sequence
        batch = make_batch(records, value_bytes, producer_id=1, producer_epoch=0, base_sequence=sequence)
        sequence += records
        return (batch,), {"leader_epoch": 1, "now_ms": NOW_MS}

    note(benchmark, "append", make_batch(records, value_bytes), records, value_bytes)
    benchmark.pedantic(log.append_as_leader, setup=prepare, rounds=200)
    assert log.log_end_offset >= records
    log.delete()


@BATCHES
def test_bare_write(benchmark: Any, directory: Path, records: int, value_bytes: int) -> None:
    batch = make_batch(records, value_bytes)
    note(benchmark, "append", batch, records, value_bytes)
    file = os.open(directory / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    written = 0

    def write() -> None:
        nonlocal written
        written += os.write(file, batch)
        if written > 1 << 30:
            os.ftruncate(file, 0)
            written = 0

    benchmark(write)
    os.close(file)


def test_append_and_flush(benchmark: Any, directory: Path) -> None:
    log, batch = open_log(directory), make_batch(1, 100)
    note(benchmark, "append and flush", batch, 1, 100)

    def append() -> None:
        log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS)
        log.flush()

    benchmark.pedantic(append, rounds=50)
    log.delete()


def test_bare_write_and_fdatasync(benchmark: Any, directory: Path) -> None:
    batch = make_batch(1, 100)
    note(benchmark, "append and flush", batch, 1, 100)
    file = os.open(directory / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def write() -> None:
        os.write(file, batch)
        os.fdatasync(file)

    benchmark.pedantic(write, rounds=50)
    os.close(file)
