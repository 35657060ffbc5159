"""Threads for the file work of logs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from kraftlog import host
from kraftlog.errors import LogError

__all__ = ["LogWorkers", "ThreadedLogWorkers"]

logger = logging.getLogger(__name__)

# Opening a log waits for fsyncs, which a file system takes together when they come together. Each thread takes the
# interpreter from the event loop now and then: eight hold it up for 30 ms without opening logs sooner.
_THREADS = 4


class LogWorkers(Protocol):
    """Runs file work off the event loop."""

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run ``work(*arguments)`` soon, beside other work."""
        ...

    def submit_in_order(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run ``work(*arguments)`` after everything that was submitted in this way before."""
        ...

    def in_background(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Run recurring work that nobody waits for, one after the other; a failure is logged."""
        ...

    def shut_down(self) -> None:
        """Wait for the work that has begun; the rest is cancelled, and what is submitted later is not begun."""
        ...


class ThreadedLogWorkers:
    """Several threads that open logs, one that removes them, one for recurring work."""

    def __init__(self) -> None:
        self._pool = host.executor("kraftlog-open", _THREADS)
        self._line = host.executor("kraftlog-remove")
        self._background = host.executor("kraftlog-background")

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run ``work(*arguments)`` soon, beside other work."""
        return self._pool.submit(work, *arguments)

    def submit_in_order(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run ``work(*arguments)`` after everything that was submitted in this way before."""
        return self._line.submit(work, *arguments)

    def in_background(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Run recurring work that nobody waits for, one after the other; a failure is logged."""
        try:
            self._background.submit(_logged, work, *arguments)
        except RuntimeError:
            return  # shut down: a deletion that was due later is carried out at the next start

    def shut_down(self) -> None:
        """Wait for the work that has begun; the rest is cancelled, and what is submitted later is not begun."""
        for pool in (self._pool, self._line, self._background):
            pool.shutdown(wait=True, cancel_futures=True)


def _logged(work: Callable[..., Any], *arguments: Any) -> None:
    try:
        work(*arguments)
    except (LogError, OSError):
        logger.exception("background work failed")
