"""A thread that repeats one step with pauses in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

__all__ = ["Step", "Worker", "WorkerThread"]

Step: TypeAlias = Callable[[], float | None]
"""Works for a while; returns the seconds until it is called again, or None to end."""


class Worker(Protocol):
    """Repeats a step, on a thread or as events of a simulation."""

    @property
    def is_alive(self) -> bool:
        """Whether the step is called again."""
        ...

    def wake(self) -> None:
        """End the present pause; during a step, leave out the next one."""
        ...

    def join(self) -> None:
        """Wait until the step has asked for the end, or has raised."""
        ...


class WorkerThread:
    """A ``Worker`` on a daemon thread, which begins at once.

    Args:
        name: Of the thread.
        step: What it does. An exception ends the thread and is reported by ``threading.excepthook``.
    """

    def __init__(self, name: str, step: Step) -> None:
        self._step = step
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """As ``Worker.wake``."""
        self._wake.set()

    def join(self) -> None:
        """As ``Worker.join``."""
        self._thread.join()

    def _run(self) -> None:
        while True:
            # Before the step: what happens during it may be what the next one has to see.
            self._wake.clear()
            pause_s = self._step()
            if pause_s is None:
                return
            self._wake.wait(pause_s)
