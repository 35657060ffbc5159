"""Changes of a group's state that take effect at once and are taken back if their records cannot be stored.

A heartbeat has to see what the one before it decided, also while that one's records are on their way to the log. So a
record changes the state when it is written, as in Kafka, and the answer waits for its commit. The record that each key
had before is kept until then: when an append fails, every key of it that no later append has written gets it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.write_log import WriteLog

__all__ = ["Change", "Changes"]


class Change:
    """Records of one request, in order.

    Args:
        recorded: Gives the record that stands for a key now.
        apply: Takes in a record.
    """

    __slots__ = ("_apply", "_recorded", "previous", "records")

    def __init__(
        self, recorded: Callable[[Any], CoordinatorRecord], apply: Callable[[CoordinatorRecord], None]
    ) -> None:
        self._recorded = recorded
        self._apply = apply
        self.records: list[CoordinatorRecord] = []
        self.previous: dict[Any, CoordinatorRecord] = {}

    def write(self, *records: CoordinatorRecord) -> None:
        """Take in records and keep them for the log."""
        for record in records:
            if record.key not in self.previous:
                self.previous[record.key] = self._recorded(record.key)
            self._apply(record)
            self.records.append(record)

    def take_back(self) -> None:
        """Restore every key."""
        for record in reversed(self.previous.values()):
            self._apply(record)


class Changes:
    """The changes of one shard that are not committed yet."""

    __slots__ = ("_pending", "_writes")

    def __init__(self, writes: WriteLog) -> None:
        self._writes = writes
        self._pending: list[Change] = []

    def submit(self, change: Change, then: Callable[[int], None]) -> None:
        """Append a change's records; ``then`` gets 0 once they and all before them are committed, or the error."""
        if not change.records:
            self._writes.after_pending(then)
            return
        self._pending.append(change)

        def on_appended(error_code: int) -> None:
            position = self._pending.index(change)
            del self._pending[position]
            if error_code:
                self._restore(change, self._pending[position:])
            then(error_code)

        self._writes.append(tuple(change.records), on_appended)

    @staticmethod
    def _restore(change: Change, after: Sequence[Change]) -> None:
        """Take a change back, but for the keys that a later one has changed, too: the later one restores them."""
        for later in after:
            for key in change.previous.keys() & later.previous.keys():
                later.previous[key] = change.previous.pop(key)
        change.take_back()
