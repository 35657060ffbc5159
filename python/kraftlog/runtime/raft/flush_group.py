"""Flushes of the logs that share a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
        waiting, self._waiting = self._waiting, []
        flushed = [future for _, future in waiting]
        try:
            work = asyncio.get_running_loop().run_in_executor(
                self._executor, flush_together, [log for log, _ in waiting]
            )
        except RuntimeError as error:  # the thread has ended: the callers have to hear of it
            _settle(flushed, [error] * len(flushed))
            return
        self._is_busy = True
        work.add_done_callback(lambda work: self._end(flushed, work))

    def _end(self, flushed: list[asyncio.Future[int]], work: asyncio.Future[list[int | BaseException]]) -> None:
        self._is_busy = False
        error = work.exception()
        _settle(flushed, work.result() if error is None else [error] * len(flushed))
        if self._waiting:
            self._begin()


def _settle(flushed: Sequence[asyncio.Future[int]], outcomes: Sequence[int | BaseException]) -> None:
    for future, outcome in zip(flushed, outcomes, strict=True):
        if future.cancelled():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
