"""What the wire tests share: the facts tables, the golden rows and the message classes by name."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
MESSAGES = ROOT / "python" / "kraftlog" / "wire" / "messages"


@cache
def generator() -> ModuleType:
    """``.ci/generate_wire.py`` as a module."""
    spec = importlib.util.spec_from_file_location("generate_wire", ROOT / ".ci" / "generate_wire.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@cache
def facts(release: str) -> dict[str, Any]:
    """The schemas of ``4.3.1`` or ``3.9.1`` by name."""
    suffix = "" if release == "4.3.1" else f"-{release}"
    with gzip.open(GOLDEN / f"protocol-facts{suffix}.json.gz") as file:
        table = json.load(file)
    return {schema["name"]: schema for schema in table["schemas"]}


@cache
def message_classes() -> dict[str, Any]:
    """Every generated message class by name."""
    classes = {}
    for path in sorted(MESSAGES.glob("[a-z]*.py")):
        module = importlib.import_module(f"kraftlog.wire.messages.{path.stem}")
        classes.update({name: getattr(module, name) for name in module.__all__})
    return classes


def golden_files() -> list[Path]:
    """Files of rows that round-trip, malformed ones left out."""
    found = sorted([*(GOLDEN / "wire").rglob("*.jsonl.gz"), *(GOLDEN / "wire-3.9.1").rglob("*.jsonl.gz")])
    return [path for path in found if path.name != "malformed.jsonl.gz"]


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one file."""
    with gzip.open(path) as file:
        for line in file:
            yield json.loads(line)


@dataclass(frozen=True, eq=False)
class Version:
    """One version of one message as the facts have it."""

    name: str
    version: int
    flexible: bool
    structs: dict[str, list[dict[str, Any]]]

    def fields(self, struct: str) -> list[dict[str, Any]]:
        """The fields of a struct that this version has."""
        return [field for field in self.structs[struct] if self.has(field["versions"])]

    def has(self, versions: list[int | None] | None) -> bool:
        """Whether this version lies in an inclusive range."""
        if versions is None or versions[0] is None:
            return False
        return versions[0] <= self.version and (versions[1] is None or self.version <= versions[1])


@cache
def all_versions() -> tuple[Version, ...]:
    """Every version of every message: from 4.3.1, and from 3.9.1 what 4.3.1 has no more."""
    found: dict[tuple[str, int], Version] = {}
    for release in ("3.9.1", "4.3.1"):
        for name, schema in facts(release).items():
            if schema["valid"] is None:
                continue
            structs = generator().struct_table(schema)
            for version in range(schema["valid"][0], schema["valid"][1] + 1):
                bounds = Version(name, version, False, structs)
                flexible = bounds.has(schema["flexible"])
                found[name, version] = Version(name, version, flexible, structs)
    return tuple(found[key] for key in sorted(found))
