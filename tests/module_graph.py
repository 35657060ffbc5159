"""The modules of a package and who imports whom, read from the source without running it.

Counted are imports at the top of a module, under `TYPE_CHECKING`, inside functions, and `import_module("literal")`.
Not counted is the package that Python runs before one of its modules: `import a.b` runs `a`, but names only `a.b`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Import:
    """`target` is an absolute dotted name; `module` is `target`, or in `from module import name` what stands there."""

    line: int
    target: str
    module: str


def module_name(path: Path, package: Path) -> str:
    """The dotted name below `package`'s parent; a package has the name of its folder."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, package: Path) -> Iterator[Import]:
    folder = path.relative_to(package.parent).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        match node:
            case ast.Import(names=names):
                yield from (Import(node.lineno, alias.name, alias.name) for alias in names)
            case ast.ImportFrom(names=names, module=module, level=level):
                base = ".".join(folder[: len(folder) - level + 1]) if level else ""
                origin = ".".join(filter(None, (base, module or "")))
                yield from (Import(node.lineno, f"{origin}.{alias.name}", origin) for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Import(node.lineno, name, name)


def module_graph(package: Path) -> dict[str, set[str]]:
    """Module -> the modules of `package` that it imports, itself excluded."""
    paths = {module_name(path, package): path for path in sorted(package.rglob("*.pyi"))}  # compiled: by its stub
    paths |= {module_name(path, package): path for path in sorted(package.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        targets = {found.target if found.target in paths else found.module for found in imports_of(path, package)}
        graph[name] = {target for target in targets if target in paths and target != name}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module, each sorted (Tarjan, without recursion)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    on_stack: list[str] = []
    found: list[list[str]] = []
    for root in sorted(graph):
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        on_stack.append(root)
        walk = [(root, iter(sorted(graph[root])))]
        while walk:
            module, targets = walk[-1]
            for target in targets:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    on_stack.append(target)
                    walk.append((target, iter(sorted(graph[target]))))
                    break
                if target in on_stack:
                    lowest[module] = min(lowest[module], number[target])
            else:
                walk.pop()
                if walk:
                    lowest[walk[-1][0]] = min(lowest[walk[-1][0]], lowest[module])
                if lowest[module] == number[module]:
                    start = on_stack.index(module)
                    component = on_stack[start:]
                    del on_stack[start:]
                    if len(component) > 1:
                        found.append(sorted(component))
    return found


def one_circle(graph: Mapping[str, set[str]], component: Iterable[str]) -> list[str]:
    """A shortest way from the first module of `component` back to itself, both ends included."""
    inside = set(component)
    first = min(inside)
    came_from: dict[str, str] = {}
    queue = [first]
    for module in queue:
        for target in sorted(graph[module] & inside):
            if target == first:
                way = [first, module]
                while way[-1] != first:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if target not in came_from:
                came_from[target] = module
                queue.append(target)
    return []
