"""What installing costs: nothing mandatory; what is in the wheel, and what each extra names."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import kraftlog
from kraftlog import extras

ROOT = Path(__file__).resolve().parents[2]


def test_every_package_is_in_the_wheel():
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["python-packages"]
    assert sorted(shipped) == sorted(path.parent.name for path in (ROOT / "python").glob("*/__init__.py"))


def test_every_dependency_is_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
    assert {"spark", "test", "demo", "arrow"} <= project["optional-dependencies"].keys()


def test_the_version_is_the_same_everywhere():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == kraftlog.__version__
    assert tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"] == kraftlog.__version__


def test_the_modules_of_an_extra_are_among_its_requirements():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, modules in extras.MODULES.items():
        packages = {re.split(r"[^A-Za-z0-9_-]", requirement)[0].replace("-", "_") for requirement in wanted[extra]}
        assert set(modules) <= packages, extra


def requirements(*arguments: str) -> list[str]:
    """What setup installs before it builds kraftlog."""
    namespace = runpy.run_path(str(ROOT / ".ci" / "requirements.py"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return namespace["requirements_of"](project, *arguments)


def test_requirements_of_dev_are_all_that_the_extras_name_without_kraftlog_itself():
    """Installed with build isolation, which source packages such as PySpark need in a new environment."""
    found = requirements("dev")
    assert not [requirement for requirement in found if requirement.startswith("kraftlog")]
    assert len(found) == len(set(found))
    for extra in ("spark", "duckdb", "demo", "remote"):
        assert set(requirements(extra)) <= set(found)
    assert [requirement for requirement in found if requirement.startswith("maturin==")]


def test_spark_excludes_the_pandas_that_pyspark_warns_of_and_duckdb_works_alone():
    assert next(requirement for requirement in requirements("spark") if requirement.startswith("pandas")).endswith(
        ",<3"
    )
    assert [requirement for requirement in requirements("duckdb") if requirement.startswith("pytz")], (
        "DuckDB imports it for a timestamptz"
    )


def test_package_is_typed():
    assert (Path(kraftlog.__file__).parent / "py.typed").exists()
