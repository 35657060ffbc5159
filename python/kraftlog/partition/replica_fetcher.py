"""The decisions of a replica fetcher: what to ask a leader for, and what its answers mean (KIP-101, 227, 279, 595).

One fetcher follows one leader for many partitions. Calls tell it what happened, values say what to do; it knows neither
connections nor logs. Offsets are of records, ends exclusive; times are milliseconds of one clock.

A partition is always in one of these states:

    FETCHING    named in fetches, unless it is delayed
    CUTTING     its log is being truncated, begun anew or made durable
    ASKING      the leader is asked for its ends, as the fetch offset lies outside of its log
    FAILED      left alone until the metadata brings a new leader epoch
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid

__all__ = [
    "Answer",
    "Asked",
    "FetchRound",
    "FetchStart",
    "FetcherState",
    "Next",
    "NextStep",
    "ReplicaFetcher",
    "truncation_offset",
]

PartitionKey = tuple[Uuid, int]

_NO_SESSION = 0
_FIRST_EPOCH = 0
_EPOCH_MAX = 2**31 - 1
_UNKNOWN = -1


class FetcherState(Enum):
    """What a partition of a fetcher is doing."""

    FETCHING = "fetching"
    CUTTING = "cutting"
    ASKING = "asking"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchStart:
    """A partition as its log stands when it begins to follow.

    Attributes:
        last_epoch: Epoch of the last record, -1 while the log has no epochs.
        is_acknowledgeable: Whether a fetch may name the end of the log. With ``log.flush.on.ack`` that is so once
            everything is durable; what this broker appended while it led may not be.
    """

    key: PartitionKey
    leader_epoch: int
    log_end_offset: int
    log_start_offset: int
    high_watermark: int
    last_epoch: int
    is_acknowledgeable: bool = True


class Asked(NamedTuple):
    """One partition of a fetch request."""

    key: PartitionKey
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FetchRound(NamedTuple):
    """A fetch request.

    Attributes:
        session_epoch: 0 opens a session, and names every partition then.
        partitions: Those that are new to the session, or stand elsewhere than it knows.
        forgotten: Those that leave the session.
    """

    session_id: int
    session_epoch: int
    partitions: Sequence[Asked]
    forgotten: Sequence[PartitionKey]


class Answer(NamedTuple):
    """What a leader answered for one partition; ``position`` finds its records at the caller."""

    key: PartitionKey
    error_code: int
    high_watermark: int
    diverging_epoch: tuple[int, int] | None = None
    position: int = 0


class NextStep(Enum):
    """What has to be done for a partition."""

    APPEND = "append"
    """Append the records of the answer, even if there are none, and take the leader's offsets over."""
    DIVERGED = "diverged"
    """Truncate to :func:`truncation_offset` of ``epoch`` and ``offset``."""
    TRUNCATE = "truncate"
    """Truncate to ``offset``."""
    FLUSH = "flush"
    """Make the log durable."""
    RESTART = "restart"
    """Drop everything and begin at ``offset``."""
    ASK_END = "ask end"
    """Ask the leader for its latest offset."""
    ASK_START = "ask start"
    """Ask the leader for its earliest offset."""


class Next(NamedTuple):
    """One thing to do; ``position`` is that of the answer."""

    step: NextStep
    key: PartitionKey
    leader_epoch: int
    offset: int = -1
    epoch: int = -1
    position: int = 0


@dataclass(slots=True)
class _Partition:
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    rank: int
    state: FetcherState = FetcherState.FETCHING
    delayed_until_ms: int | None = None
    lag: int | None = None

    @property
    def is_ready(self) -> bool:
        return self.state is FetcherState.FETCHING and self.delayed_until_ms is None

    def asked(self, key: PartitionKey) -> Asked:
        return Asked(key, self.leader_epoch, self.fetch_offset, self.last_fetched_epoch, self.log_start_offset)


