"""Directories of unit tests are in memory: most of their time was the disk's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_path import memory_path


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    with memory_path(tmp_path) as path:
        yield path
