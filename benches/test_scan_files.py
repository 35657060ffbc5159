"""Scans of files in the page cache: CPU nanoseconds a record, with what reading the same bytes costs beside them.

Expected, uncompressed: the decode of `test_decode.py`, and a copy out of the page cache at 6 to 10 GB/s: 12 to 20
ns for a record of 120 B. Mapped pages save the copy and cost a page table entry for each 4 KiB, set up in one call
(MAP_POPULATE) or by faults: with small pages that is no less than the copy. Counting rows looks at headers alone; of
batches of 16 KiB all bytes are read, as single headers are no cheaper to get.

    python -m pytest benches/test_scan_files.py --benchmark-enable --benchmark-group-by=group

Times are of the process's CPU, all threads together. The limits read the same files and look at nothing: `pread` of 512
KiB into one buffer, and one byte of each mapped page.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch

LOG_BYTES = 64 << 20
SEGMENT_BYTES = 32 << 20
BATCH_BYTES = 16 << 10
CHUNK_BYTES = 512 << 10
MAIN_COLUMNS = ["key", "value", "offset", "timestamp"]

pytestmark = pytest.mark.benchmark(timer=time.process_time)
SIZES = pytest.mark.parametrize("size", [100, 1000], ids=["100B", "1000B"])


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, kraftlog.Log]:
    """Two sealed segments and an empty one for each value size; only base offsets differ between batches."""
    return {size: write_log(tmp_path_factory.mktemp("logs") / f"v{size}-0", size) for size in (100, 1000)}


def write_log(directory: Path, size: int) -> kraftlog.Log:
    directory.mkdir()
    rng = random.Random(size)
    count = BATCH_BYTES // (size + 20)
    batch = bytearray(encode_batch([(1000 + at, b"k%08d" % at, rng.randbytes(size), ()) for at in range(count)]))
    offset = 0
    for _ in range(LOG_BYTES // SEGMENT_BYTES):
        base_offset, index = offset, bytearray()
        with (directory / f"{base_offset:020}.log").open("wb") as log:
            while log.tell() < SEGMENT_BYTES:
                index += struct.pack(">II", offset + count - 1 - base_offset, log.tell())
                struct.pack_into(">q", batch, 0, offset)
                log.write(batch)
                offset += count
        (directory / f"{base_offset:020}.index").write_bytes(index)
    (directory / f"{offset:020}.log").touch()
    return kraftlog.open_log(directory)


def measure(benchmark: Any, log: kraftlog.Log, group: str, run: Callable[[], int]) -> None:
    benchmark.group = group
    benchmark.extra_info["records"] = log.log_end_offset
    benchmark.extra_info["bytes"] = log.size_bytes
    assert benchmark(run)


def count(scan: kraftlog.reading.Scan) -> int:
    return sum(len(rows) for rows in scan)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("source", ["pread", "mmap"])
@pytest.mark.parametrize("binary_type", ["binary", "binary_view"])
@SIZES
def test_scan(
    benchmark: Any, logs: dict[int, kraftlog.Log], size: int, binary_type: Any, source: str, threads: int
) -> None:
    log = logs[size]
    scan = log.scan(columns=MAIN_COLUMNS, binary_type=binary_type, memory_map=source == "mmap", threads=threads)
    assert count(scan) == log.log_end_offset
    measure(benchmark, log, f"scan {size} B", lambda: count(scan))


@pytest.mark.parametrize(
    "columns", [["key_length", "value_length"], ["offset"], []], ids=["lengths", "offset", "count"]
)
@SIZES
def test_scan_of_few_columns(benchmark: Any, logs: dict[int, kraftlog.Log], size: int, columns: list[str]) -> None:
    log = logs[size]
    scan = log.scan(columns=columns)
    assert count(scan) == log.log_end_offset
    measure(benchmark, log, f"scan {size} B", lambda: count(scan))


@SIZES
def test_limit_pread(benchmark: Any, logs: dict[int, kraftlog.Log], size: int) -> None:
    buffer = bytearray(CHUNK_BYTES)

    def read() -> int:
        total = 0
        for segment in logs[size].segments:
            file = os.open(segment.path, os.O_RDONLY)
            position = 0
            while got := os.preadv(file, [buffer], position):
                position += got
            os.close(file)
            total += position
        return total

    measure(benchmark, logs[size], f"scan {size} B", read)


@pytest.mark.parametrize("way", ["populate", "sequential"])
@SIZES
def test_limit_mmap(benchmark: Any, logs: dict[int, kraftlog.Log], size: int, way: str) -> None:
    def touch() -> int:
        touched = 0
        for segment in logs[size].segments:
            if not segment.size_bytes:
                continue
            flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if way == "populate" else 0)
            with segment.path.open("rb") as file, mmap.mmap(file.fileno(), 0, flags, mmap.PROT_READ) as mapped:
                if way == "sequential":
                    mapped.madvise(mmap.MADV_SEQUENTIAL)
                with memoryview(mapped) as view, view[:: mmap.PAGESIZE] as pages:
                    touched += len(pages.tobytes())
        return touched

    measure(benchmark, logs[size], f"scan {size} B", touch)
