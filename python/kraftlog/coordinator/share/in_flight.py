"""Records of a share partition that were handed out: batches as acquired, with a state for each run of offsets.

Source: ``org.apache.kafka.server.share.fetch.InFlightBatch`` and ``InFlightState``.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftlog.coordinator.share.state_batches import RecordState

__all__ = ["InFlightBatch", "Run"]


class Run:
    """Neighbouring offsets of one batch with the same state.

    Attributes:
        first, last: Offsets, both inclusive.
        member_id: Who acquired the records; "" when nobody has them.
        deadline_ms: When the acquisition lock ends.
        before: The acquired state to return to if the write of a new state fails; None when no write is on its way.
        is_timed_out: Whether the lock ended while the write was on its way.
    """

    __slots__ = ("before", "deadline_ms", "delivery_count", "first", "is_timed_out", "last", "member_id", "state")

    def __init__(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = ""
        self.deadline_ms = 0
        self.before: str | None = None
        self.is_timed_out = False

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_pending(self) -> bool:
        """Whether a write of its state is on its way."""
        return self.before is not None

    @property
    def is_ended(self) -> bool:
        """Whether its records are never delivered again, and that is stored."""
        return self.state.is_final and not self.is_pending

    @property
    def is_available(self) -> bool:
        """Whether its records may be acquired."""
        return self.state is RecordState.AVAILABLE and not self.is_pending

    @property
    def is_held(self) -> bool:
        """Whether a member has its records, or a write of their state is on its way."""
        return self.is_pending or self.state is RecordState.ACQUIRED

    def part(self, first: int, last: int) -> Run:
        """A copy for some of its offsets."""
        run = Run(first, last, self.state, self.delivery_count)
        run.member_id, run.deadline_ms = self.member_id, self.deadline_ms
        run.before, run.is_timed_out = self.before, self.is_timed_out
        return run

    def acquire(self, member_id: str, deadline_ms: int) -> None:
        """Hand the records to a member."""
        self.state = RecordState.ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id
        self.deadline_ms = deadline_ms

    def begin(self, state: RecordState) -> None:
        """Change the state for as long as its write is not refused."""
        self.before = self.member_id
        self.state = state

    def commit(self) -> None:
        """The new state is stored."""
        self.before = None
        self.member_id = ""
        self.is_timed_out = False

    def roll_back(self, delivery_limit: int) -> None:
        """The new state could not be stored: acquired as before, unless the lock ended meanwhile."""
        timed_out = self.is_timed_out
        self.state = RecordState.ACQUIRED
        self.before = None
        self.is_timed_out = False
        if timed_out:
            self.release(delivery_limit)

    def release(self, delivery_limit: int) -> None:
        """Make the records available again; the limit of deliveries ends them."""
        self.state = RecordState.ARCHIVED if self.delivery_count >= delivery_limit else RecordState.AVAILABLE
        self.member_id = ""


class InFlightBatch:
    """What was acquired at once; its runs cover it without gaps."""

    __slots__ = ("first", "last", "runs")

    def __init__(self, run: Run) -> None:
        self.first = run.first
        self.last = run.last
        self.runs = [run]

    def within(self, first: int, last: int) -> Iterator[Run]:
        """The runs that overlap a range of offsets, both inclusive."""
        return (run for run in self.runs if run.first <= last and run.last >= first)

    def cut(self, first: int, last: int) -> list[Run]:
        """The runs within a range, split at its ends."""
        runs: list[Run] = []
        found: list[Run] = []
        for run in self.runs:
            if run.last < first or run.first > last:
                runs.append(run)
                continue
            if run.first < first:
                runs.append(run.part(run.first, first - 1))
                run.first = first
            rest = run.part(last + 1, run.last) if run.last > last else None
            if rest is not None:
                run.last = last
            runs.append(run)
            found.append(run)
            if rest is not None:
                runs.append(rest)
        self.runs = runs
        return found
