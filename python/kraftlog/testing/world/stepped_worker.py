"""A repeated step of a simulated machine's thread, as events of the world."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kraftlog.host import Step
    from kraftlog.testing.world.world import Event

__all__ = ["SteppedWorker"]


class Processor(Protocol):
    """A machine, as its workers know it."""

    loop: Any

    def after_work(self, action: Callable[[], None]) -> object:
        """Run ``action`` after the time that blocking work takes."""

    def after_pause(self, pause_ms: float, action: Callable[[], None]) -> Event:
        """Run ``action`` after that time."""
        ...


class SteppedWorker:
    """A ``kraftlog.host.Worker``: each step is one event, between which anything else may happen.

    Args:
        machine: Runs it.
        step: What it does. An exception ends the worker and goes to the handler of the machine's loop.
    """

    def __init__(self, machine: Processor, step: Step) -> None:
        self._machine = machine
        self._step = step
        self._pause: Event | None = None
        self._is_woken = False
        self.is_alive = True
        machine.after_work(self._run)

    def wake(self) -> None:
        """As ``Worker.wake``."""
        self._is_woken = True
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            self._machine.after_work(self._run)

    def join(self) -> None:
        """Nothing: no step is under way."""

    def _run(self) -> None:
        self._pause = None
        self._is_woken = False
        try:
            pause_s = self._step()
        except BaseException as error:  # noqa: BLE001  as of a thread that dies
            self.is_alive = False
            self._machine.loop.call_exception_handler({"message": "Exception on a thread", "exception": error})
            return
        if pause_s is None:
            self.is_alive = False
        elif pause_s == 0 or self._is_woken:
            self._machine.after_work(self._run)
        else:
            self._pause = self._machine.after_pause(pause_s * 1e3, self._run)
