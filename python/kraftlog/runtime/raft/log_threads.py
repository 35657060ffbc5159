"""Threads for the blocking work of replicated logs."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Self

from kraftlog import host
from kraftlog.runtime.raft.flush_group import FlushGroup
from kraftlog.storage.metadata_log import MetadataLog

__all__ = ["LogThreads"]


@dataclass(frozen=True, slots=True)
class LogThreads:
    """The threads that one log works on, its own or those of several logs.

    Args:
        log: One thread: flushes, the election state, and what is removed, in order.
        checkpoints: Writes and loads checkpoints.
        flushes: Of the logs that share the threads, which outlive the log then; None for threads of its own.
    """

    log: Executor
    checkpoints: Executor
    flushes: FlushGroup | None = None

    @classmethod
    def of_one_log(cls, name: str) -> Self:
        """Threads that nobody else uses.

        Args:
            name: For debuggers.
        """
        return cls(host.executor(name), host.executor("kraftlog-checkpoint"))

    def flush(self, log: MetadataLog) -> asyncio.Future[int]:
        """Flush a log; the future holds what ``MetadataLog.flush`` returns or raises."""
        if self.flushes is not None:
            return self.flushes.flush(log)
        return asyncio.get_running_loop().run_in_executor(self.log, log.flush)

    def release(self) -> None:
        """The log is closed: end its threads, unless others use them."""
        if self.flushes is None:
            self.log.shutdown(wait=True)
            self.checkpoints.shutdown(wait=True)
