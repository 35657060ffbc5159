"""Proposals on their way: queued, proposed here or by the leader, and what became of them."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kraftlog.errors import DeadlineError, NotCommittedError, OutcomeUnknownError

if TYPE_CHECKING:
    from kraftlog._kraftlog import RecordBatch

__all__ = [
    "COMMAND_OVERHEAD_BYTES",
    "Applied",
    "Deadlines",
    "Group",
    "Proposal",
    "Watched",
    "commands_of",
    "own_commands",
]

COMMAND_OVERHEAD_BYTES = 24
"""More than a record needs around its value."""


def commands_of(batch: RecordBatch, start_offset: int = 0) -> list[bytes]:
    """The commands in a batch from ``start_offset`` (inclusive) on; a record without a value is an empty one."""
    return [value or b"" for value in batch.values(start_offset)]


def own_commands(commands: Sequence[bytes]) -> tuple[bytes, ...]:
    """The commands as nobody can change them any more: what is applied has to be what was written.

    Raises:
        ValueError: There are none.
        TypeError: One is not of bytes.
    """
    kept: tuple[Any, ...] = tuple(commands)
    if not kept:
        msg = "no commands"
        raise ValueError(msg)
    if set(map(type, kept)) == {bytes}:
        return kept
    for command in kept:
        if not isinstance(command, bytes | bytearray | memoryview):
            msg = f"a sequence of commands, each of bytes, is wanted; one is of {type(command).__name__}"
            raise TypeError(msg)
    return tuple(map(bytes, kept))


@dataclass(slots=True, eq=False)
class Proposal:
    """The commands of one call.

    Args:
        commands: At least one; they are committed together or not at all.
        size_bytes: Encoded, at most.
        deadline_s: Loop time at which the caller is told that it passed.
        future: Gets ``Applied`` once the commands are applied here; for a proposal that another replica forwarded,
            offset and epoch as soon as it is appended.
        is_forwarded: Whether another replica forwarded it and only has to know where it was appended.
        is_proposed: Whether it may be in a log by now.
    """

    commands: Sequence[bytes]
    size_bytes: int
    deadline_s: float
    future: asyncio.Future[Applied]
    is_forwarded: bool = False
    is_proposed: bool = False

    def finish(self, applied: Applied) -> None:
        """Tell the caller."""
        if not self.future.done():
            self.future.set_result(applied)

    def fail(self, error: BaseException) -> None:
        """Tell the caller that it did not work."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True)
class Applied:
    """Where commands are in the log, and what the state machine said to them.

    Args:
        base_offset: Of the first.
        count: How many.
        epoch: In which they were appended.
        results: One each; None where the state machine gives none.
    """

    base_offset: int
    count: int
    epoch: int
    results: Sequence[object] | None = None

    @property
    def last_offset(self) -> int:
        """Of the last (inclusive)."""
        return self.base_offset + self.count - 1

    def part(self, base_offset: int, count: int) -> Applied:
        """Those of one proposal."""
        start = base_offset - self.base_offset
        results = None if self.results is None else self.results[start : start + count]
        return Applied(base_offset, count, self.epoch, results)


@dataclass(slots=True, eq=False)
class Group:
    """Proposals that became one batch: the commands of all, one after the other."""

    proposals: list[Proposal] = field(default_factory=list)
    commands: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    applied: Applied | None = None

    def add(self, proposal: Proposal) -> None:
        """Take one more."""
        self.proposals.append(proposal)
        self.commands += proposal.commands
        self.size_bytes += proposal.size_bytes

    def waiting(self) -> Group:
        """Those whose callers still wait."""
        group = Group()
        for proposal in self.proposals:
            if not proposal.future.done():
                group.add(proposal)
        return group

    def each(self, base_offset: int) -> Iterable[tuple[int, Proposal]]:
        """Each proposal with the offset of its first command."""
        for proposal in self.proposals:
            yield base_offset, proposal
            base_offset += len(proposal.commands)


