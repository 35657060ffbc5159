"""What every bench shares: no debug builds, and bytes and records beside each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Benches are ordinary tests, each run once, unless --benchmark-enable asks for figures: then no debug build."""
    # addopts disable benchmarks for every run; --benchmark-enable is what undoes it.
    is_disabled = config.getoption("benchmark_disable") and not config.getoption("benchmark_enable")
    if is_disabled or not items:
        return
    from kraftlog import _kraftlog

    if _kraftlog.build_profile == "debug":
        pytest.exit("benches refuse a debug build of the extension: .ci/dev build", returncode=3)


@pytest.fixture
def sized(benchmark: Any) -> Callable[..., Any]:
    """Measure a function and say what it moved: ``sized(function, *args, size_bytes=..., records=...)``.

    The JSON then has bytes and records, from which MB/s, records/s and ns/record follow.
    """

    def run(function: Callable[..., Any], *args: Any, size_bytes: int, records: int, **kwargs: Any) -> Any:
        benchmark.extra_info["bytes"] = size_bytes
        benchmark.extra_info["records"] = records
        return benchmark(function, *args, **kwargs)

    return run
