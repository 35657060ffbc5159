"""What tests of the replicas of one broker share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replica_bench import Bench


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Runs a test with a bench, which is stopped after it."""

    def run(test: Any, directories: int = 1) -> None:
        async def main() -> None:
            bench = Bench(tmp_path, directories)
            try:
                await test(bench)
                await bench.manager.stop()
            finally:
                for log_dir in bench.log_dirs:
                    log_dir.release()

        asyncio.run(main())

    return run
