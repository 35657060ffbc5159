"""Share partitions under a hand-driven clock: acquiring, acknowledging, lock time-outs and what is stored."""

from __future__ import annotations

import pytest

from kraftlog.coordinator.share.share_partition import (
    Acknowledgement,
    AcquireLimits,
    SharePartition,
    SharePartitionSettings,
)
from kraftlog.coordinator.share.state_batches import StateBatch
from kraftlog.errors import ErrorCode, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
Ranges = list[tuple[int, int, int]]


class Share:
    """A share partition whose writes succeed at once, unless ``held``."""

    def __init__(self, start: int = 0, stored: list[StateBatch] | None = None, **settings: int | bool) -> None:
        self.settings = SharePartitionSettings(**settings)  # type: ignore[arg-type]
        self.core = SharePartition(lambda: self.settings, start, stored or ())
        self.written: list[tuple[int, int, list[tuple[int, int, int, int]]]] = []
        self.held: list[int] | None = None
        self.error = 0

    def fetch(self, member: str, *batches: tuple[int, int], now: int = 0, **limits: int | bool) -> Ranges:
        values = {"max_records": 500, "batch_size": 500} | limits
        acquired = self.core.acquire(member, batches, AcquireLimits(**values), now)  # type: ignore[arg-type]
        return [(part.first, part.last, part.delivery_count) for part in acquired]

    def say(self, member: str, first: int, last: int, *types: int, now: int = 0) -> int:
        try:
            self.core.acknowledge(member, [Acknowledgement(first, last, types)], now)
        except KafkaError as error:
            return error.code
        self.run()
        return 0

    def run(self) -> None:
        for write in self.core.take_writes():
            batches = [(b.first, b.last, b.state, b.delivery_count) for b in write.batches]
            self.written.append((write.start_offset, write.complete_count, batches))
            if self.held is not None:
                self.held.append(write.write_id)
            else:
                self.core.on_written(write.write_id, self.error)

    def time(self, now: int) -> None:
        self.core.handle_timeout(now)
        self.run()

    @property
    def window(self) -> tuple[int, int]:
        return self.core.start_offset, self.core.next_offset


# -- acquiring ---------------------------------------------------------------------------------------------------------


def test_acquired_records_go_to_nobody_else() -> None:
    """SHGR-29, SHGR-30."""
    s = Share()
    assert s.fetch("A", (0, 9)) == [(0, 9, 1)]
    assert s.fetch("B", (0, 9)) == []
    assert s.core.fetch_offset() == 10
    assert s.fetch("B", (10, 14)) == [(10, 14, 1)]
    assert s.say("A", 0, 9, RELEASE) == 0
    assert s.core.fetch_offset() == 0
    assert s.fetch("B", (0, 9), (10, 14)) == [(0, 9, 2)]


def test_the_number_of_records_is_exceeded_to_the_end_of_a_batch_or_never() -> None:
    """SHGR-31."""
    batches = ((0, 9), (10, 19), (20, 29))
    assert Share().fetch("A", *batches, max_records=12) == [(0, 19, 1)]
    strict = Share()
    assert strict.fetch("A", *batches, max_records=12, is_strict=True) == [(0, 11, 1)]
    assert strict.core.fetch_offset() == 12
    assert strict.fetch("A", (10, 19), (20, 29), max_records=3, is_strict=True) == [(12, 14, 1)]


def test_ranges_are_cut_where_a_batch_reaches_the_batch_size() -> None:
    """SHGR-32."""
    batches = tuple((first, first + 4) for first in range(0, 30, 5))
    assert Share().fetch("A", *batches, batch_size=8) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]
    assert Share().fetch("A", *batches, batch_size=1, max_records=7) == [(0, 4, 1), (5, 9, 1)]


def test_a_full_window_gives_only_what_was_released_within() -> None:
    """SHGR-33."""
    s = Share(max_locks=10)
    assert s.fetch("A", (0, 4), (5, 9), (10, 14)) == [(0, 9, 1)]
    assert s.core.fetch_offset() is None
    assert s.fetch("B", (10, 14)) == []
    s.say("A", 3, 6, RELEASE)
    assert s.core.fetch_offset() == 3
    assert s.fetch("B", (0, 4), (5, 9), (10, 14)) == [(3, 6, 2)]
    s.say("A", 0, 2, ACCEPT)
    assert (s.window, s.core.fetch_offset()) == ((3, 10), 10)


def test_a_record_that_fails_again_and_again_is_delivered_in_smaller_pieces() -> None:
    """SHGR-36."""
    s = Share(delivery_limit=6)
    seen = []
    for attempt in range(5):
        (acquired,) = s.fetch("A", (0, 15), now=attempt)
        seen.append(acquired)
        s.say("A", acquired[0], acquired[1], RELEASE)
    assert seen == [(0, 15, 1), (0, 15, 2), (0, 15, 3), (0, 7, 4), (0, 1, 5)]
    assert s.fetch("A", (0, 15)) == [(0, 0, 6)]


