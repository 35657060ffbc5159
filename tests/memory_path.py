"""A directory in memory for a test: the engine flushes as on a disk, but waits for none.

KRAFTLOG_TESTS_ON_DISK=1 takes a disk for all tests, where what a test left can be looked at afterwards.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["memory_path", "tmp_path"]

MEMORY = Path("/dev/shm")  # a tmpfs on every Linux with glibc
ENOUGH_BYTES = 1 << 30


def _has_memory() -> bool:
    if os.environ.get("KRAFTLOG_TESTS_ON_DISK", "") not in ("", "0") or not os.access(MEMORY, os.W_OK):
        return False
    found = os.statvfs(MEMORY)
    return found.f_bavail * found.f_frsize >= ENOUGH_BYTES


@contextmanager
def memory_path(on_disk: Path) -> Iterator[Path]:
    """A new directory, gone afterwards; ``on_disk`` where there is not enough memory for it."""
    if not _has_memory():
        yield on_disk
        return
    path = Path(tempfile.mkdtemp(prefix="kraftlog-test-", dir=MEMORY))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """For conftest.py of folders whose tests spend most of their time waiting for a disk otherwise."""
    with memory_path(tmp_path) as path:
        yield path
