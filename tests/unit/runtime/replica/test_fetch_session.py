"""Fetch sessions (KIP-227)."""

from __future__ import annotations

import random

from kraftlog.errors import ErrorCode
from kraftlog.runtime.replica import fetch_session
from kraftlog.runtime.replica.fetch_session import FetchSessionCache, SessionPartition, next_epoch
from kraftlog.types import Uuid


def partition(topic="t", index=0, offset=0):
    return SessionPartition(topic, Uuid.ZERO, index, 1000, offset, -1, -1, -1)


def cache(slots=2, eviction_ms=1000):
    return FetchSessionCache(slots, eviction_ms, random.Random(1))


def create(sessions, count=1, *, now_ms=0, privileged=False):
    return sessions.create(
        [partition(index=index) for index in range(count)],
        is_privileged=privileged,
        uses_topic_ids=False,
        now_ms=now_ms,
    )


def find(sessions, session_id, epoch, *, uses_topic_ids=False, now_ms=0):
    return sessions.find(session_id, epoch, uses_topic_ids=uses_topic_ids, now_ms=now_ms)


def test_epochs_go_on_and_wrap_to_one():
    sessions = cache()
    session = create(sessions)
    assert session.epoch == 1
    assert find(sessions, session.session_id, 1) is session
    assert session.epoch == 2
    assert find(sessions, session.session_id, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert next_epoch(2**31 - 1) == 1


def test_ids_are_odd_where_even_ones_belong_to_the_data_path():
    sessions = FetchSessionCache(100, 1000, random.Random(1), id_step=2)
    assert all(create(sessions).session_id % 2 == 1 for _ in range(100))


def test_unknown_session_and_change_to_topic_ids_are_refused():
    """RFET-14."""
    sessions = cache()
    session = create(sessions)
    assert find(sessions, session.session_id + 1, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert find(sessions, session.session_id, 7) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert find(sessions, session.session_id, 1, uses_topic_ids=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_update_adds_changes_and_forgets():
    session = create(cache(), 2)
    session.update([partition(index=1, offset=7), partition(index=5)], [("t", 0)])
    assert [(partition.index, partition.fetch_offset) for partition in session] == [(1, 7), (5, 0)]


def test_update_replaces_everything_that_the_client_said_of_a_partition():
    """RINV-89: with the leader epoch of an earlier request, a stale epoch would pass (KAFKA-9338)."""
    session = create(cache(), 1)
    session.update([SessionPartition("t", Uuid.ZERO, 0, 500, 7, 4, 3, 2)], [])
    (known,) = session
    assert (known.max_bytes, known.fetch_offset, known.current_leader_epoch) == (500, 7, 4)
    assert (known.last_fetched_epoch, known.log_start_offset) == (3, 2)


def test_what_was_told_is_told_again_under_another_leader_epoch():
    """A follower drops what comes under an earlier epoch: its high watermark stayed behind until the next record."""
    session = create(cache(), 1)
    (known,) = session
    known.told_high_watermark, known.told_log_start_offset = 21, 3
    session.update([partition(offset=21)], [])
    assert (known.told_high_watermark, known.told_log_start_offset) == (21, 3)
    session.update([SessionPartition("t", Uuid.ZERO, 0, 1000, 21, 4, -1, -1)], [])
    assert (known.told_high_watermark, known.told_log_start_offset) == (-1, -1)


def test_moved_partitions_are_served_last():
    session = create(cache(), 3)
    session.move_to_end(("t", 0))
    assert [partition.index for partition in session] == [1, 2, 0]


def test_full_cache_keeps_young_sessions():
    sessions = cache()
    first, second = create(sessions, 5), create(sessions, 5)
    assert create(sessions, 9, now_ms=500) is None
    assert isinstance(find(sessions, first.session_id, 1), type(first))
    assert len(sessions) == 2
    assert second.session_id != first.session_id


def test_full_cache_evicts_the_session_unused_longest():
    sessions = cache()
    first, second = create(sessions), create(sessions)
    find(sessions, first.session_id, 1, now_ms=900)
    assert create(sessions, now_ms=1500) is not None
    assert find(sessions, second.session_id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_full_cache_prefers_followers_and_large_fetches():
    """RFET-13, RINV-89."""
    sessions = cache(slots=1)
    small = create(sessions, 1)
    find(sessions, small.session_id, 1, now_ms=1400)
    assert create(sessions, 1, now_ms=1500) is None
    larger = create(sessions, 2, now_ms=1500)
    assert larger is not None
    find(sessions, larger.session_id, 1, now_ms=3000)
    followers = create(sessions, 1, now_ms=3100, privileged=True)
    assert followers is not None
    assert create(sessions, 9, now_ms=3200) is None, "a consumer does not push a live follower out"
    assert find(sessions, followers.session_id, 1, now_ms=3300) is followers


def test_no_slots_means_no_sessions():
    assert create(cache(slots=0)) is None


def test_sessions_hold_a_bounded_number_of_partitions(monkeypatch):
    monkeypatch.setattr(fetch_session, "SESSION_PARTITIONS_MAX", 3_000)
    monkeypatch.setattr(fetch_session, "ALL_SESSIONS_PARTITIONS_MAX", 5_000)
    sessions = cache(slots=10)
    assert create(sessions, 3_001) is None
    large = create(sessions, 2_500)
    assert sessions.may_grow(large, [partition(index=index, offset=1) for index in range(2_500)])
    assert not sessions.may_grow(large, [partition(index=index) for index in range(2_500, 3_001)])
    assert create(sessions, 2_501) is None
    assert create(sessions, 1_000) is not None
    sessions.remove(large.session_id)
    assert create(sessions, 2_501) is not None