def test_a_range_covers_offsets_that_no_batch_has() -> None:
    """SHGR-37."""
    s = Share()
    assert s.fetch("A", (0, 4), (8, 9)) == [(0, 9, 1)]
    assert s.say("A", 0, 9, *([ACCEPT] * 5 + [GAP] * 3 + [ACCEPT] * 2)) == 0
    assert s.window == (10, 10)
    assert s.fetch("A", (15, 16)) == [(15, 16, 1)]
    assert s.window == (15, 17)
    assert s.fetch("A", (20, 20)) == [(20, 20, 1)]
    s.say("A", 15, 16, ACCEPT)
    assert s.window == (20, 21)


def test_records_of_aborted_transactions_end_without_delivery() -> None:
    """SHGR-35."""
    s = Share()
    limits = AcquireLimits(max_records=500, batch_size=500)
    acquired = s.core.acquire("A", [(0, 2), (3, 5), (6, 6)], limits, 0, aborted=[(0, 2), (4, 4)])
    assert [(part.first, part.last) for part in acquired] == [(3, 3), (5, 6)]
    assert s.window == (3, 7)


# -- acknowledging -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "state", "is_again"),
    [(GAP, ARCHIVED, False), (ACCEPT, ACKNOWLEDGED, False), (RELEASE, AVAILABLE, True), (REJECT, ARCHIVED, False)],
)
def test_each_type_leads_to_its_state_which_is_stored(kind: int, state: int, is_again: bool) -> None:
    """SHGR-39, SHGR-50."""
    s = Share()
    s.fetch("A", (0, 4))
    assert s.say("A", 0, 4, kind) == 0
    assert s.written == [(0, 0 if is_again else 5, [(0, 4, state, 1)])]
    assert s.fetch("B", (0, 4)) == ([(0, 4, 2)] if is_again else [])
    assert s.say("A", 0, 4, ACCEPT) == ErrorCode.INVALID_RECORD_STATE


def test_each_offset_may_have_its_own_type() -> None:
    """SHGR-39, SHGR-49."""
    s = Share()
    s.fetch("A", (0, 9))
    assert s.say("A", 0, 4, ACCEPT, RELEASE, REJECT, ACCEPT, ACCEPT) == 0
    assert s.written == [(0, 4, [(0, 0, 2, 1), (1, 1, 0, 1), (2, 2, 4, 1), (3, 4, 2, 1)])]
    assert s.window == (1, 10)
    assert s.fetch("B", (0, 9)) == [(1, 1, 2)]
    assert s.say("B", 1, 1, ACCEPT) == 0
    assert s.window == (5, 10)


