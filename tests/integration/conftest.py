"""Of all integration tests: directories in memory, and a second attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_path import tmp_path  # most of the time of these tests was the disk's

__all__ = ["tmp_path"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            # Processes, sockets and timers on a shared machine: once more, and the summary says "rerun".
            item.add_marker(pytest.mark.flaky(reruns=1))
