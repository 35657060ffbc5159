"""A scan with ``drop_behind`` leaves in the page cache what was there before, and nothing else."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kraftlog
from kraftlog._kraftlog import encode_values

# The kernel may take any page away at any time, and keeps those that it is still reading when it is told to drop them.
pytestmark = pytest.mark.flaky(reruns=2)

BATCHES = 400
VALUES = [b"v" * 1000] * 20


@pytest.fixture
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed segment of 8 MB on a disk, of which no page is in the cache, and an empty one behind it."""
    folder = tmp_path_factory.mktemp("disk") / "topic-0"
    folder.mkdir()
    path = folder / f"{0:020}.log"
    batch = bytearray(encode_values(VALUES))
    index = bytearray()
    with path.open("wb") as file:
        for number in range(BATCHES):
            index += struct.pack(">II", (number + 1) * len(VALUES) - 1, file.tell())
            struct.pack_into(">q", batch, 0, number * len(VALUES))
            file.write(batch)
        os.fsync(file.fileno())
    # Without it the threads would find where to cut by walking over the headers.
    path.with_suffix(".index").write_bytes(index)
    (folder / f"{BATCHES * len(VALUES):020}.log").touch()
    drop(path)
    if cached_pages(path):
        pytest.skip("this file system keeps its pages, whatever it is advised")
    return path


def drop(path: Path) -> None:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_pages(path: Path) -> int:
    """How many pages of the file the kernel has in memory."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        found = (ctypes.c_ubyte * -(-len(view) // mmap.PAGESIZE))()
        # ctypes takes no address of memory that may not be written; numpy has it, and copies nothing.
        array = np.frombuffer(view, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(len(view)), found)
        del array
        assert not failed, os.strerror(ctypes.get_errno())
        return sum(residency & 1 for residency in found)


def rows(path: Path, *, drop_behind: bool, threads: int = 1) -> pa.Table:
    return pa.table(kraftlog.open_log(path.parent).scan(drop_behind=drop_behind, threads=threads))


@pytest.mark.parametrize("threads", [1, 2])
def test_pages_that_were_not_cached_are_dropped_again(segment: Path, threads: int) -> None:
    pages = segment.stat().st_size // mmap.PAGESIZE
    table = rows(segment, drop_behind=True, threads=threads)
    assert table.num_rows == BATCHES * len(VALUES)
    # Of two neighbouring reads of 512 KiB one page may stay; what looks for the end of the log reads a little too.
    assert cached_pages(segment) < pages / 10
    assert table.equals(rows(segment, drop_behind=False))
    assert cached_pages(segment) > pages * 0.9


def test_pages_that_were_cached_stay(segment: Path) -> None:
    segment.read_bytes()
    before = cached_pages(segment)
    assert rows(segment, drop_behind=True).num_rows == BATCHES * len(VALUES)
    assert cached_pages(segment) == before > 1000
