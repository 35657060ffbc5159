"""Deletion of logs: renamed together on a thread, their files removed after file.delete.delay.ms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from kraftlog.errors import LogError
from kraftlog.storage.files import as_path, remove_tree

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kraftlog.runtime.replica.log_workers import LogWorkers
    from kraftlog.runtime.replica.step_queue import StepQueue
    from kraftlog.runtime.replica.topic_config import TopicConfig
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.types import TopicPartition

__all__ = ["LogRemover", "RemovableLog", "RemoveLater", "remove_directories"]

RemoveLater: TypeAlias = Callable[[int, "Sequence[Path | str]"], None]
"""Removes directories in so many milliseconds; what is left when the node stops is removed after its next start."""

logger = logging.getLogger(__name__)

_LOGS_PER_ROUND = 64


class DiscardableLog(Protocol):
    """A log whose directory is about to be renamed."""

    @property
    def path(self) -> Path: ...

    def discard(self) -> None:
        """Let go of the files without writing anything."""
        ...


class RemovableLog(Protocol):
    """A log to be deleted: a partition, so that nothing else has to be made for each of thousands.

    Attributes:
        topic_partition: Whose log it is.
        log: Open, or a directory that nobody has open.
        log_dir: The data directory that holds it.
        config: Settings of the topic.
    """

    @property
    def topic_partition(self) -> TopicPartition: ...  # noqa: D102 (above)

    @property
    def log(self) -> DiscardableLog: ...  # noqa: D102

    @property
    def log_dir(self) -> LogDir: ...  # noqa: D102

    @property
    def config(self) -> TopicConfig: ...  # noqa: D102


R = TypeVar("R", bound=RemovableLog)


class LogRemover(Generic[R]):
    """Collects deletions and carries them out in rounds: one fsync of a data directory covers many of them.

    Args:
        loop: For what is not done at once.
        workers: Run the rounds in order.
        steps: Runs what follows on the loop.
        remove_later: Removes directories in so many milliseconds.
        let_go: Called on the thread before a log is let go of.
        forget: Called on the thread before directories are renamed: takes partitions out of the checkpoints.
        removed: Called on the loop once the name of a log's directory is free, or with the error if it cannot be freed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: LogWorkers,
        steps: StepQueue,
        remove_later: RemoveLater,
        *,
        let_go: Callable[[R], None],
        forget: Callable[[LogDir, Collection[TopicPartition]], None],
        removed: Callable[[R, BaseException | None], None],
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._steps = steps
        self._remove_later = remove_later
        self._let_go = let_go
        self._forget = forget
        self._removed = removed
        self._waiting: list[R] = []
        self._is_busy = False

    def remove(self, removal: R) -> None:
        """Delete a log soon; called on the loop."""
        self._waiting.append(removal)
        if not self._is_busy:
            self._is_busy = True
            # Not at once: deleting a topic deletes its other partitions in the same turn.
            self._loop.call_soon(self._start_round)

    def _start_round(self) -> None:
        chosen, self._waiting = self._waiting[:_LOGS_PER_ROUND], self._waiting[_LOGS_PER_ROUND:]
        future = self._workers.submit_in_order(self._mark_deleted, chosen)
        future.add_done_callback(partial(self._round_ended, chosen))

    def finish(self) -> None:
        """Rename what was still to be deleted, after the threads have ended; the next start removes the files."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._mark_deleted(waiting)

    def _round_ended(self, chosen: list[R], future: Future[Any]) -> None:
        if future.cancelled():
            self._waiting = [*chosen, *self._waiting]  # the threads are being shut down: see finish
        else:
            self._steps.add_threadsafe(partial(self._finish_round, chosen, future))

    def _finish_round(self, chosen: list[R], future: Future[list[str | LogError]]) -> None:
        if self._waiting:
            self._start_round()
        else:
            self._is_busy = False
        marked: dict[int, list[str]] = {}
        ended: list[tuple[R, LogError | None]] = []
        for removal, path in zip(chosen, future.result(), strict=True):
            if isinstance(path, LogError):
                ended.append((removal, path))
            else:
                marked.setdefault(removal.config.file_delete_delay_ms, []).append(path)
                ended.append((removal, None))
        for delay_ms, paths in marked.items():
            self._remove_later(delay_ms, paths)
        self._steps.add_each(lambda end: self._removed(*end), ended)

    def _mark_deleted(self, removals: Sequence[R]) -> list[str | LogError]:
        """On the thread: rename the directories; the error of one that could not be renamed."""
        paths: dict[LogDir, list[Path]] = {}
        names: dict[LogDir, set[TopicPartition]] = {}
        for removal in removals:
            self._let_go(removal)
            removal.log.discard()
            paths.setdefault(removal.log_dir, []).append(as_path(removal.log.path))
            names.setdefault(removal.log_dir, set()).add(removal.topic_partition)
        marked: dict[Path, str | LogError] = {}
        for log_dir, found in paths.items():
            self._forget(log_dir, names[log_dir])
            marked.update(self._mark(log_dir, found))
        return [marked[as_path(removal.log.path)] for removal in removals]

    @staticmethod
    def _mark(log_dir: LogDir, paths: Sequence[Path]) -> dict[Path, str | LogError]:
        """What became of each directory: its new path, or the error."""
        try:
            renamed = log_dir.mark_directories(paths, "delete")
        except LogError as error:
            return dict.fromkeys(paths, error)
        # Text, as these wait for file.delete.delay.ms, and the collector would track each Path.
        refused = LogError("the directory could not be renamed")
        return {path: str(renamed[path]) if path in renamed else refused for path in paths}


def remove_directories(paths: Sequence[Path | str]) -> None:
    """Remove directories marked ``-delete``; what cannot be removed is tried again at the next start."""
    for path in paths:
        remove_tree(as_path(path))
