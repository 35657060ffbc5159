"""One module per API: ``def handle(node, context, request)``; this is the table of them.

A handler returns the response, a future of it when it has to wait, or None when the protocol wants no response
(Produce with acks=0). Modules are imported when their API is first asked for, so that starting a node does not pay
for what nobody calls.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["HANDLERS", "Handler", "LazyHandler"]

Handler = Callable[[Any, Any, Any], Any]


class LazyHandler:
    """Stands in the table for the module's ``handle`` until the first call."""

    __slots__ = ("_handle", "module_name")

    def __init__(self, stem: str) -> None:
        self.module_name = f"{__name__}.{stem}"
        self._handle: Handler | None = None

    def load(self) -> Handler:
        """Import the module, once, and give its ``handle``."""
        if self._handle is None:
            self._handle = import_module(self.module_name).handle
        return self._handle

    def __call__(self, node: Any, context: Any, request: Any) -> Any:
        """Handle one request."""
        return self.load()(node, context, request)


# Sorted by API key; ApiVersions advertises exactly these keys.
HANDLERS: dict[int, LazyHandler] = {
    0: LazyHandler("produce"),
    1: LazyHandler("fetch"),
    2: LazyHandler("list_offsets"),
    18: LazyHandler("api_versions"),
    21: LazyHandler("delete_records"),
    23: LazyHandler("offset_for_leader_epoch"),
    35: LazyHandler("describe_log_dirs"),
}
