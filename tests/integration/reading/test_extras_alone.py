"""Each extra of a query engine works without any other package: what its requirements do not bring is hidden."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from engine_logs import write_logs

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

HIDE = """
import importlib.abc, json, sys
hidden = set(json.loads(sys.argv[1]))
class Hider(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}, which the extra does not bring", name=name)
sys.meta_path.insert(0, Hider())
import kraftlog
scan = kraftlog.scan(sys.argv[2])
"""
USES = {
    "arrow": "print(scan.dataset().to_table().num_rows > 0)",
    "datafusion": """
import datafusion
context = datafusion.SessionContext()
print(len(scan.datafusion(context, "logs").collect()) > 0)
""",
    "duckdb": """
import duckdb
connection = duckdb.connect()
scan.duckdb(connection, "logs")
(row,) = connection.sql('SELECT count(*), max("timestamp") FROM logs').fetchall()
print(row[0] > 0 and row[1].tzinfo is not None)
""",
    "polars": "print(scan.polars().collect().height > 0)",
}


def brought_by(requirements: list[str]) -> set[str]:
    """The names of the distributions that the requirements install, and of what those need."""
    found: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        name = requirement.name.lower().replace("_", "-")
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            if f"{name}[{wanted}]" not in found:
                found.add(f"{name}[{wanted}]")
                further = importlib.metadata.requires(name) or []
                waiting += [(Requirement(text), wanted) for text in further]
    return {name.partition("[")[0] for name in found}


@pytest.mark.parametrize("extra", USES)
def test_an_extra_needs_nothing_that_it_does_not_bring(extra: str, tmp_path: Path) -> None:
    brought = brought_by(EXTRAS[extra])
    modules = importlib.metadata.packages_distributions()
    hidden = [
        module
        for module, names in modules.items()
        if not {name.lower().replace("_", "-") for name in names} & (brought | {"kraftlog"})
    ]
    assert {"pytest", "pandas"} <= set(hidden)
    logs = write_logs(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", HIDE + USES[extra], json.dumps(hidden), str(logs)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
