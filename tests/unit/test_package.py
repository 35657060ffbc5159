"""What installing and importing costs: nothing mandatory, and little time."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from pathlib import Path

import kraftlog

ROOT = Path(__file__).resolve().parents[2]
IMPORT_LIMIT_S = 0.05


def seconds(code: str) -> float:
    """The best of some runs of a fresh interpreter."""
    best = 1e9
    for _ in range(7):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        best = min(best, time.perf_counter() - begun)
    return best


def test_import_takes_less_than_50_ms():
    cost = seconds("import kraftlog") - seconds("pass")
    assert cost < IMPORT_LIMIT_S, f"import kraftlog took {cost * 1000:.0f} ms"


def test_every_package_is_in_the_wheel():
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["python-packages"]
    assert sorted(shipped) == sorted(path.parent.name for path in (ROOT / "python").glob("*/__init__.py"))


def test_import_loads_no_extra_and_no_event_loop():
    code = "import sys, kraftlog; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {
        "asyncio",
        "confluent_kafka",
        "numpy",
        "pandas",
        "polars",
        "pyarrow",
        "pyspark",
        "kraftlog.transport",
        "kraftlog.runtime",
        "kraftlog.api",
        "kraftlog.node",
    }
    assert not loaded & heavy


def test_every_dependency_is_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
    assert {"spark", "test", "demo", "arrow"} <= project["optional-dependencies"].keys()


def test_package_is_typed():
    assert (Path(kraftlog.__file__).parent / "py.typed").exists()
