"""The state machine of a replica, and its oracle: fencing, in-sync set, high watermark, acks (LEPO)."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.partition.assignment import Assignment
from oracle.native_replica import NativeReplica
from oracle.partition_effects import (
    AckCompleted,
    AssignEpochStart,
    FlushLog,
    HighWatermarkAdvanced,
    LeadershipChanged,
)
from oracle.partition_replica import PartitionReplica

made = NativeReplica


@pytest.fixture(params=[NativeReplica, PartitionReplica], ids=["native", "oracle"], autouse=True)
def implementation(request, monkeypatch):
    monkeypatch.setitem(globals(), "made", request.param)


def replica(*, flush_on_ack=False, min_isr=1, end=0, flushed=0, high_watermark=0):
    return made(
        node_id=1,
        flush_on_ack=flush_on_ack,
        min_insync_replicas=min_isr,
        log_end_offset=end,
        flushed_offset=flushed,
        high_watermark=high_watermark,
    )


def leads(one, *, epoch=5, partition_epoch=0, replicas=(1,), isr=(1,), leader=1, now_ms=0):
    one.handle_assignment(
        Assignment(leader_id=leader, leader_epoch=epoch, partition_epoch=partition_epoch, replicas=replicas, isr=isr),
        now_ms,
    )
    return one


def test_new_leader_assigns_epoch_start_before_anything_is_committed():
    one = leads(replica(end=10))
    assert one.take_effects() == [LeadershipChanged(5, 1), AssignEpochStart(5, 10), HighWatermarkAdvanced(10)]


def test_single_replica_commits_on_append_when_not_flushing():
    """ISR-72."""
    one = leads(replica())
    one.take_effects()
    one.on_appended(3)
    assert one.take_effects() == [HighWatermarkAdvanced(3)]


def test_single_replica_commits_on_flush_when_flushing():
    one = leads(replica(flush_on_ack=True))
    one.take_effects()
    one.on_appended(3)
    assert one.take_effects() == [FlushLog(3)]
    assert one.high_watermark == 0
    one.on_flushed(2)
    one.on_flushed(1)
    assert one.take_effects() == [HighWatermarkAdvanced(2)]


def test_restart_with_unflushed_records_flushes_them_first():
    one = leads(replica(flush_on_ack=True, end=10, flushed=4, high_watermark=4))
    assert FlushLog(10) in one.take_effects()
    assert one.high_watermark == 4


@pytest.mark.parametrize(
    ("asked", "needs_leader", "leader", "expected"),
    [
        (-1, True, 1, ErrorCode.NONE),
        (-2, True, 1, ErrorCode.FENCED_LEADER_EPOCH),  # only -1 says nothing
        (4, True, 1, ErrorCode.FENCED_LEADER_EPOCH),
        (6, True, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (5, True, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (5, False, 2, ErrorCode.NONE),
        (4, True, 2, ErrorCode.FENCED_LEADER_EPOCH),  # LEPO-05: the epoch is told first
        (6, True, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epoch_check(asked, needs_leader, leader, expected):
    one = leads(replica(), replicas=(1, 2), isr=(1, 2), leader=leader)
    assert one.check_leader_epoch(asked, needs_leader=needs_leader) == expected


def test_high_watermark_is_the_smallest_end_of_the_in_sync_set():
    """ISR-69."""
    one = leads(replica(end=0), replicas=(1, 2, 3), isr=(1, 2))
    one.on_appended(10)
    assert one.high_watermark == 0
    one.on_follower_fetch(3, 10, 1)
    assert one.high_watermark == 0, "3 is not in sync"
    one.on_follower_fetch(2, 7, 1)
    assert one.high_watermark == 7
    one.on_follower_fetch(2, 3, 1)
    assert one.high_watermark == 7, "never back"


def test_high_watermark_waits_while_in_sync_set_is_below_minimum():
    """ISR-56, ISR-57, RINV-71, LEPO-44."""
    one = leads(replica(min_isr=2), replicas=(1, 2), isr=(1,))
    one.on_appended(5)
    assert one.high_watermark == 0
    assert one.check_append(-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert one.check_append(1) == ErrorCode.NONE


def raised_by_append(one):
    one.on_appended(6)


def raised_by_fetch(one):
    one.on_follower_fetch(2, 5, 1)


def raised_by_change_of_in_sync_set(one):
    leads(one, replicas=(1, 2), isr=(1,), partition_epoch=1)


def raised_by_becoming_leader(one):
    leads(one, replicas=(1, 2), isr=(1,), epoch=6, partition_epoch=1)


@pytest.mark.parametrize(
    ("isr", "trigger", "expected"),
    [
        ((1,), raised_by_append, 6),
        ((1, 2), raised_by_fetch, 5),
        ((1, 2), raised_by_change_of_in_sync_set, 5),
        ((1, 2), raised_by_becoming_leader, 5),
    ],
)
def test_high_watermark_moves_with_its_triggers_and_not_with_the_minimum_alone(isr, trigger, expected):
    """ISR-71: the change of min.insync.replicas to 1 moved it before the fix."""
    one = leads(replica(min_isr=2), replicas=(1, 2), isr=isr)
    one.on_appended(5)
    one.take_effects()
    one.update_min_insync_replicas(1)
    assert one.take_effects() == []
    assert one.high_watermark == 0
    assert one.check_append(-1) == ErrorCode.NONE, "appends are held to the new minimum at once"
    trigger(one)
    assert one.high_watermark == expected


@pytest.mark.parametrize("flush_on_ack", [False, True])
def test_minimum_above_the_replica_count_is_the_replica_count(flush_on_ack):
    """ISR-02: Kafka 4.3.1 ``Partition.effectiveMinIsr``."""
    one = leads(replica(min_isr=3, flush_on_ack=flush_on_ack))
    assert one.effective_min_insync_replicas == 1
    assert one.check_append(-1) == ErrorCode.NONE
    one.on_appended(5)
    one.wait_for_ack(5, "a")
    one.on_flushed(5)
    assert one.high_watermark == 5
    assert AckCompleted("a", ErrorCode.NONE) in one.take_effects()


def test_minimum_above_the_replica_count_still_needs_every_replica():
    one = leads(replica(min_isr=3), replicas=(1, 2), isr=(1,))
    one.on_appended(5)
    assert one.high_watermark == 0
    assert one.check_append(-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    leads(one, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
    assert one.check_append(-1) == ErrorCode.NONE
    one.on_follower_fetch(2, 5, 1)
    assert one.high_watermark == 5


def test_acks_complete_in_order_with_the_commit():
    one = leads(replica(flush_on_ack=True))
    one.on_appended(2)
    one.on_appended(4)
    one.wait_for_ack(2, "a")
    one.wait_for_ack(4, "b")
    one.take_effects()
    one.on_flushed(3)
    assert one.take_effects() == [HighWatermarkAdvanced(3), AckCompleted("a", 0)]
    one.on_flushed(4)
    assert one.take_effects() == [HighWatermarkAdvanced(4), AckCompleted("b", 0)]
    one.wait_for_ack(4, "c")
    assert one.take_effects() == [AckCompleted("c", 0)]


def test_losing_leadership_fails_pending_acks():
    """ISR-64, LEPO-35."""
    one = leads(replica(flush_on_ack=True), replicas=(1, 2), isr=(1, 2))
    one.on_appended(2)
    one.wait_for_ack(2, "a")
    one.take_effects()
    leads(one, epoch=6, leader=2, replicas=(1, 2), isr=(1, 2))
    assert one.take_effects() == [LeadershipChanged(6, 2), AckCompleted("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert one.check_append(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_shrunk_in_sync_set_holds_pending_acks_until_it_is_whole_again():
    """ISR-61, ISR-62: the producer's time passes, or the follower comes back."""
    one = leads(replica(min_isr=2), replicas=(1, 2), isr=(1, 2))
    one.on_appended(2)
    one.wait_for_ack(2, "a")
    one.take_effects()
    leads(one, partition_epoch=1, replicas=(1, 2), isr=(1,))
    assert one.take_effects() == []
    leads(one, partition_epoch=2, replicas=(1, 2), isr=(1, 2))
    one.on_follower_fetch(2, 2, 1)
    assert one.take_effects() == [HighWatermarkAdvanced(2), AckCompleted("a", ErrorCode.NONE)]