def test_wrong_acknowledgements_change_nothing() -> None:
    """SHGR-43, SHGR-44."""
    s = Share(start=5)
    s.fetch("A", (5, 9))
    s.fetch("B", (10, 14))
    assert s.say("A", 10, 14, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert s.say("A", 5, 14, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert s.say("A", 9, 15, ACCEPT) == ErrorCode.INVALID_REQUEST
    assert s.say("A", 0, 3, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    with pytest.raises(KafkaError):
        s.core.acknowledge("A", [Acknowledgement(5, 6, [ACCEPT]), Acknowledgement(10, 10, [ACCEPT])], 0)
    assert (s.written, s.window) == ([], (5, 15))
    s.say("A", 8, 9, ACCEPT)
    assert s.say("A", 8, 8, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    s.say("A", 5, 6, ACCEPT)
    written = len(s.written)
    assert (s.say("A", 5, 6, ACCEPT), len(s.written), s.window) == (0, written, (7, 15))


def test_renewing_begins_the_lock_anew_and_stores_nothing() -> None:
    """SHGR-41."""
    s = Share(lock_ms=100)
    s.fetch("A", (0, 4))
    assert s.say("A", 0, 4, RENEW, now=90) == 0
    s.time(150)
    assert s.fetch("B", (0, 4)) == []
    s.time(190)
    assert s.fetch("B", (0, 4)) == [(0, 4, 2)]
    off = Share(is_renewable=False)
    off.fetch("A", (0, 4))
    assert off.say("A", 0, 4, RENEW) == ErrorCode.INVALID_RECORD_STATE


def test_the_last_delivery_ends_in_the_archive() -> None:
    """SHGR-46."""
    s = Share(delivery_limit=2, lock_ms=100)
    s.fetch("A", (0, 0))
    s.say("A", 0, 0, RELEASE)
    s.fetch("A", (0, 0), (1, 1))
    s.say("A", 0, 0, RELEASE)
    assert s.written[-1][2] == [(0, 0, ARCHIVED, 2)]
    late = Share(delivery_limit=2, lock_ms=100)
    for now in (0, 100):
        assert late.fetch("A", (0, 0), now=now)
        late.time(now + 100)
    assert (late.written[-1][2], late.fetch("A", (0, 0))) == ([(0, 0, ARCHIVED, 2)], [])
    assert late.window == (1, 1)


def test_a_lock_that_ends_makes_records_available_and_late_answers_invalid() -> None:
    """SHGR-47."""
    s = Share(lock_ms=100)
    s.fetch("A", (0, 4), now=5)
    s.time(104)
    assert s.fetch("B", (0, 4)) == []
    assert s.core.next_timeout_ms() == 105
    s.time(105)
    assert s.written == [(0, 0, [(0, 4, AVAILABLE, 1)])]
    assert s.say("A", 0, 4, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert s.fetch("B", (0, 4), now=105) == [(0, 4, 2)]


@pytest.mark.parametrize(("timed_out", "again"), [(False, []), (True, [(0, 4, 2)])])
def test_states_go_back_when_they_cannot_be_stored(timed_out: bool, again: Ranges) -> None:
    """SHGR-48."""
    s = Share(lock_ms=100)
    s.held = []
    s.fetch("A", (0, 4))
    s.say("A", 0, 4, ACCEPT)
    assert s.say("A", 0, 4, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert s.fetch("B", (0, 4)) == []
    if timed_out:
        s.time(100)
    s.core.on_written(s.held[0], ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert s.window == (0, 5)
    assert s.fetch("B", (0, 4), now=100) == again
    s.held = None
    assert s.say("B" if again else "A", 0, 4, ACCEPT) == 0
    assert s.window == (5, 5)


def test_what_ends_in_between_stays_until_the_lowest_record_ends() -> None:
    """SHGR-49."""
    s = Share()
    s.fetch("A", (0, 9))
    s.say("A", 4, 6, ACCEPT)
    assert (s.window, s.core.complete_count) == ((0, 10), 3)
    s.say("A", 0, 3, ACCEPT)
    assert (s.window, s.core.complete_count) == ((7, 10), 0)


def test_a_member_that_goes_gives_its_records_back() -> None:
    """SHGR-23."""
    s = Share()
    s.fetch("A", (0, 4))
    s.fetch("B", (5, 9))
    s.say("A", 0, 1, ACCEPT)
    s.core.release("A")
    s.run()
    assert s.written[-1][2] == [(2, 4, AVAILABLE, 1)]
    assert s.fetch("C", (0, 4), (5, 9)) == [(2, 4, 2)]


# -- the log, and what is stored ---------------------------------------------------------------------------------------


def test_the_start_follows_the_log_and_acquired_records_end_as_ever() -> None:
    """SHGR-38."""
    s = Share(lock_ms=100)
    s.fetch("A", (0, 9))
    s.say("A", 0, 2, RELEASE)
    s.core.log_start_moved(5)
    assert (s.window, s.core.fetch_offset()) == ((5, 10), 10)
    assert s.say("A", 3, 9, ACCEPT) == 0
    assert s.window == (10, 10)
    s.core.log_start_moved(20)
    assert s.window == (20, 20)


def test_stored_states_come_back_and_what_was_not_stored_is_fetched() -> None:
    """SHGR-54."""
    stored = [StateBatch(12, 14, ACKNOWLEDGED, 1), StateBatch(18, 19, AVAILABLE, 3)]
    s = Share(10, stored)
    assert (s.window, s.core.fetch_offset()) == ((10, 20), 10)
    assert s.fetch("A", (10, 21), is_strict=True, max_records=5) == [(10, 11, 1), (15, 17, 1)]
    assert s.say("A", 10, 11, ACCEPT) == 0
    assert s.window == (15, 20)


@pytest.mark.parametrize("batch", [StateBatch(4, 6, 0, 1), StateBatch(9, 8, 0, 1)])
def test_impossible_stored_states_are_refused(batch: StateBatch) -> None:
    """SHGR-55."""
    with pytest.raises(ValueError, match="invalid state batch"):
        Share(5, [batch])


def test_one_offset_in_two_batches_of_a_request_is_refused_and_a_renewal_before_is_not() -> None:
    """SHGR-43: the record is not acquired any more when the second batch comes; before, offsets 0 to 4 got stuck."""
    s = Share()
    s.fetch("A", (0, 9))

    def acknowledge(*acknowledgements: tuple[int, int, int]) -> int:
        batches = [Acknowledgement(first, last, (kind,)) for first, last, kind in acknowledgements]
        try:
            s.core.acknowledge("A", batches, 0)
        except KafkaError as error:
            return error.code
        s.run()
        return 0

    assert acknowledge((0, 5, ACCEPT), (5, 9, REJECT)) == ErrorCode.INVALID_RECORD_STATE
    assert (s.written, s.window) == ([], (0, 10))
    assert acknowledge((0, 5, RENEW), (5, 9, ACCEPT)) == 0
    assert acknowledge((0, 4, ACCEPT)) == 0
    assert s.window == (10, 10)


def test_a_batch_that_begins_below_a_moved_start_ends_what_is_left_of_it() -> None:
    """SHGR-38, SHGR-43: batches below the start are forgotten; ranges of any length cost nothing."""
    s = Share()
    s.fetch("A", (0, 9))
    s.fetch("A", (10, 19))
    assert s.say("A", 0, 9, ACCEPT) == 0
    assert s.window == (10, 20)
    assert s.say("A", 0, 19, ACCEPT) == 0
    assert s.window == (20, 20)
    for first, last in ((0, 2**63 - 1), (2**63 - 1, 2**63 - 1), (20, 20)):
        assert s.say("A", first, last, ACCEPT) == ErrorCode.INVALID_REQUEST
    assert s.say("A", 3, 5, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
