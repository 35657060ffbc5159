"""Scanning a compressed log with one and two threads in wall time, and finding offsets and times.

Expected: a scan reads from the page cache at 8 GB/s and decodes; two threads take half the time where there are two
cores. A lookup is a binary search in a mapped index and the headers of up to 4 KiB of batches.

    python -m pytest benches/test_scan.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kraftlog
from kraftlog._kraftlog import Log, LogConfig, build_profile, encode_values

NOW_MS = 1_700_000_000_000
BATCH_RECORDS = 150
TOTAL_BYTES = 128 << 20
LOOKUP_BYTES = 32 << 20


def is_measured(request: pytest.FixtureRequest) -> bool:
    config = request.config
    return bool(config.getoption("benchmark_enable") or not config.getoption("benchmark_disable"))


def make_log(directory: Path, size: int, codec: Any, total_bytes: int) -> Path:
    """A partition of several segments, its timestamps 1 ms apart."""
    rng = random.Random(size)
    words = [bytes(rng.randrange(97, 123) for _ in range(8)) for _ in range(512)]
    values = [b" ".join(rng.choices(words, k=size // 9 + 1))[:size] for _ in range(BATCH_RECORDS)]
    path = directory / "orders-0"
    log = Log.open(path, config=LogConfig(segment_bytes=16 << 20), now_ms=NOW_MS)
    for first in range(0, max(2, total_bytes // (size + 20) // BATCH_RECORDS) * BATCH_RECORDS, BATCH_RECORDS):
        times = [NOW_MS + number for number in range(first, first + BATCH_RECORDS)]
        batch = encode_values(values, timestamps=times, compression=codec)
        log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS)
    log.close()
    return path


@pytest.fixture(
    scope="module", params=[(100, "none"), (100, "lz4"), (100, "zstd"), (1000, "none"), (1000, "zstd")], ids=str
)
def stored(request: pytest.FixtureRequest) -> Iterator[tuple[Path, int, str]]:
    assert build_profile == "release", "a debug build says nothing about speed"
    directory = Path(tempfile.mkdtemp(prefix="kraftlog-bench-"))
    size, codec = request.param
    yield make_log(directory, size, codec, TOTAL_BYTES if is_measured(request) else 1 << 20), size, codec
    shutil.rmtree(directory)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("binary_type", ["binary", "binary_view"])
def test_scan(benchmark: Any, stored: tuple[Path, int, str], binary_type: Any, threads: int) -> None:
    path, size, codec = stored
    records = kraftlog.open_log(path).log_end_offset
    benchmark.group = f"scan a log: {codec}, {size} B"
    benchmark.extra_info.update(bytes=records * size, records=records)
    options: dict[str, Any] = {"columns": ["key", "value", "offset", "timestamp"], "binary_type": binary_type}

    def scan() -> int:
        return sum(len(rows) for rows in kraftlog.scan(path, threads=threads, **options))

    assert benchmark.pedantic(scan, rounds=3, warmup_rounds=1) == records


@pytest.fixture(scope="module")
def lookups(request: pytest.FixtureRequest) -> Iterator[Log]:
    directory = Path(tempfile.mkdtemp(prefix="kraftlog-bench-"))
    path = make_log(directory, 100, "none", LOOKUP_BYTES if is_measured(request) else 1 << 20)
    log = Log.open(path, config=LogConfig(segment_bytes=16 << 20), now_ms=NOW_MS)
    yield log
    log.delete()
    shutil.rmtree(directory)


def test_look_up_an_offset(benchmark: Any, lookups: Log) -> None:
    end, chance = lookups.log_end_offset, random.Random(1)
    benchmark.group = "look up an offset or a time"
    benchmark.extra_info.update(records=1)
    benchmark(lambda: lookups.read(chance.randrange(end), max_bytes=1, end_offset=end))


def test_look_up_a_time(benchmark: Any, lookups: Log) -> None:
    end, chance = lookups.log_end_offset, random.Random(1)
    benchmark.group = "look up an offset or a time"
    benchmark.extra_info.update(records=1)
    wanted = chance.randrange(end)
    found = lookups.offset_for_timestamp(NOW_MS + wanted)
    assert found is not None
    assert found[0] == wanted
    benchmark(lambda: lookups.offset_for_timestamp(NOW_MS + chance.randrange(end)))
