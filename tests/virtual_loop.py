"""An event loop whose time stands still until a history moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

__all__ = ["VirtualLoop"]


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what is ready when it is told; clocks of the product that ask the host of the loop see its time.

    Attributes:
        now_s: The time, seconds.
        error: What a callback raised first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.error: BaseException | None = None
        self.host = SimpleNamespace(monotonic_ns=lambda: int(self.now_s * 1e9))
        self.set_exception_handler(self._note)

    def _note(self, _loop: Any, context: dict[str, Any]) -> None:
        self.error = self.error or context.get("exception") or RuntimeError(context["message"])

    def time(self) -> float:
        """The loop's own time, which is the host's."""
        return self.now_s

    @contextmanager
    def running(self) -> Iterator[None]:
        """Code within is called as a callback of the loop would be."""
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    def turn(self, after_s: float = 0.0) -> None:
        """Let time pass, and run what is ready.

        Raises:
            BaseException: What a callback raised, now or before.
        """
        self.now_s += after_s
        self.call_soon(self.stop)
        self.run_forever()
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        """Cancel what still waits, and close."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        for _ in range(3):
            self.call_soon(self.stop)
            self.run_forever()
        self.close()