class Watched:
    """Proposals whose place in the log is known, while it is not known whether they stay there.

    An offset and the epoch of its record name one record in all logs: when the offset is applied, the epoch of what is
    there decides.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Proposal]] = []
        self._serial = 0
        self._recent: deque[Applied] = deque()
        self._starts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def proposals(self) -> Iterable[Proposal]:
        """All of them."""
        return (entry[3] for entry in self._heap)

    def begin(self, applied_end_offset: int) -> int:
        """Another replica is about to propose for this one: what is applied from now on is kept until ``end``."""
        self._serial += 1
        self._starts[self._serial] = applied_end_offset
        return self._serial

    def end(self, token: int) -> None:
        """The other replica has answered, or will not."""
        del self._starts[token]
        if not self._starts:
            self._recent.clear()
            return
        oldest = next(iter(self._starts.values()))
        while self._recent and self._recent[0].last_offset < oldest:
            self._recent.popleft()

    def watch(self, proposal: Proposal, base_offset: int, epoch: int, applied_end_offset: int) -> None:
        """Tell the proposal's caller when it is decided; at once where that is the case."""
        count = len(proposal.commands)
        if base_offset + count > applied_end_offset:
            self._serial += 1
            heapq.heappush(self._heap, (base_offset + count - 1, self._serial, epoch, proposal))
            return
        for applied in self._recent:
            if applied.base_offset <= base_offset <= applied.last_offset:
                _decide(proposal, applied, base_offset, epoch)
                return
        proposal.fail(
            OutcomeUnknownError("a snapshot took the place of the record before it could be told from others")
        )

    def on_applied(self, applied: Applied) -> None:
        """Decide about the proposals at these offsets."""
        if self._starts:
            self._recent.append(applied)
        heap = self._heap
        while heap and heap[0][0] <= applied.last_offset:
            last_offset, _, epoch, proposal = heapq.heappop(heap)
            _decide(proposal, applied, last_offset - len(proposal.commands) + 1, epoch)

    def on_snapshot(self, end_offset: int) -> None:
        """Everything below was replaced by a state: what it was made of is not known."""
        while self._heap and self._heap[0][0] < end_offset:
            heapq.heappop(self._heap)[3].fail(
                OutcomeUnknownError("a snapshot took the place of the record before it could be told from others")
            )

    def fail_all(self, error: Callable[[Proposal], BaseException]) -> None:
        """Tell everybody."""
        heap, self._heap = self._heap, []
        for _, _, _, proposal in heap:
            proposal.fail(error(proposal))


def _decide(proposal: Proposal, applied: Applied, base_offset: int, epoch: int) -> None:
    if applied.epoch == epoch:
        proposal.finish(applied.part(base_offset, len(proposal.commands)))
    else:
        proposal.fail(NotCommittedError("leadership changed before the commands were committed, and they were cut off"))


class Deadlines:
    """One timer for the deadlines of many proposals: armed for the earliest, it looks through all that are left."""

    def __init__(self, loop: asyncio.AbstractEventLoop, proposals: Callable[[], Iterable[Proposal]]) -> None:
        self._loop = loop
        self._proposals = proposals
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = float("inf")
        self._is_closed = False

    def note(self, deadline_s: float) -> None:
        """A proposal with this deadline was added; once it is closed, nothing happens."""
        if deadline_s < self._timer_s and not self._is_closed:
            self._cancel()
            self._timer_s = deadline_s
            self._timer = self._loop.call_at(deadline_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_s = None, float("inf")
        now_s = self._loop.time()
        earliest_s = float("inf")
        for proposal in self._proposals():
            if proposal.future.done():
                continue
            if proposal.deadline_s <= now_s:
                done = "proposed, and may be committed yet" if proposal.is_proposed else "not proposed"
                proposal.fail(
                    DeadlineError(
                        f"the deadline passed; the commands were {done}", may_be_committed=proposal.is_proposed
                    )
                )
            else:
                earliest_s = min(earliest_s, proposal.deadline_s)
        if earliest_s < float("inf"):
            self.note(earliest_s)

    def close(self) -> None:
        """Nobody is told any more."""
        self._is_closed = True
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_s = None, float("inf")
