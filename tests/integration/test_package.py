"""What importing costs, in an interpreter of its own: little time, no extra, no event loop."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMPORT_LIMIT_S = 0.05


def seconds(code: str) -> float:
    """CPU time of a fresh interpreter, the best of some runs: other processes do not count."""
    best = 1e9
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def test_import_takes_less_than_50_ms():
    cost = seconds("import kraftlog") - seconds("pass")
    assert cost < IMPORT_LIMIT_S, f"import kraftlog took {cost * 1000:.0f} ms"


def loaded_by(statement):
    """The modules that are loaded after an import statement in a new interpreter."""
    code = f"{statement}; import sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_a_node_does_not_load_what_it_does_not_need():
    """Each of these takes megabytes of a node that has some 40."""
    assert not loaded_by("import kraftlog.node.node") & {"email", "importlib.metadata", "zipfile", "numpy", "pyarrow"}


def test_import_loads_no_extra_and_no_event_loop():
    loaded = loaded_by("import kraftlog")
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


def test_import_of_the_package_needs_no_extension_for_errors():
    code = "import sys, kraftlog.errors, kraftlog.types; assert 'kraftlog._kraftlog' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "python")})
