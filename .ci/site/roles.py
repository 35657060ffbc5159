"""Docstring roles as references of the documentation site.

The docstrings name objects with roles that editors and ``help()`` show as they are: ``:class:`Scan```. mkdocstrings
writes references as Markdown links, so this extension of griffe rewrites each role before the page is made. A role
whose object is on no page makes the strict build fail.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(?P<short>~?)(?P<name>[\w.]+)`")

# Packages that have no page here; their names stay code.
_FOREIGN = ("pyarrow.",)


def _reference(match: re.Match[str]) -> str:
    name = match["name"]
    shown = name.rpartition(".")[2] if match["short"] else name
    return f"`{shown}`" if name.startswith(_FOREIGN) else f"[`{shown}`][{name}]"


class Roles(griffe.Extension):
    """Rewrites the roles of each docstring that is loaded."""

    def on_object(self, *, obj: griffe.Object, **_kwargs: Any) -> None:
        """Called for each object of the package, before any page is rendered."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(_reference, obj.docstring.value)
