"""Deletion of logs: renamed together on a thread, their files removed after file.delete.delay.ms."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kraftlog.errors import LogError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kraftlog._kraftlog import Log
    from kraftlog.runtime.replica.log_workers import LogWorkers
    from kraftlog.runtime.replica.step_queue import StepQueue
    from kraftlog.storage.log_dir import LogDir

__all__ = ["LogRemover", "Removal", "remove_directories"]

logger = logging.getLogger(__name__)

_LOGS_PER_ROUND = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A log to be deleted.

    Attributes:
        log: Open.
        log_dir: The data directory that holds it.
        delay_ms: file.delete.delay.ms of the topic.
        before: Called on the thread before the log is let go of.
        removed: Called on the loop once the directory's name is free, or cannot be freed.
    """

    log: Log
    log_dir: LogDir
    delay_ms: int
    before: Callable[[], None]
    removed: Callable[[], None]


class LogRemover:
    """Collects deletions and carries them out in rounds: one fsync of a data directory covers many of them.

    Args:
        loop: For the delay.
        workers: Run the rounds in order.
        steps: Runs what follows on the loop.
        in_background: Runs the removal of files.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: LogWorkers,
        steps: StepQueue,
        in_background: Callable[..., None],
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._steps = steps
        self._in_background = in_background
        self._waiting: list[Removal] = []
        self._is_busy = False

    def remove(self, removal: Removal) -> None:
        """Delete a log soon; called on the loop."""
        self._waiting.append(removal)
        if not self._is_busy:
            self._is_busy = True
            # Not at once: deleting a topic deletes its other partitions in the same turn.
            self._loop.call_soon(self._start_round)

    def _start_round(self) -> None:
        chosen, self._waiting = self._waiting[:_LOGS_PER_ROUND], self._waiting[_LOGS_PER_ROUND:]
        future = self._workers.submit_in_order(_mark_deleted, chosen)
        future.add_done_callback(partial(self._round_ended, chosen))

    def finish(self) -> None:
        """Rename what was still to be deleted, after the threads have ended; the next start removes the files."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            _mark_deleted(waiting)

    def _round_ended(self, chosen: list[Removal], future: Future[Any]) -> None:
        if future.cancelled():
            self._waiting = [*chosen, *self._waiting]  # the threads are being shut down: see finish
        else:
            self._steps.add_threadsafe(partial(self._finish_round, chosen, future))

    def _finish_round(self, chosen: list[Removal], future: Future[list[Path | None]]) -> None:
        if self._waiting:
            self._start_round()
        else:
            self._is_busy = False
        marked: dict[int, list[Path]] = {}
        for removal, path in zip(chosen, future.result(), strict=True):
            if path is not None:
                marked.setdefault(removal.delay_ms, []).append(path)
        for delay_ms, paths in marked.items():
            self._loop.call_later(delay_ms / 1000, self._in_background, remove_directories, paths)
        for removal in chosen:
            self._steps.add(removal.removed)


def _mark_deleted(removals: Sequence[Removal]) -> list[Path | None]:
    """On the thread: rename the directories; None for one that could not be renamed."""
    paths: dict[LogDir, list[Path]] = {}
    for removal in removals:
        removal.before()
        removal.log.discard()
        paths.setdefault(removal.log_dir, []).append(Path(removal.log.path))
    marked: dict[Path, Path] = {}
    for log_dir, found in paths.items():
        try:
            marked.update(log_dir.mark_directories(found, "delete"))
        except LogError:
            logger.exception("%d partitions in %s cannot be deleted", len(found), log_dir.path)
    return [marked.get(Path(removal.log.path)) for removal in removals]


def remove_directories(paths: Sequence[Path]) -> None:
    """Remove directories marked ``-delete``; what cannot be removed is tried again at the next start."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
