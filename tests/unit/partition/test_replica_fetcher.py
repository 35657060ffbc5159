"""The decisions of a replica fetcher, with plain values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.partition.replica_fetcher import (
    Answer,
    Asked,
    FetcherState,
    FetchRound,
    FetchStart,
    Next,
    NextStep,
    ReplicaFetcher,
    truncation_offset,
)
from kraftlog.types import Uuid

BACKOFF_MS = 1_000
A, B, C = ((Uuid(bytes([number] * 16)), 0) for number in (1, 2, 3))


def start(key=A, *, epoch=5, end=10, last_epoch=4, high_watermark=10, log_start=0):
    return FetchStart(
        key=key,
        leader_epoch=epoch,
        log_end_offset=end,
        log_start_offset=log_start,
        high_watermark=high_watermark,
        last_epoch=last_epoch,
    )


def fetcher(*starts):
    one = ReplicaFetcher(BACKOFF_MS)
    for begun in starts or (start(),):
        one.add(begun)
    return one


def answer(key=A, code=0, *, high_watermark=10, diverging=None, position=0):
    return Answer(key=key, error_code=code, high_watermark=high_watermark, diverging_epoch=diverging, position=position)


def opened(one, *keys, session_id=77):
    """The first, full round is answered without news."""
    assert one.next_round(0) is not None
    steps = one.handle_answer(session_id, [answer(key) for key in keys or one], 0)
    for step in steps:
        one.on_appended(step.key, step.leader_epoch, log_end_offset=10, log_start_offset=0, last_epoch=4)
    return one


def test_log_of_a_former_leader_is_made_durable_before_its_end_is_fetched():
    """RINV-02: a fetch acknowledges what is before its offset, for ``log.flush.on.ack`` durably."""
    one = ReplicaFetcher(BACKOFF_MS)
    assert one.add(replace(start(), is_acknowledgeable=False)) == Next(NextStep.FLUSH, A, 5)
    assert one.next_round(0) is None
    one.on_cut(A, 4, log_end_offset=10, last_epoch=4)
    assert one.next_round(0) is None, "of an earlier epoch"
    one.on_cut(A, 5, log_end_offset=10, last_epoch=4)
    assert one.next_round(0) == FetchRound(0, 0, [Asked(A, 5, 10, 4, 0)], ())


def test_first_round_names_everything_and_later_ones_what_changed():
    """RFET-07, RFET-08, RFET-09."""
    one = fetcher(start(A), start(B, end=7, last_epoch=-1, high_watermark=7))
    first = one.next_round(0)
    assert first == FetchRound(0, 0, [Asked(A, 5, 10, 4, 0), Asked(B, 5, 7, -1, 0)], ())
    steps = one.handle_answer(77, [answer(A, position=0), answer(B, position=1)], 0)
    assert [(step.step, step.key, step.offset, step.position) for step in steps] == [
        (NextStep.APPEND, A, 10, 0),
        (NextStep.APPEND, B, 7, 1),
    ]
    one.on_appended(A, 5, log_end_offset=15, log_start_offset=2, last_epoch=5)
    one.on_appended(B, 5, log_end_offset=7, log_start_offset=0, last_epoch=-1)
    assert one.next_round(0) == FetchRound(77, 1, [Asked(A, 5, 15, 5, 2)], [])
    one.handle_answer(77, [], 0)
    one.remove(B)
    assert one.next_round(0) == FetchRound(77, 2, [], [B])


def test_topic_created_again_is_forgotten_and_named_in_one_request():
    """RFET-10: the new id of a topic is another partition."""
    one = opened(fetcher(start(A)), A)
    one.remove(A)
    one.add(start(B, epoch=0, end=0, last_epoch=0, high_watermark=0))
    assert one.next_round(0) == FetchRound(77, 1, [Asked(B, 0, 0, 0, 0)], [A])


def test_session_epoch_after_the_largest_is_one():
    """RFET-08."""
    one = opened(fetcher())
    one._session_epoch = 2**31 - 1
    assert one.next_round(0).session_epoch == 2**31 - 1
    one.handle_answer(77, [], 0)
    assert one.next_round(0).session_epoch == 1


def test_leader_without_a_free_session_is_asked_in_full_each_time():
    one = fetcher()
    one.next_round(0)
    one.handle_answer(0, [answer()], 0)
    assert one.next_round(0).session_epoch == 0
    assert len(one.next_round(0).partitions) == 1


@pytest.mark.parametrize(
    ("code", "session_id", "is_delayed"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, False),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77, False),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 77, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 77, True),
    ],
)
def test_refused_request_is_followed_by_a_full_one(code, session_id, is_delayed):
    """RFET-11: the old id lets the leader close its session."""
    one = opened(fetcher())
    one.next_round(0)
    one.handle_refusal(code, 0)
    assert (one.next_round(0) is None) is is_delayed
    later = one.next_round(BACKOFF_MS)
    assert (later.session_id, later.session_epoch, len(later.partitions)) == (session_id, 0, 1)


def test_answer_that_does_not_fit_the_session_is_dropped_whole():
    """RFET-12."""
    one = fetcher(start(A), start(B))
    one.next_round(0)
    assert one.handle_answer(77, [answer(A)], 0) == [], "a full answer names everything"
    assert one.next_round(0).session_epoch == 0
    one = opened(fetcher(start(A), start(B)))
    one.next_round(0)
    assert one.handle_answer(77, [answer(A), answer(C)], 0) == []
    assert (one.next_round(0).session_id, one.next_round(0).session_epoch) == (77, 0)


def test_partition_with_data_is_served_last():
    """RFET-18."""
    one = opened(fetcher(start(A), start(B)))
    one.on_appended(A, 5, log_end_offset=11, log_start_offset=0, last_epoch=5)
    assert list(one) == [B, A]


def test_nothing_to_ask_is_no_request():
    """RFET-19."""
    one = fetcher()
    one.next_round(0)
    one.handle_answer(0, [answer(code=ErrorCode.UNKNOWN_LEADER_EPOCH)], 0)
    assert one.next_round(0) is None
    assert one.next_wakeup_ms() == BACKOFF_MS
    assert one.next_round(BACKOFF_MS) is not None


def test_log_with_epochs_is_fetched_at_once():
    """RINV-42, RFET-20: no question, no truncation."""
    one = ReplicaFetcher(BACKOFF_MS)
    assert one.add(start(high_watermark=3)) is None
    assert one.next_round(0).partitions[0].fetch_offset == 10


def test_log_without_epochs_is_cut_to_its_high_watermark_first():
    """RFET-21."""
    one = ReplicaFetcher(BACKOFF_MS)
    assert one.add(start(last_epoch=-1, high_watermark=3)) == Next(NextStep.TRUNCATE, A, 5, 3)
    assert one.state(A) is FetcherState.CUTTING
    assert one.next_round(0) is None
    one.on_cut(A, 5, log_end_offset=3, last_epoch=-1)
    assert one.next_round(0).partitions == [Asked(A, 5, 3, -1, 0)]


def test_added_again_in_the_same_epoch_goes_on():
    """LEPO-57, RFET-22."""
    one = opened(fetcher())
    one.next_round(0)
    one.handle_answer(77, [answer(code=ErrorCode.OFFSET_OUT_OF_RANGE)], 0)
    assert one.add(start(end=99)) is None
    assert one.state(A) is FetcherState.ASKING


def test_newer_epoch_begins_anew_and_clears_a_failure():
    """RINV-46, LEPO-51, RFET-23, RFET-25."""
    one = fetcher()
    one.next_round(0)
    one.handle_answer(77, [answer(code=ErrorCode.FENCED_LEADER_EPOCH)], 0)
    assert one.failed_count == 1
    assert one.next_round(BACKOFF_MS * 9) == FetchRound(77, 1, [], [A]), "RFET-66: left alone"
    one.handle_answer(0, [], 0)
    one.add(start(epoch=6, end=12))
    assert one.failed_count == 0
    assert one.next_round(0).partitions == [Asked(A, 6, 12, 4, 0)]


def test_answer_of_an_older_epoch_or_another_position_is_dropped():
    """LEPO-53, RFET-26, RFET-52."""
    one = fetcher()
    one.next_round(0)
    one.add(start(epoch=6))
    assert one.handle_answer(77, [answer()], 0) == []
    one = fetcher()
    one.next_round(0)
    one.remove(A)
    assert one.handle_answer(77, [answer(diverging=(3, 5))], 0) == []


def test_lag_is_known_from_the_first_answer_on():
    """RFET-28, RFET-29."""
    one = fetcher()
    assert one.lag(A) is None
    one.next_round(0)
    one.handle_answer(77, [answer(high_watermark=14)], 0)
    assert one.lag(A) == 4
    one.on_appended(A, 5, log_end_offset=13, log_start_offset=0, last_epoch=5)
    assert (one.lag(A), one.max_lag) == (1, 1)


def test_divergence_is_cut_before_anything_else():
    """LEPO-50, RFET-43, RFET-55: and asked about again, until nothing diverges."""
    one = fetcher()
    one.next_round(0)
    assert one.handle_answer(77, [answer(diverging=(3, 6))], 0) == [Next(NextStep.DIVERGED, A, 5, 6, 3, 0)]
    assert one.next_round(0) == FetchRound(77, 1, [], [A])
    one.handle_answer(0, [], 0)
    one.on_cut(A, 5, log_end_offset=6, last_epoch=3)
    assert one.next_round(0).partitions == [Asked(A, 5, 6, 3, 0)]
    steps = one.handle_answer(77, [answer(diverging=(2, 4))], 0)
    assert steps == [Next(NextStep.DIVERGED, A, 5, 4, 2, 0)]
    one.next_round(0)
    one.handle_answer(0, [], 0)
    one.on_cut(A, 5, log_end_offset=4, last_epoch=2)
    assert one.next_round(0).partitions == [Asked(A, 5, 4, 2, 0)]


@pytest.mark.parametrize(
    ("diverging", "leader_end", "own_end", "expected"),
    [
        (3, 6, (3, 8), 6),  # RFET-44
        (3, 6, (3, 4), 4),
        (3, 16, (3, 18), 10),
        (3, 6, (2, 5), 5),  # RFET-45
        (3, 6, (2, 12), 10),
        (3, 6, (3, 2), 2),  # RFET-46: all own epochs are later, the first begins at 2
        (3, 6, (-1, -1), 6),
        (3, -1, (3, 8), 9),  # RFET-47
        (-1, 6, (3, 8), 6),
    ],
)
def test_truncation_offset(diverging, leader_end, own_end, expected):
    """RINV-44, LEPO-47, LEPO-48, LEPO-49."""
    assert (
        truncation_offset(
            diverging_epoch=diverging, leader_end=leader_end, own_end=own_end, log_end_offset=10, fetch_offset=9
        )
        == expected
    )


def out_of_range(one):
    one.next_round(0)
    steps = one.handle_answer(77, [answer(code=ErrorCode.OFFSET_OUT_OF_RANGE)], 0)
    assert steps == [Next(NextStep.ASK_END, A, 5)]
    return one


def ends(one, offset, code=0):
    return one.handle_leader_end(A, 5, error_code=code, offset=offset, log_end_offset=10, now_ms=0)


def starts(one, offset, code=0):
    return one.handle_leader_start(A, 5, error_code=code, offset=offset, log_end_offset=10, now_ms=0)


def test_leader_that_ends_before_cuts():
    """LEPO-55, RFET-59, RFET-60, RFET-64."""
    assert ends(out_of_range(fetcher()), 7) == Next(NextStep.TRUNCATE, A, 5, 7)


def test_leader_that_starts_later_restarts():
    """LEPO-56, RFET-61."""
    one = out_of_range(fetcher())
    assert ends(one, 40) == Next(NextStep.ASK_START, A, 5)
    assert starts(one, 30) == Next(NextStep.RESTART, A, 5, 30)
    one.on_cut(A, 5, log_end_offset=30, last_epoch=-1)
    one.handle_answer(0, [], 0)
    assert one.state(A) is FetcherState.FETCHING


def test_offset_that_is_in_range_after_all_is_fetched_again():
    """RFET-62."""
    one = out_of_range(fetcher())
    ends(one, 40)
    assert starts(one, 10) is None
    assert one.state(A) is FetcherState.FETCHING


@pytest.mark.parametrize("ask", [ends, starts])
@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, FetcherState.FAILED),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, FetcherState.FETCHING),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, FetcherState.FETCHING),
        (ErrorCode.NETWORK_EXCEPTION, FetcherState.FETCHING),
    ],
)
def test_leader_that_does_not_say_its_ends_cuts_nothing(ask, code, state):
    """LEPO-55, RFET-63."""
    one = out_of_range(fetcher())
    assert ask(one, -1, code) is None
    assert one.state(A) is state
    if state is FetcherState.FETCHING:
        assert one.next_wakeup_ms() == BACKOFF_MS


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
    ],
)
def test_partition_with_an_error_pauses_and_the_others_go_on(code):
    """RINV-39, LEPO-52, RFET-65, RFET-67, RFET-68."""
    one = opened(fetcher(start(A), start(B)))
    one.next_round(0)
    one.handle_answer(77, [answer(A, code)], 0)
    again = one.next_round(100)
    assert (again.partitions, again.forgotten) == ([], [A])
    one.handle_answer(77, [], 100)
    one.handle_failure(500)
    one.on_damaged(A, 5, 500)
    assert one.next_wakeup_ms() == BACKOFF_MS, "a pause that has begun is not prolonged"


def test_lost_connection_pauses_everything_and_closes_the_session():
    """RFET-69."""
    one = opened(fetcher(start(A), start(B)))
    one.next_round(0)
    one.handle_failure(0)
    assert one.next_round(BACKOFF_MS - 1) is None
    again = one.next_round(BACKOFF_MS)
    assert (again.session_id, again.session_epoch, len(again.partitions)) == (77, 0, 2)


def test_damaged_records_are_asked_for_again_and_a_refusing_log_is_left_alone():
    """LEPO-58, LEPO-59, RFET-37, RFET-38, RFET-40, RFET-41."""
    one = opened(fetcher(start(A), start(B)))
    one.on_damaged(A, 5, 0)
    one.on_failed(B, 5)
    assert one.next_wakeup_ms() == BACKOFF_MS
    assert one.state(B) is FetcherState.FAILED
    one.on_failed(A, 4)
    assert one.state(A) is FetcherState.FETCHING, "of an older epoch"
