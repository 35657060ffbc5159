"""Group commit: one thread per log directory fsyncs the logs that grew, one round at a time."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from kraftlog.errors import KraftlogError

if TYPE_CHECKING:
    import asyncio

__all__ = ["Flushable", "Flusher"]

logger = logging.getLogger(__name__)


class FlushableLog(Protocol):
    """A log that can be made durable."""

    def flush(self) -> int:
        """Make all that was appended durable; returns the exclusive end of it. Called on the flusher's thread."""
        ...


class Flushable(Protocol):
    """Something with a log, told on the loop how its flush ended."""

    @property
    def log(self) -> FlushableLog:
        """The log."""
        ...

    def on_flushed(self, flushed_offset: int) -> None:
        """Everything below ``flushed_offset`` is durable."""
        ...

    def on_flush_failed(self, error: KraftlogError | OSError) -> None:
        """The flush failed."""
        ...


FlushResult = tuple[Flushable, int, KraftlogError | OSError | None]


class Flusher:
    """Collects the partitions that want a flush and flushes all of them in one round.

    Whatever is appended while a round runs is covered by the next one, so the number of fsyncs does not grow with the
    number of requests.

    Args:
        loop: Where ``Flushable.on_flushed`` is called.
        name: Of the thread, for debuggers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._wanted: dict[Flushable, None] = {}
        self._is_busy = False
        self._queue: SimpleQueue[list[Flushable] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def request(self, partition: Flushable) -> None:
        """Flush this partition's log soon."""
        self._wanted[partition] = None
        if not self._is_busy:
            self._is_busy = True
            # Not at once: the rest of this wake-up may append to other partitions, too.
            self._loop.call_soon(self._start_round)

    def stop(self) -> None:
        """End the thread after its current round."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _start_round(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        partitions = list(self._wanted)
        self._wanted.clear()
        self._queue.put(partitions)

    def _run(self) -> None:
        while (partitions := self._queue.get()) is not None:
            results: list[FlushResult] = []
            for partition in partitions:
                try:
                    results.append((partition, partition.log.flush(), None))
                except (KraftlogError, OSError) as error:
                    results.append((partition, -1, error))
            try:
                self._loop.call_soon_threadsafe(self._finish_round, results)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

    def _finish_round(self, results: list[FlushResult]) -> None:
        if self._wanted:
            self._start_round()
        else:
            self._is_busy = False
        for partition, flushed_offset, error in results:
            if error is None:
                partition.on_flushed(flushed_offset)
            else:
                partition.on_flush_failed(error)
