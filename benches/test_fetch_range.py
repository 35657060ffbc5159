"""Finding the byte range of a fetch, and moving its bytes by sendfile and by a copy.

Expected: 1 to 3 us at the end of the log (one pread of headers), some 10 us where up to 4 KiB of batches lie between
index entries on both ends; sendfile 5 to 8 GB/s, a copy half of that.

    python -m pytest benches/test_fetch_range.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlog._kraftlog import Log, LogConfig, build_profile, encode_values

NOW_MS = 1_700_000_000_000
RECORDS = 16
BATCHES = 20_000


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    """32 MB in batches of 1.7 kB, in segments of 8 MB."""
    assert build_profile == "release", "a debug build says nothing about speed"
    path = Path(tempfile.mkdtemp(prefix="kraftlog-bench-"))
    log = Log.open(path / "bench-0", config=LogConfig(segment_bytes=8 << 20), now_ms=NOW_MS)
    batch = encode_values([bytes(100)] * RECORDS, timestamps=NOW_MS)
    for _ in range(BATCHES):
        log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS)
    yield log
    log.delete()
    shutil.rmtree(path)


def test_read_at_the_end(benchmark: Any, log: Log) -> None:
    end = log.log_end_offset
    benchmark.group = "find the range of a fetch"
    found = benchmark(log.read, end - 1, max_bytes=1 << 20, end_offset=end)
    benchmark.extra_info.update(bytes=found.size_bytes, records=RECORDS)


@pytest.mark.parametrize("max_bytes", [16 << 10, 1 << 20])
def test_read_anywhere(benchmark: Any, log: Log, max_bytes: int) -> None:
    end, chance = log.log_end_offset, random.Random(1)
    offsets = [chance.randrange(end) for _ in range(997)]
    position = 0

    def read() -> int:
        nonlocal position
        position = (position + 1) % len(offsets)
        return log.read(offsets[position], max_bytes=max_bytes, end_offset=end).size_bytes

    benchmark.group = "find the range of a fetch"
    benchmark.extra_info.update(bytes=max_bytes, records=max_bytes // 110)
    benchmark(read)


@pytest.mark.parametrize("max_bytes", [64 << 10, 1 << 20])
@pytest.mark.parametrize("way", ["sendfile", "copy"])
def test_move_the_bytes(benchmark: Any, log: Log, way: str, max_bytes: int) -> None:
    end = log.log_end_offset
    sink = os.open("/dev/null", os.O_WRONLY) if way == "copy" else os.memfd_create("sink")

    def sendfile() -> None:
        found = log.read(0, max_bytes=max_bytes, end_offset=end)
        os.lseek(sink, 0, os.SEEK_SET)
        sent = 0
        while sent < found.nbytes:
            sent += os.sendfile(sink, found.fileno(), found.position + sent, found.nbytes - sent)

    def copy() -> None:
        os.write(sink, log.read(0, max_bytes=max_bytes, end_offset=end))

    benchmark.group = f"fetch {max_bytes >> 10} KiB"
    size = log.read(0, max_bytes=max_bytes, end_offset=end).nbytes
    benchmark.extra_info.update(bytes=size, records=size * RECORDS // 1800)
    benchmark(sendfile if way == "sendfile" else copy)
    os.close(sink)
