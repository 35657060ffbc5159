"""Flushes of the logs that share a thread."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from kraftlog.storage.metadata_log import MetadataLog, flush_together

__all__ = ["FlushGroup"]


class FlushGroup:
    """Hands the flushes that wait to a thread together; those that come meanwhile are the next round.

    Where many logs are written to, the way to the thread and back, with two waits for the interpreter, takes longer
    than most flushes.

    Args:
        executor: One thread.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._waiting: list[tuple[MetadataLog, asyncio.Future[int]]] = []
        self._is_busy = False

    def flush(self, log: MetadataLog) -> asyncio.Future[int]:
        """Flush a log; the future holds what ``MetadataLog.flush`` returns or raises."""
        flushed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((log, flushed))
        if not self._is_busy:
            self._begin()
        return flushed

    def _begin(self) -> None:
        flushing, self._waiting = self._waiting, []
        self._is_busy = True
        work = asyncio.get_running_loop().run_in_executor(self._executor, flush_together, [log for log, _ in flushing])
        work.add_done_callback(lambda work: self._end([flushed for _, flushed in flushing], work))

    def _end(self, flushed: list[asyncio.Future[int]], work: asyncio.Future[list[int | BaseException]]) -> None:
        self._is_busy = False
        error = work.exception()
        outcomes = work.result() if error is None else [error] * len(flushed)
        for future, outcome in zip(flushed, outcomes, strict=True):
            if future.cancelled():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if self._waiting:
            self._begin()
