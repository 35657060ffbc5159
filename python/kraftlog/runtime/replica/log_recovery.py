"""Recovery of many logs after an unclean stop: several threads per data directory, and how far they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraftlog import host
from kraftlog._kraftlog import RecoveryProgress

if TYPE_CHECKING:
    from kraftlog._kraftlog import Log
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.types import TopicPartition

__all__ = ["LogRecovery", "RecoveryJob"]

logger = logging.getLogger(__name__)

_REPORT_S = 5.0


@dataclass(frozen=True, slots=True)
class RecoveryJob:
    """A log to be opened.

    Attributes:
        key: Of the partition.
        log_dir: Where it lies.
        open_log: Opens it, checking so many segments at once, and tells how far it is.
    """

    key: TopicPartition
    log_dir: LogDir
    open_log: Callable[[int, RecoveryProgress], Log]


@dataclass(slots=True)
class _Directory:
    """The logs of one directory."""

    jobs: list[RecoveryJob]
    progress: list[RecoveryProgress] = field(default_factory=list)
    done: int = 0


class LogRecovery:
    """Opens logs; any thread may ask meanwhile how far it is.

    Args:
        jobs: What is to be opened.
        threads_per_dir: ``num.recovery.threads.per.data.dir``: that many logs of a directory at once, and where it has
            fewer logs, that many segments.
    """

    def __init__(self, jobs: Iterable[RecoveryJob], threads_per_dir: int) -> None:
        self._threads_per_dir = threads_per_dir
        self._directories: dict[LogDir, _Directory] = {}
        for job in jobs:
            self._directories.setdefault(job.log_dir, _Directory([])).jobs.append(job)

    @property
    def remaining_logs(self) -> dict[str, int]:
        """How many logs of each directory are not open yet (Kafka's remainingLogsToRecover)."""
        return {str(key.path): len(found.jobs) - found.done for key, found in self._directories.items()}

    @property
    def remaining_segments(self) -> int:
        """Segments of the logs begun that are not checked yet (Kafka's remainingSegmentsToRecover)."""
        return sum(progress.segments_total - progress.segments_done for progress in self._progress())

    @property
    def bytes_done(self) -> int:
        """Bytes checked."""
        return sum(progress.bytes_done for progress in self._progress())

    @property
    def bytes_total(self) -> int:
        """Bytes to be checked in the logs that were begun."""
        return sum(progress.bytes_total for progress in self._progress())

    def _progress(self) -> list[RecoveryProgress]:
        return [progress for found in self._directories.values() for progress in list(found.progress)]

    def run(self) -> dict[TopicPartition, tuple[Log, LogDir]]:
        """Open all; a log that cannot be opened is left out, and the next user of it finds the reason again."""
        began_s = host.monotonic_s()
        futures: dict[Future[Log], RecoveryJob] = {}
        pools = []
        for log_dir, found in self._directories.items():
            logger.info("recovering %d logs from %s, which was not closed cleanly", len(found.jobs), log_dir.path)
            threads = max(1, min(self._threads_per_dir, len(found.jobs)))
            pool = host.joined_executor(f"kraftlog-recovery-{log_dir.path.name}", threads)
            pools.append(pool)
            for job in found.jobs:
                futures[
                    pool.submit(self._open, job, host.threads_at_most(max(1, self._threads_per_dir // threads)))
                ] = job
        pending = set(futures)
        while pending:
            _, pending = wait(pending, timeout=_REPORT_S)
            if pending:
                logger.info("recovery: %s", self)
        for pool in pools:
            pool.shutdown()
        opened = {job.key: (future.result(), job.log_dir) for future, job in futures.items() if not future.exception()}
        if futures:
            logger.info("recovered %d logs in %d ms", len(opened), (host.monotonic_s() - began_s) * 1000)
        return opened

    def _open(self, job: RecoveryJob, segment_threads: int) -> Log:
        found = self._directories[job.log_dir]
        progress = RecoveryProgress()
        found.progress.append(progress)
        began_s = host.monotonic_s()
        try:
            log = job.open_log(segment_threads, progress)
        finally:
            found.done += 1
        logger.info(
            "completed load of %s with %d segments, offsets %d to %d, in %d ms (%d/%d completed in %s)",
            job.key,
            log.segment_count,
            log.log_start_offset,
            log.log_end_offset,
            (host.monotonic_s() - began_s) * 1000,
            found.done,
            len(found.jobs),
            job.log_dir.path,
        )
        return log

    def __str__(self) -> str:
        done, total = self.bytes_done / 1e6, self.bytes_total / 1e6
        logs = ", ".join(f"{count} logs in {path}" for path, count in self.remaining_logs.items())
        return f"{done:.0f} of {total:.0f} MB checked, {self.remaining_segments} segments remain, {logs} remain"
