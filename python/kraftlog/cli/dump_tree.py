"""A document of mappings and lists as an indented tree, as Kafka's metadata shell prints one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["tree_lines"]

_INDENT = "  "


def tree_lines(document: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Lines for each name: a mapping stands indented under its name, anything else behind it as JSON."""
    for name, value in document.items():
        # A name may be any text of a client's making.
        shown = name if name.isprintable() and name else json.dumps(name)
        if isinstance(value, Mapping):
            yield f"{_INDENT * depth}{shown}:" if value else f"{_INDENT * depth}{shown}: {{}}"
            yield from tree_lines(value, depth + 1)
        else:
            text = value if isinstance(value, str) and value.isprintable() and value else _json(value)
            yield f"{_INDENT * depth}{shown}: {text}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