def test_same_epoch_with_higher_partition_epoch_keeps_follower_state():
    """LEPO-33, RDLT-05."""
    one = leads(replica(), replicas=(1, 2), isr=(1, 2))
    one.on_appended(5)
    one.on_follower_fetch(2, 5, 1)
    one.take_effects()
    leads(one, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
    one.on_appended(9)
    assert one.epoch_start_offset == 0
    one.on_follower_fetch(2, 8, 2)
    assert one.take_effects() == [HighWatermarkAdvanced(8)]


def test_older_assignments_are_ignored():
    """LEPO-34, STOP-24."""
    one = leads(replica(), epoch=5, partition_epoch=3)
    one.take_effects()
    leads(one, epoch=5, partition_epoch=2, leader=2)
    leads(one, epoch=4, partition_epoch=9, leader=2)
    assert one.is_leader
    assert one.take_effects() == []


def test_unknown_follower_is_refused_by_what_it_knows():
    """LEPO-16: one that knows of its assignment before the leader does asks again."""
    one = leads(replica(), replicas=(1, 2), isr=(1, 2))
    assert one.follower_refusal(4) == ErrorCode.FENCED_LEADER_EPOCH
    assert one.follower_refusal(5) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert one.follower_refusal(-1) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_failed_log_fails_pending_acks():
    """ISR-64."""
    one = leads(replica(flush_on_ack=True))
    one.on_appended(1)
    one.wait_for_ack(1, "a")
    one.take_effects()
    one.on_log_failed()
    assert one.take_effects() == [AckCompleted("a", ErrorCode.KAFKA_STORAGE_ERROR)]


def test_latest_offset_is_not_settled_until_the_epoch_start_is_committed():
    one = leads(replica(flush_on_ack=True, end=10, flushed=4, high_watermark=4))
    assert not one.is_high_watermark_settled
    one.on_flushed(10)
    assert one.is_high_watermark_settled
