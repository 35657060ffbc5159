"""Log lines for what opening a log cut, removed or built anew, bounded per directory."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftlog._kraftlog import RecoveryEvent

__all__ = ["RecoveryReport", "log_recovery_events"]

logger = logging.getLogger(__name__)

LINES_PER_DIRECTORY = 100

_ACTIONS = {
    "segment-cut": "the file was cut there",
    "segment-removed": "the segment was removed",
    "segment-missing": "nothing was changed, readers go on behind them",
    "segment-unreadable": "nothing was changed",
    "index-rebuilt": "the index was built anew from the segment",
    "orphan-removed": "the file was removed",
    "epochs-rebuilt": "the epochs were read from the batches",
    "producers-rebuilt": "the producer state was built from an older snapshot and the batches",
    "producers-forgotten": "the sequence numbers of producers are not known any more",
    "log-start-kept": "the log starts there",
}
# What is no damage: a checkpoint is written from time to time only.
_EXPECTED = frozenset({"log-start-kept"})


def describe_event(event: RecoveryEvent) -> str:
    """One line: file, position, what was found, what was done and what is gone."""
    place = f"{event.path}, position {event.position}"
    if event.offset >= 0:
        place += f", offset {event.offset}"
    line = f"{place}: {event.reason}; {_ACTIONS.get(event.kind, event.kind)}"
    if event.lost_bytes:
        line += f", {event.lost_bytes} bytes of records are gone"
    return line


class RecoveryReport:
    """Warns of each event of the logs in one directory, up to a limit, and then of their sum. Any thread may call.

    Args:
        directory: A directory of ``log.dirs``, or of a single log.
        limit: Lines to write before only counting.
    """

    def __init__(self, directory: Path, limit: int = LINES_PER_DIRECTORY) -> None:
        self._directory = directory
        self._limit = limit
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._lost_bytes = 0

    def add(self, events: Sequence[RecoveryEvent]) -> None:
        """Warn of what opening one log found: ``Log.recovery_events``."""
        for event in events:
            if event.kind in _EXPECTED:
                logger.info("%s", describe_event(event))
                continue
            with self._lock:
                self._counts[event.kind] += 1
                self._lost_bytes += event.lost_bytes
                is_within_limit = self._counts.total() <= self._limit
            if is_within_limit:
                logger.warning("%s", describe_event(event))

    def finish(self) -> None:
        """Warn of the sum, if there was anything, and begin anew."""
        with self._lock:
            counts, lost_bytes = self._counts, self._lost_bytes
            self._counts, self._lost_bytes = Counter(), 0
        if counts:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
            omitted = counts.total() - self._limit
            logger.warning(
                "opening the logs in %s found damage: %s; %d bytes of records are gone%s",
                self._directory,
                kinds,
                lost_bytes,
                f"; {omitted} lines were left out" if omitted > 0 else "",
            )


def log_recovery_events(directory: Path, events: Sequence[RecoveryEvent]) -> None:
    """Warn of what opening a single log found."""
    report = RecoveryReport(directory)
    report.add(events)
    report.finish()
