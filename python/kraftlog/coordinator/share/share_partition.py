"""One share partition on the leader of its partition: which records are handed out, to whom, and which have ended.

A sans-IO state machine. Records between the start offset and the end of the window are in flight. What changes a stored
state comes out of ``take_writes``, and ``on_written`` reports the outcome of each.

Source: ``kafka.server.share.SharePartition`` of Kafka 4.3.1 (KIP-932, KIP-1206, KIP-1222).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraftlog.coordinator.share.in_flight import InFlightBatch, Run
from kraftlog.coordinator.share.state_batches import RecordState, StateBatch
from kraftlog.errors import ErrorCode, KafkaError

__all__ = [
    "Acknowledgement",
    "AcquireLimits",
    "Acquired",
    "SharePartition",
    "SharePartitionSettings",
    "StateWrite",
]

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_TARGETS: Final = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}
_NOT_ACQUIRED: Final = "The record is not acquired."
_STORED: Final = frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionSettings:
    """Settings of the share group that a share partition belongs to (counts, milliseconds)."""

    delivery_limit: int = 5
    lock_ms: int = 30_000
    max_locks: int = 2_000
    is_renewable: bool = True


@dataclass(frozen=True, slots=True)
class Acquired:
    """Offsets that a member has now, both inclusive."""

    first: int
    last: int
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireLimits:
    """How much a fetch may acquire.

    Attributes:
        max_records: Number of records.
        batch_size: Number of records at which an acquired range ends with its record batch.
        is_strict: Whether ``max_records`` is never exceeded, not even to the end of a record batch (KIP-1206).
    """

    max_records: int
    batch_size: int
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Offsets of one batch of a request, both inclusive; one type, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """(first, last, type) of runs with the same type."""
        if len(self.types) <= 1:
            yield self.first, self.last, self.types[0]
            return
        begin = 0
        for index in range(1, len(self.types) + 1):
            if index == len(self.types) or self.types[index] != self.types[begin]:
                yield self.first + begin, self.first + index - 1, self.types[begin]
                begin = index


@dataclass(frozen=True, slots=True)
class StateWrite:
    """What the share coordinator has to store.

    Attributes:
        write_id: Comes back with ``on_written``.
        start_offset: First offset that had not ended before this write.
        complete_count: Records from ``start_offset`` on whose delivery is complete with this write.
        batches: Changed states.
    """

    write_id: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]


class SharePartition:
    """Records of one partition for one share group.

    Args:
        settings: Gives the settings of the group now.
        start_offset: First offset that has not ended.
        batches: Stored states from ``start_offset`` on, in order.

    Attributes:
        start_offset: First offset that has not ended.
        next_offset: Exclusive end of the window of records in flight.

    Raises:
        ValueError: A stored batch begins below the start offset, or ends before it begins.
    """

    def __init__(
        self, settings: Callable[[], SharePartitionSettings], start_offset: int, batches: Iterable[StateBatch] = ()
    ) -> None:
        self._settings = settings
        self.start_offset = start_offset
        self.next_offset = start_offset
        self._batches: list[InFlightBatch] = []
        self._writes: list[StateWrite] = []
        self._pending: dict[int, list[Run]] = {}
        self._next_write_id = 0
        self._deadline_ms: int | None = None
        for batch in batches:
            if batch.first < self.next_offset or batch.last < batch.first:
                msg = f"invalid state batch {batch.first}..{batch.last} with the window at {self.next_offset}"
                raise ValueError(msg)
            if batch.first > self.next_offset:
                # Nothing was ever stored of these: they were acquired or not even fetched when the leader changed.
                self._add(Run(self.next_offset, batch.first - 1, RecordState.AVAILABLE, 0))
            state = RecordState(batch.state) if batch.state in _STORED else RecordState.AVAILABLE
            self._add(Run(batch.first, batch.last, state, batch.delivery_count))
        self._advance()

    # -- what can be acquired -------------------------------------------------------------------------------------

    def fetch_offset(self) -> int | None:
        """From where to read: the first available record, or the end of the window; None when the window is full."""
        for batch in self._batches:
            for run in batch.runs:
                if run.is_available and run.last >= self.start_offset:
                    return max(run.first, self.start_offset)
        has_room = self.next_offset - self.start_offset < self._settings().max_locks
        return self.next_offset if has_room else None

    def acquire(
        self,
        member_id: str,
        fetched: Sequence[tuple[int, int]],
        limits: AcquireLimits,
        now_ms: int,
        *,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[Acquired]:
        """Hand records to a member.

        Args:
            member_id: Who gets them.
            fetched: First and last offset of each record batch that was read, in order.
            limits: How many.
            now_ms: The locks begin now.
            aborted: Ranges of aborted transactions among what was read: they end instead.
        """
        if not fetched or limits.max_records <= 0:
            return []
        deadline_ms = now_ms + self._settings().lock_ms
        last_fetched = fetched[-1][1]
        acquired, is_throttled = self._acquire_available(member_id, fetched, limits, deadline_ms)
        count = sum(part.last - part.first + 1 for part in acquired)
        if not is_throttled and count < limits.max_records and self.next_offset <= last_fetched:
            acquired += self._acquire_new(member_id, fetched, limits, limits.max_records - count, deadline_ms)
        if acquired and (self._deadline_ms is None or deadline_ms < self._deadline_ms):
            self._deadline_ms = deadline_ms
        return self._without_aborted(acquired, aborted) if aborted else acquired

    def _acquire_available(
        self, member_id: str, fetched: Sequence[tuple[int, int]], limits: AcquireLimits, deadline_ms: int
    ) -> tuple[list[Acquired], bool]:
        """Records in the window that nobody has; True when a record that fails again and again ended the search."""
        acquired: list[Acquired] = []
        count = 0
        first_wanted, last_wanted = max(fetched[0][0], self.start_offset), fetched[-1][1]
        for batch in self._batches:
            if batch.last < first_wanted:
                continue
            if batch.first > last_wanted or count >= limits.max_records:
                break
            for run in list(batch.within(first_wanted, last_wanted)):
                if not run.is_available:
                    continue
                first, last = max(run.first, first_wanted), min(run.last, last_wanted)
                size = self._piece_size(run.delivery_count, last - first + 1)
                is_throttled = size is not None
                if is_throttled and acquired:
                    return acquired, True
                if size is not None:
                    last = first + min(size, limits.max_records) - 1
                elif limits.is_strict:
                    last = min(last, first + limits.max_records - count - 1)
                elif run.delivery_count == 0 and last - first + 1 > limits.max_records - count:
                    # Never handed out before: record batches are the measure, not the run.
                    last = min(last, _batch_end(fetched, first + limits.max_records - count - 1))
                for part in batch.cut(first, last):
                    part.acquire(member_id, deadline_ms)
                    acquired.append(Acquired(part.first, part.last, part.delivery_count))
                    count += len(part)
                if is_throttled:
                    return acquired, True
                if count >= limits.max_records:
                    break
        return acquired, False

    def _piece_size(self, delivery_count: int, size: int) -> int | None:
        """Records that are delivered together once deliveries have failed; None for no limit."""
        limit = self._settings().delivery_limit
        threshold = max(2, (limit + 1) // 2)
        if delivery_count < threshold:
            return None
        return 1 if delivery_count >= limit - 1 else max(1, size >> (delivery_count - threshold + 1))

    def _acquire_new(
        self,
        member_id: str,
        fetched: Sequence[tuple[int, int]],
        limits: AcquireLimits,
        max_records: int,
        deadline_ms: int,
    ) -> list[Acquired]:
        """Records beyond the window."""
        fresh = [(first, last) for first, last in fetched if last >= self.next_offset]
        first = fresh[0][0]
        if first > self.next_offset:
            # Nothing is there any more.
            if self._batches:
                self._add(Run(self.next_offset, first - 1, RecordState.ARCHIVED, 0))
            else:
                self.start_offset = self.next_offset = first
        first = self.next_offset
        room = self._settings().max_locks - (first - self.start_offset)
        if room <= 0:
            return []
        end = first + min(max_records, room) - 1
        last = min(end, fresh[-1][1]) if limits.is_strict else min(_batch_end(fresh, end), fresh[-1][1])
        acquired = []
        for part_first, part_last in _cut_at_batches(fresh, first, last, max(1, limits.batch_size)):
            run = Run(part_first, part_last, RecordState.AVAILABLE, 0)
            run.acquire(member_id, deadline_ms)
            self._add(run)
            acquired.append(Acquired(part_first, part_last, run.delivery_count))
        return acquired

    def _without_aborted(self, acquired: list[Acquired], aborted: Sequence[tuple[int, int]]) -> list[Acquired]:
        for first, last in aborted:
            for batch in self._overlapping(first, last):
                for run in batch.cut(first, last):
                    if run.state is RecordState.ACQUIRED and not run.is_pending:
                        run.state, run.member_id = RecordState.ARCHIVED, ""
        kept: list[Acquired] = []
        for part in acquired:
            for batch in self._overlapping(part.first, part.last):
                kept.extend(
                    Acquired(run.first, run.last, run.delivery_count)
                    for run in batch.within(part.first, part.last)
                    if run.state is RecordState.ACQUIRED
                )
        self._advance()
        return kept

    # -- acknowledgements -----------------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Sequence[Acknowledgement], now_ms: int) -> int | None:
        """Take what a member says about records it acquired: all of it, or nothing.

        Returns:
            The id of the write on which the answer waits; None when nothing has to be stored.

        Raises:
            KafkaError: INVALID_REQUEST beyond the window, INVALID_RECORD_STATE when the member does not have a record.
        """
        settings = self._settings()
        parts: list[tuple[InFlightBatch, int, int, int]] = []
        settled_end = self.start_offset
        for acknowledgement in batches:
            self._check(member_id, acknowledgement)
            for first, last, kind in acknowledgement.parts():
                if kind == RENEW and not settings.is_renewable:
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Renewing record locks is not enabled.")
                low = max(first, self.start_offset)
                if low < settled_end:
                    # The batch before it may end with the offset that this one begins with.
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, _NOT_ACQUIRED)
                if kind != RENEW:
                    settled_end = max(settled_end, last + 1)
                parts += [
                    (batch, max(low, batch.first), min(last, batch.last), kind)
                    for batch in self._overlapping(low, last)
                ]
        changed: list[Run] = []
        for batch, first, last, kind in parts:
            for run in batch.cut(first, last):
                if kind == RENEW:
                    run.deadline_ms = now_ms + settings.lock_ms
                    continue
                state = _TARGETS[kind]
                if state is RecordState.AVAILABLE and run.delivery_count >= settings.delivery_limit:
                    state = RecordState.ARCHIVED
                run.begin(state)
                changed.append(run)
        return self._write(changed) if changed else None

    def _check(self, member_id: str, acknowledgement: Acknowledgement) -> None:
        if acknowledgement.last >= self.next_offset:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The last offset in the batch is past the end offset.")
        position = acknowledgement.first
        if position < self.start_offset <= acknowledgement.last:
            # What lies below has ended, and its batches may be forgotten.
            position = self.start_offset
        for batch in self._overlapping(position, acknowledgement.last):
            if batch.first > position:
                break
            for run in batch.within(max(position, self.start_offset), acknowledgement.last):
                if run.state is not RecordState.ACQUIRED or run.is_pending:
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, _NOT_ACQUIRED)
                if run.member_id != member_id:
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of the record.")
            position = batch.last + 1
        if position <= acknowledgement.last:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The batch was not found.")

    def release(self, member_id: str) -> int | None:
        """Make everything available that a member acquired and has not acknowledged: it is gone.

        Returns:
            The id of the write; None when it had nothing.
        """
        limit = self._settings().delivery_limit
        changed = []
        for run in self._acquired():
            if run.member_id == member_id:
                is_over = run.delivery_count >= limit
                run.begin(RecordState.ARCHIVED if is_over else RecordState.AVAILABLE)
                changed.append(run)
        return self._write(changed) if changed else None

    # -- time -----------------------------------------------------------------------------------------------------

    def next_timeout_ms(self) -> int | None:
        """When ``handle_timeout`` is wanted; it may be early."""
        return self._deadline_ms

    @property
    def in_flight(self) -> tuple[int, int]:
        """How many offsets and batches the window has; any thread may ask."""
        batch_count = len(self._batches)
        return (max(0, self.next_offset - self.start_offset) if batch_count else 0), batch_count

    def handle_timeout(self, now_ms: int) -> int:
        """End the locks whose time is over; their records are available again, whether that can be stored or not.

        Returns:
            The number of these records.
        """
        if self._deadline_ms is None or self._deadline_ms > now_ms:
            return 0
        limit = self._settings().delivery_limit
        changed = []
        next_ms: int | None = None
        for run in self._locked():
            if run.deadline_ms > now_ms:
                next_ms = run.deadline_ms if next_ms is None else min(next_ms, run.deadline_ms)
            elif run.is_pending:
                run.is_timed_out = True
            else:
                run.release(limit)
                changed.append(run)
        self._deadline_ms = next_ms
        if changed:
            self._emit([_stored(run) for run in changed])
            self._advance()
        return sum(len(run) for run in changed)

    def _locked(self) -> list[Run]:
        return [run for batch in self._batches for run in batch.runs if run.is_held]

    def _acquired(self) -> list[Run]:
        return [run for run in self._locked() if not run.is_pending]

    # -- the log moves --------------------------------------------------------------------------------------------

    def log_start_moved(self, log_start_offset: int) -> None:
        """Records below were deleted: those that nobody has are archived, and the start offset follows."""
        if log_start_offset <= self.start_offset:
            return
        for batch in self._overlapping(self.start_offset, log_start_offset - 1):
            for run in batch.cut(batch.first, log_start_offset - 1):
                if run.is_available:
                    run.state = RecordState.ARCHIVED
        self.start_offset = log_start_offset
        self.next_offset = max(self.next_offset, log_start_offset)
        self._advance()

    # -- writes ---------------------------------------------------------------------------------------------------

    @property
    def complete_count(self) -> int:
        """Records from the start offset on whose delivery is complete, or will be once the writes have succeeded."""
        return sum(
            run.last - max(run.first, self.start_offset) + 1
            for batch in self._batches
            for run in batch.runs
            if run.state.is_final and run.last >= self.start_offset
        )

    def take_writes(self) -> list[StateWrite]:
        """Drain what has to be stored, in order."""
        writes, self._writes = self._writes, []
        return writes

    def on_written(self, write_id: int, error_code: int) -> None:
        """Take the outcome of a write: 0, or the error for which the states go back."""
        runs = self._pending.pop(write_id, None)
        if runs is None:
            return
        # A run that waits is never split: no acknowledgement and no lock reaches it.
        limit = self._settings().delivery_limit
        for run in runs:
            if error_code:
                run.roll_back(limit)
                if run.state is RecordState.ACQUIRED and (
                    self._deadline_ms is None or run.deadline_ms < self._deadline_ms
                ):
                    self._deadline_ms = run.deadline_ms
            else:
                run.commit()
        self._advance()

    def _write(self, runs: list[Run]) -> int:
        write_id = self._emit([_stored(run) for run in runs])
        self._pending[write_id] = runs
        return write_id

    def _emit(self, batches: list[StateBatch]) -> int:
        write_id = self._next_write_id
        self._next_write_id += 1
        self._writes.append(StateWrite(write_id, self.start_offset, self.complete_count, _joined(batches)))
        return write_id

    # -- the window -----------------------------------------------------------------------------------------------

    def _add(self, run: Run) -> None:
        self._batches.append(InFlightBatch(run))
        self.next_offset = run.last + 1

    def _overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        begin = max(0, bisect_right(self._batches, first, key=lambda batch: batch.first) - 1)
        found = []
        for batch in self._batches[begin:]:
            if batch.first > last:
                break
            if batch.last >= first:
                found.append(batch)
        return found

    def _advance(self) -> None:
        """Move the start offset over what has ended, and forget batches that nobody needs."""
        for batch in self._batches:
            if batch.last < self.start_offset:
                continue
            waiting = next((run for run in batch.runs if run.last >= self.start_offset and not run.is_ended), None)
            if waiting is not None:
                self.start_offset = max(self.start_offset, waiting.first)
                break
            self.start_offset = batch.last + 1
        self._batches = [
            batch
            for batch in self._batches
            if batch.last >= self.start_offset or any(run.is_held for run in batch.runs)
        ]


def _stored(run: Run) -> StateBatch:
    return StateBatch(run.first, run.last, int(run.state), run.delivery_count)


def _joined(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """Neighbours with equal states in one batch, in the order of offsets."""
    found: list[StateBatch] = []
    for batch in sorted(batches, key=lambda batch: batch.first):
        before = found[-1] if found else None
        if (
            before is not None
            and before.last + 1 == batch.first
            and (before.state, before.delivery_count) == (batch.state, batch.delivery_count)
        ):
            found[-1] = StateBatch(before.first, batch.last, batch.state, batch.delivery_count)
        else:
            found.append(batch)
    return tuple(found)


def _batch_end(fetched: Sequence[tuple[int, int]], offset: int) -> int:
    """The last offset of the record batch that contains ``offset``, or of the last one before it."""
    end = fetched[-1][1]
    for first, last in fetched:
        if last >= offset:
            return last if first <= offset else max(first - 1, offset)
    return end


def _cut_at_batches(
    fetched: Sequence[tuple[int, int]], first: int, last: int, batch_size: int
) -> Iterator[tuple[int, int]]:
    """Ranges of about ``batch_size`` offsets that end where record batches end; the last one ends at ``last``."""
    begin = first
    for _, batch_last in fetched:
        end = min(batch_last, last)
        if end < begin:
            continue
        if end - begin + 1 >= batch_size or end == last:
            yield begin, end
            begin = end + 1
        if begin > last:
            return
    if begin <= last:
        yield begin, last
