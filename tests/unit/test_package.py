"""What installing costs: nothing mandatory; what is in the wheel, and what each extra names."""

from __future__ import annotations

import tomllib
from pathlib import Path

import kraftlog

ROOT = Path(__file__).resolve().parents[2]


def test_every_package_is_in_the_wheel():
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["python-packages"]
    assert sorted(shipped) == sorted(path.parent.name for path in (ROOT / "python").glob("*/__init__.py"))


def test_every_dependency_is_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
    assert {"spark", "test", "demo", "arrow"} <= project["optional-dependencies"].keys()


def test_package_is_typed():
    assert (Path(kraftlog.__file__).parent / "py.typed").exists()
