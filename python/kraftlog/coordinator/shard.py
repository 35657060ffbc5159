"""What the runtime of coordinators drives: one state machine per partition of a coordinator's topic.

Groups, and every coordinator that follows, differ in their requests and records. Loading, appending, answering on
commit, timers and unloading are the same for all of them; ``kraftlog.runtime.coordinator`` does these for any shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kraftlog.coordinator.effects import CoordinatorRecord, Effect, TransactionEnd
from kraftlog.types import Uuid

__all__ = ["Shard"]


class Shard(Protocol):
    """A sans-IO state machine over the records of one partition.

    Requests are methods of the concrete class. One that has to wait takes a token, and its answer comes out of
    ``take_effects`` as ``Respond``.
    """

    def replay(self, record: CoordinatorRecord | TransactionEnd, *, now_ms: int) -> None:
        """Take in one record of the partition, in offset order; kinds of key that are unknown are passed over.

        A record of a transaction takes effect with the end that commits it. After loading, this is called for markers
        only.
        """
        ...

    def finish_loading(self, now_ms: int) -> None:
        """Start the clocks: every record of the partition has been replayed."""
        ...

    def take_effects(self) -> list[Effect]:
        """Drain answers and appends, in order."""
        ...

    def on_appended(self, append_id: int, error_code: int, last_offset: int = -1) -> None:
        """Take the outcome of an ``AppendRecords``: 0 once committed, else the error for the client.

        ``last_offset`` is that of the last of its records when they are committed.
        """
        ...

    def next_timeout_ms(self) -> int | None:
        """When ``handle_timeout`` is wanted; may change after every call but pure reads."""
        ...

    def handle_timeout(self, now_ms: int) -> None:
        """End what is overdue; harmless when called early or twice."""
        ...

    def forget_topics(self, topics: Mapping[str, Uuid]) -> None:
        """Drop what belongs to deleted topics, given as ids by name."""
        ...
