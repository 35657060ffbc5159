"""The modules of the Rust crates import each other in one direction."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Module = tuple[str, ...]

# Small files of one room that share values. A ratchet: none may be added.
KNOWN_CIRCLES: dict[str, set[frozenset[str]]] = {
    "kraftlog-log": {
        frozenset({"fs::memory::crash", "fs::memory::inode"}),
        frozenset({"columns::bytes", "columns::headers", "columns::options"}),
        frozenset({"columns::decode", "columns::rows"}),
        frozenset({"byte_pool", "raw"}),
        frozenset({"scan::remote", "scan::segments"}),
        frozenset({"scan::dump", "scan::json", "scan::text"}),
        frozenset({"segment::check", "segment::recover"}),
    },
    "kraftlog-py": {frozenset({"wire_layout", "wire_schema"})},
}


def modules_of(source: Path) -> dict[Module, str]:
    """The code of each module file without comments; tests are left out."""
    modules = {}
    for path in sorted(source.rglob("*.rs")):
        module = path.relative_to(source).with_suffix("").parts
        if "tests" not in module and "testing" not in module:
            code = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
            modules[() if module == ("lib",) else module] = re.split(r"#\[cfg\(test\)\]\s*mod \w+ \{", code)[0]
    return modules


def paths_in(use_tree: str) -> Iterator[list[str]]:
    """``a::{b, c::d}`` as ``[a, b]`` and ``[a, c, d]``."""
    head, brace, rest = use_tree.partition("{")
    prefix = [name.split()[0] for name in head.split("::") if name.strip()]
    if not brace:
        yield prefix
        return
    depth, branch = 0, ""
    for character in rest[: rest.rindex("}")] + ",":
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            yield from (prefix + path for path in paths_in(branch)) if branch.strip() else ()
            branch = ""
        else:
            branch += character


def imports_of(module: Module, code: str, modules: dict[Module, str]) -> set[Module]:
    used = re.findall(r"\buse\s+((?:crate|super|self)::[^;]+);", code)
    used += re.findall(r"\b((?:crate|super)(?:::\w+)+)", re.sub(r"\buse\s+[^;]+;", "", code))
    found = set()
    for tree in used:
        for names in paths_in(tree):
            base = [] if names[0] == "crate" else list(module)
            for name in names:
                if name == "super":
                    base.pop()
                elif name not in {"crate", "self"}:
                    base.append(name)
            target = tuple(base)
            while target and target not in modules:
                target = target[:-1]
            found.add(target)
    return found - {(), module}


def circles(graph: dict[Module, set[Module]]) -> set[frozenset[Module]]:
    """The groups of modules that reach each other."""

    def reach(start: Module) -> set[Module]:
        reached: set[Module] = set()
        waiting = [start]
        while waiting:
            for target in graph.get(waiting.pop(), set()) - reached:
                reached.add(target)
                waiting.append(target)
        return reached

    reached = {module: reach(module) for module in graph}
    groups = (frozenset(other for other in targets if module in reached[other]) for module, targets in reached.items())
    return {group for group in groups if len(group) > 1}


@pytest.mark.parametrize("crate", sorted(KNOWN_CIRCLES))
def test_modules_import_each_other_in_one_direction(crate: str) -> None:
    modules = modules_of(ROOT / "rust" / crate / "src")
    assert len(modules) > 20
    imports = {module: imports_of(module, code, modules) for module, code in modules.items()}

    def is_related(one: Module, other: Module) -> bool:
        # A parent that names its children, and children that name their parent, are one module in parts.
        shorter = min(len(one), len(other))
        return one[:shorter] == other[:shorter]

    files = {
        module: {target for target in targets if not is_related(module, target)} for module, targets in imports.items()
    }
    rooms: dict[Module, set[Module]] = {}
    for module, targets in imports.items():
        rooms.setdefault(module[:1], set()).update(target[:1] for target in targets if target[:1] != module[:1])
    found = circles(files) | circles(rooms)
    named = {frozenset("::".join(module) for module in circle) for circle in found}
    assert named == KNOWN_CIRCLES[crate], "a circle is new, or gone and to be removed from the list"


def test_a_circle_is_found() -> None:
    modules = {
        ("a",): "use crate::b::{Thing, c::Other};",
        ("b",): "fn f() {}",
        ("b", "c"): "fn f() { crate::a::g() }",
    }
    graph = {module: imports_of(module, code, modules) for module, code in modules.items()}
    assert circles(graph) == {frozenset({("a",), ("b", "c")})}
