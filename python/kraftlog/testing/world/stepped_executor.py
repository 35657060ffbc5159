"""Threads of a simulated machine: work that happens as events of the world."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Protocol

__all__ = ["SteppedExecutor"]


class Worker(Protocol):
    """A machine, as its threads know it."""

    def after_work(self, action: Callable[[], None]) -> None:
        """Run ``action`` after the time that blocking work takes."""


class SteppedExecutor(Executor):
    """Threads as events: work begins a while after it was submitted, and ends within the event.

    Args:
        machine: Runs the work.
        max_workers: With 1, in the order of submission.
    """

    def __init__(self, machine: Worker, max_workers: int) -> None:
        self._machine = machine
        self._is_in_order = max_workers == 1
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_busy = False
        self._is_shut_down = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` later."""
        future: Future[Any] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                _settle(future, fn, args, kwargs)

        self._begin(run)
        return future

    def run(self, future: asyncio.Future[Any], fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Run ``fn`` later for a future of the loop, unless it is cancelled before.

        A future of ``concurrent.futures`` that is chained to it would be a cycle, which only a collection ends.
        """

        def run() -> None:
            if not future.cancelled():
                _settle(future, fn, args, {})

        self._begin(run)

    def _begin(self, work: Callable[[], None]) -> None:
        if self._is_shut_down:
            msg = "cannot schedule new futures after shutdown"
            raise RuntimeError(msg)
        self._waiting.append(work)
        self._next()

    def _work(self, work: Callable[[], None]) -> None:
        self._is_busy = False
        work()
        self._next()

    def _next(self) -> None:
        if self._waiting and not (self._is_in_order and self._is_busy):
            self._is_busy = True
            self._machine.after_work(partial(self._work, self._waiting.popleft()))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more; with ``wait``, what waits is run now."""
        self._is_shut_down = True
        if cancel_futures:
            self._waiting.clear()
        while wait and self._waiting:
            self._waiting.popleft()()


def _settle(
    future: asyncio.Future[Any] | Future[Any], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    try:
        result = fn(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001  handed to the caller that waits
        future.set_exception(error)
    else:
        future.set_result(result)