class ReplicaFetcher:
    """Follows one leader.

    A round costs what changed since the last one, however many partitions are followed.

    Args:
        backoff_ms: replica.fetch.backoff.ms.
    """

    def __init__(self, backoff_ms: int) -> None:
        self._backoff_ms = backoff_ms
        # In the order in which the leader is to serve them.
        self._partitions: dict[PartitionKey, _Partition] = {}
        # Ranks ascend in that order.
        self._next_rank = 0
        # May differ from what the leader has in its session: the next round looks at them.
        self._touched: set[PartitionKey] = set()
        self._delayed: set[PartitionKey] = set()
        self._held: set[PartitionKey] = set()
        self._session_id = _NO_SESSION
        self._session_epoch = _FIRST_EPOCH
        # As the leader has them in its session.
        self._told: dict[PartitionKey, Asked] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(list(self._partitions))

    def __contains__(self, key: object) -> bool:
        return key in self._partitions

    def state(self, key: PartitionKey) -> FetcherState:
        """What a partition is doing."""
        return self._partitions[key].state

    def leader_epoch(self, key: PartitionKey) -> int | None:
        """The epoch that a partition is fetched under; None for one that is not here."""
        found = self._partitions.get(key)
        return None if found is None else found.leader_epoch

    def lag(self, key: PartitionKey) -> int | None:
        """Committed records that a partition does not have yet; None before its first answer."""
        return self._partitions[key].lag

    @property
    def failed_count(self) -> int:
        """Partitions that are left alone until they get a new leader epoch."""
        return sum(partition.state is FetcherState.FAILED for partition in list(self._partitions.values()))

    @property
    def max_lag(self) -> int:
        """The largest lag of any partition."""
        return max((partition.lag or 0 for partition in list(self._partitions.values())), default=0)

    # -- partitions ----------------------------------------------------------------------------------------------

    def add(self, start: FetchStart) -> Next | None:
        """Follow a partition; one that is followed in the same leader epoch goes on as it is (RFET-22).

        A log without epochs is cut to its high watermark first, without a question to the leader (RFET-21). One that is
        not acknowledgeable yet is flushed first.
        """
        known = self._partitions.get(start.key)
        if known is not None and known.leader_epoch == start.leader_epoch:
            return None
        partition = _Partition(
            start.leader_epoch,
            start.log_end_offset,
            start.last_epoch,
            start.log_start_offset,
            self._take_rank() if known is None else known.rank,
        )
        self._partitions[start.key] = partition
        self._touched.add(start.key)
        if start.last_epoch >= 0 or start.high_watermark >= start.log_end_offset:
            if start.is_acknowledgeable:
                return None
            self._enter(start.key, partition, FetcherState.CUTTING)
            return Next(NextStep.FLUSH, start.key, start.leader_epoch)
        self._enter(start.key, partition, FetcherState.CUTTING)
        return Next(NextStep.TRUNCATE, start.key, start.leader_epoch, start.high_watermark)

    def remove(self, key: PartitionKey) -> None:
        """Follow a partition no more."""
        self._partitions.pop(key, None)
        self._touched.add(key)

    def _take_rank(self) -> int:
        self._next_rank += 1
        return self._next_rank

    def _enter(self, key: PartitionKey, partition: _Partition, state: FetcherState) -> None:
        partition.state = state
        self._touched.add(key)

    # -- requests ------------------------------------------------------------------------------------------------

    def next_round(self, now_ms: int, held: Collection[PartitionKey] = ()) -> FetchRound | None:
        """The next request, or None while there is nothing to ask for and nothing to be forgotten (RFET-19).

        Args:
            now_ms: The time.
            held: Throttled partitions whose rate is exceeded: those that are not caught up are left out (RFET-74).
        """
        self._end_delays(now_ms)
        behind = {key for key in held if key in self._partitions and self._partitions[key].lag != 0}
        self._touched |= behind ^ self._held
        self._held = behind
        if self._session_epoch == _FIRST_EPOCH:
            return self._full_round()
        changed: list[tuple[int, Asked]] = []
        forgotten: list[PartitionKey] = []
        for key in self._touched:
            partition = self._partitions.get(key)
            if partition is not None and partition.is_ready and key not in behind:
                asked = partition.asked(key)
                if self._told.get(key) != asked:
                    self._told[key] = asked
                    changed.append((partition.rank, asked))
            elif self._told.pop(key, None) is not None:
                forgotten.append(key)
        self._touched.clear()
        forgotten.sort()
        if not self._told and not forgotten:
            return None
        changed.sort(key=lambda ranked: ranked[0])
        return FetchRound(self._session_id, self._session_epoch, [asked for _, asked in changed], forgotten)

    def _full_round(self) -> FetchRound | None:
        ready = {
            key: partition.asked(key)
            for key, partition in self._partitions.items()
            if partition.is_ready and key not in self._held
        }
        if not ready:
            return None
        self._told = ready
        self._touched.clear()
        return FetchRound(self._session_id, _FIRST_EPOCH, list(ready.values()), ())

    def _end_delays(self, now_ms: int) -> None:
        """Let those go on whose delay is over; one that is cut or asked about meanwhile keeps it until then."""
        for key in list(self._delayed):
            partition = self._partitions.get(key)
            if partition is None or partition.delayed_until_ms is None:
                self._delayed.discard(key)
            elif partition.state is FetcherState.FETCHING and now_ms >= partition.delayed_until_ms:
                partition.delayed_until_ms = None
                self._delayed.discard(key)
                self._touched.add(key)

    def next_wakeup_ms(self) -> int | None:
        """When a delayed partition is due; None if there is none."""
        found = (self._partitions.get(key) for key in self._delayed)
        return min(
            (
                partition.delayed_until_ms
                for partition in found
                if partition is not None
                and partition.state is FetcherState.FETCHING
                and partition.delayed_until_ms is not None
            ),
            default=None,
        )

    # -- answers -------------------------------------------------------------------------------------------------

    def handle_failure(self, now_ms: int) -> None:
        """No answer came: everything is delayed, and the session closed with the next request (RFET-69)."""
        self._session_epoch = _FIRST_EPOCH
        for key in self._told:
            self._delay(key, now_ms)

    def handle_refusal(self, error_code: int, now_ms: int) -> None:
        """The leader refused the request as a whole (RFET-11)."""
        self._session_epoch = _FIRST_EPOCH
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = _NO_SESSION
        elif error_code != ErrorCode.INVALID_FETCH_SESSION_EPOCH:
            for key in self._told:
                self._delay(key, now_ms)

    def handle_answer(self, session_id: int, answers: Sequence[Answer], now_ms: int) -> list[Next]:
        """What to do next, in the order of the answers.

        Answers of a partition that changed since it was asked for are dropped (RFET-26); an answer that does not fit
        the session is dropped whole, and the session begins anew (RFET-12).
        """
        was_full = self._session_epoch == _FIRST_EPOCH
        named = {answer.key for answer in answers}
        if not self._told.keys() >= named or (was_full and named != self._told.keys()):
            self._session_id, self._session_epoch = session_id or self._session_id, _FIRST_EPOCH
            return []
        self._advance_session(session_id, was_full=was_full)
        steps: list[Next] = []
        for answer in answers:
            partition = self._partitions.get(answer.key)
            if partition is None or not self._is_expected(answer.key, partition):
                continue
            step = self._next_step(partition, answer, now_ms)
            if step is not None:
                steps.append(step)
        return steps

    def _advance_session(self, session_id: int, *, was_full: bool) -> None:
        if was_full:
            self._session_id = session_id
            self._session_epoch = 1 if session_id else _FIRST_EPOCH
        elif session_id != self._session_id:
            # The leader has closed it, as nothing is left in it.
            self._session_id, self._session_epoch = session_id, _FIRST_EPOCH
        else:
            self._session_epoch = 1 if self._session_epoch == _EPOCH_MAX else self._session_epoch + 1

    def _is_expected(self, key: PartitionKey, partition: _Partition) -> bool:
        return partition.is_ready and self._told[key] == partition.asked(key)

    def _next_step(self, partition: _Partition, answer: Answer, now_ms: int) -> Next | None:
        key, epoch = answer.key, partition.leader_epoch
        match answer.error_code:
            case ErrorCode.NONE if answer.diverging_epoch is not None:
                self._enter(key, partition, FetcherState.CUTTING)
                diverging, end_offset = answer.diverging_epoch
                return Next(NextStep.DIVERGED, key, epoch, end_offset, diverging, answer.position)
            case ErrorCode.NONE:
                partition.lag = max(0, answer.high_watermark - partition.fetch_offset)
                return Next(NextStep.APPEND, key, epoch, partition.fetch_offset, position=answer.position)
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                self._enter(key, partition, FetcherState.ASKING)
                return Next(NextStep.ASK_END, key, epoch)
            case ErrorCode.FENCED_LEADER_EPOCH:
                self._enter(key, partition, FetcherState.FAILED)
            case _:
                self._delay(key, now_ms)
        return None

    def _delay(self, key: PartitionKey, now_ms: int) -> None:
        """Pause a partition; a pause that has begun is not prolonged (RFET-68)."""
        partition = self._partitions.get(key)
        if partition is not None and partition.delayed_until_ms is None:
            partition.delayed_until_ms = now_ms + self._backoff_ms
            self._delayed.add(key)
            self._touched.add(key)

    # -- what became of it ---------------------------------------------------------------------------------------

    def _current(self, key: PartitionKey, leader_epoch: int) -> _Partition | None:
        partition = self._partitions.get(key)
        return partition if partition is not None and partition.leader_epoch == leader_epoch else None

    def on_appended(
        self, key: PartitionKey, leader_epoch: int, *, log_end_offset: int, log_start_offset: int, last_epoch: int
    ) -> None:
        """The records of an answer are in the log. One that had some is served last next time (RFET-18)."""
        partition = self._current(key, leader_epoch)
        if partition is None:
            return
        self._touched.add(key)
        partition.log_start_offset = log_start_offset
        if log_end_offset != partition.fetch_offset:
            partition.lag = max(0, (partition.lag or 0) - (log_end_offset - partition.fetch_offset))
            partition.fetch_offset = log_end_offset
            self._partitions[key] = self._partitions.pop(key)
            partition.rank = self._take_rank()
        partition.last_fetched_epoch = last_epoch

    def on_cut(self, key: PartitionKey, leader_epoch: int, *, log_end_offset: int, last_epoch: int) -> None:
        """The log was truncated, begun anew or made durable: fetch from its end."""
        partition = self._current(key, leader_epoch)
        if partition is None:
            return
        partition.fetch_offset = log_end_offset
        partition.last_fetched_epoch = last_epoch
        partition.log_start_offset = min(partition.log_start_offset, log_end_offset)
        self._enter(key, partition, FetcherState.FETCHING)

    def on_damaged(self, key: PartitionKey, leader_epoch: int, now_ms: int) -> None:
        """The records were damaged, nothing was appended: ask again later (RFET-37)."""
        if self._current(key, leader_epoch) is not None:
            self._delay(key, now_ms)

    def on_failed(self, key: PartitionKey, leader_epoch: int) -> None:
        """The log takes neither records nor truncations of this leader (RFET-38, RFET-40)."""
        partition = self._current(key, leader_epoch)
        if partition is not None:
            self._enter(key, partition, FetcherState.FAILED)

    def handle_leader_end(
        self, key: PartitionKey, leader_epoch: int, *, error_code: int, offset: int, log_end_offset: int, now_ms: int
    ) -> Next | None:
        """The leader's latest offset, or why it does not say (RFET-60, RFET-63)."""
        partition = self._current(key, leader_epoch)
        if partition is None or partition.state is not FetcherState.ASKING:
            return None
        if error_code:
            self._ask_again(key, partition, error_code, now_ms)
            return None
        if offset < log_end_offset:
            self._enter(key, partition, FetcherState.CUTTING)
            return Next(NextStep.TRUNCATE, key, leader_epoch, offset)
        return Next(NextStep.ASK_START, key, leader_epoch)

    def handle_leader_start(
        self, key: PartitionKey, leader_epoch: int, *, error_code: int, offset: int, log_end_offset: int, now_ms: int
    ) -> Next | None:
        """The leader's earliest offset, or why it does not say (RFET-61, RFET-62)."""
        partition = self._current(key, leader_epoch)
        if partition is None or partition.state is not FetcherState.ASKING:
            return None
        if error_code:
            self._ask_again(key, partition, error_code, now_ms)
            return None
        if offset > log_end_offset:
            self._enter(key, partition, FetcherState.CUTTING)
            return Next(NextStep.RESTART, key, leader_epoch, offset)
        self._enter(key, partition, FetcherState.FETCHING)
        partition.fetch_offset = log_end_offset
        return None

    def _ask_again(self, key: PartitionKey, partition: _Partition, error_code: int, now_ms: int) -> None:
        if error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._enter(key, partition, FetcherState.FAILED)
            return
        self._enter(key, partition, FetcherState.FETCHING)
        self._delay(key, now_ms)


def truncation_offset(
    *, diverging_epoch: int, leader_end: int, own_end: tuple[int, int], log_end_offset: int, fetch_offset: int
) -> int:
    """Where to truncate after a divergence (Kafka 4.3.1, ``AbstractFetcherThread.getOffsetTruncationState``).

    Args:
        diverging_epoch: The largest epoch of the leader not above that of the follower's last record.
        leader_end: Where it ends there; -1 when the leader cannot tell.
        own_end: The largest own epoch not above ``diverging_epoch``, and its end; (-1, -1) when there is none.
        log_end_offset: Of the follower.
        fetch_offset: Where fetching began, the high watermark: used if the leader cannot tell (RFET-58).
    """
    if leader_end == _UNKNOWN:
        return fetch_offset
    own_epoch, own_offset = own_end
    if _UNKNOWN in {diverging_epoch, own_epoch}:
        return min(leader_end, log_end_offset)
    if own_epoch != diverging_epoch:
        # The leader does not have that epoch either, or ends it elsewhere: the next fetch settles it (KIP-279).
        return min(own_offset, log_end_offset)
    return min(own_offset, leader_end, log_end_offset)
