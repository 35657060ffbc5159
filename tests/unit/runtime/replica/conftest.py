"""What tests of the replicas of one broker share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from replica_bench import Bench, run_on


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Runs a test with a bench, which is stopped after it."""

    return lambda test, directories=1: run_on(lambda: Bench(tmp_path, directories), test)
