"""Appends of a group that wait: one fails while others are still on their way."""

from __future__ import annotations

import pytest

from classic_fixture import ClassicShard
from group_fixture import ConsumerShard, make_group_shard
from kraftlog.errors import ErrorCode


def test_a_failed_change_is_taken_back_while_an_earlier_one_waits():
    """The newest append of a shard may fail alone, such as one that is too large for a batch."""
    s = ConsumerShard({"t": 2}, group_consumer_assignment_interval_ms=0)
    s.held = []
    s.join("A")
    s.beat("A", -1)
    joined, left = s.held
    s.held = None
    s.finish(left, int(ErrorCode.MESSAGE_TOO_LARGE))
    s.finish(joined)
    s.run()
    assert s.targets() == {"A": {"t": [0, 1]}}
    loaded = make_group_shard(s.config, topics=s.topics)
    for record in s.log:
        loaded.replay(record, now_ms=0)
    loaded.finish_loading(0)
    assert loaded._consumers.groups["g"].members == s.shard._consumers.groups["g"].members


def test_a_group_that_was_deleted_under_a_commit_is_gone():
    h = ClassicShard()
    h.commit("before", 5)
    h.held = []
    h.commit("waits", 6)
    h.shard.delete_group("delete", "g", h.now_ms)
    h.run()
    waiting, h.held = h.held, None
    for append in waiting:
        h.log.extend(append.records)
        h.shard.on_appended(append.append_id, 0)
    h.run()
    assert (h.commit_code("waits"), h.answers["delete"].error_code) == (0, 0)
    assert h.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert h.shard.committed("g") == {}


def test_a_commit_of_another_partition_under_the_deletion_keeps_the_group():
    h = ClassicShard()
    h.commit("before", 5)
    h.held = []
    h.commit("waits", 6, partition=1)
    h.shard.delete_group("delete", "g", h.now_ms)
    h.run()
    waiting, h.held = h.held, None
    for append in waiting:
        h.log.extend(append.records)
        h.shard.on_appended(append.append_id, 0)
    h.run()
    assert [offset.offset for offset in h.shard.committed("g").values()] == [6]
    assert h.described().error_code == 0
    assert [offset.offset for offset in h.reloaded().shard.committed("g").values()] == [6]


def revoking_shard(error_code: int = 0) -> ConsumerShard:
    """A has all partitions and B joined; the append of the heartbeat that takes two from A ends with this code."""
    s = ConsumerShard({"t": 4}, group_consumer_assignment_interval_ms=0)
    s.join("A", "t", rebalance_timeout_ms=30_000)
    s.join("B", "t", rebalance_timeout_ms=30_000)
    s.append_error = error_code
    s.beat("A", 2)
    s.append_error = 0
    return s


def members(s: ConsumerShard) -> list[str]:
    return sorted(s.shard._consumers.groups["g"].members)


@pytest.mark.spec("NGRP-42", "NGRP-48")
def test_a_member_that_was_not_told_to_give_up_partitions_has_its_session_for_it():
    s = revoking_shard(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    s.advance(10_000)
    s.beat("B", 3)
    s.advance(34_000)
    assert members(s) == ["A", "B"]
    s.advance(2_000)
    assert members(s) == ["B"]


@pytest.mark.spec("NGRP-48")
def test_a_member_whose_report_was_not_stored_has_to_report_again():
    s = revoking_shard()
    s.append_error = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert s.beat("A", 2, {"t": [0, 1]}).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    s.append_error = 0
    for _ in range(2):
        s.advance(14_000)
        s.beat("A", 2)
        s.beat("B", 3)
        assert members(s) == ["A", "B"]
    s.advance(3_000)
    assert members(s) == ["B"]
