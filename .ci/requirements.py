"""Print the requirements of extras of pyproject.toml, one per line; ``kraftlog[...]`` is replaced by what it stands for.

    python .ci/requirements.py dev            the extra dev, with the extras it names
    python .ci/requirements.py dev maturin    only the requirement of that name

pip could resolve ``.[dev]`` itself, but only by building kraftlog in the same step: then either every source package is
built without isolation, and needs tools that a new environment lacks, or Rust is compiled a second time.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements_of(project: dict, *extras: str) -> list[str]:
    """The requirements of ``extras`` in their order, each once.

    Raises:
        KeyError: An extra, or one that it names, is not defined.
    """
    found: dict[str, None] = dict.fromkeys(project["dependencies"])
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            reference = re.fullmatch(rf"{re.escape(project['name'])}\[([\w,\s-]+)\]", requirement.strip())
            names = [name.strip() for name in reference[1].split(",")] if reference else []
            found.update(dict.fromkeys(requirements_of(project, *names) if names else [requirement]))
    return list(found)


def main(extra: str, name: str = "") -> None:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    for requirement in requirements_of(project, extra):
        if not name or re.match(rf"{re.escape(name)}(?![\w.-])", requirement):
            print(requirement)


if __name__ == "__main__":
    main(*sys.argv[1:])
