"""Threads for the blocking work of replicated logs."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Self

from kraftlog import host

__all__ = ["LogThreads"]


@dataclass(frozen=True, slots=True)
class LogThreads:
    """The threads that one log works on, its own or those of several logs.

    Args:
        log: One thread: flushes, the election state, and what is removed, in order.
        checkpoints: Writes and loads checkpoints.
        is_shared: Whether they outlive the log.
    """

    log: Executor
    checkpoints: Executor
    is_shared: bool = False

    @classmethod
    def of_one_log(cls, name: str) -> Self:
        """Threads that nobody else uses.

        Args:
            name: For debuggers.
        """
        return cls(host.executor(name), host.executor("kraftlog-checkpoint"))

    def release(self) -> None:
        """The log is closed: end its threads, unless others use them."""
        if not self.is_shared:
            self.log.shutdown(wait=True)
            self.checkpoints.shutdown(wait=True)
