"""The in-sync set of a leader: who joins, who leaves, and what a proposal in flight means for the high watermark."""

from __future__ import annotations

import pytest

from kraftlog.partition.assignment import Assignment
from oracle.native_replica import NativeReplica
from oracle.partition_effects import AckCompleted

LAG_MS = 30_000


def leader(*, isr=(1, 2), replicas=(1, 2, 3), min_isr=1, live=((2, 20, False), (3, 30, False)), end=0):
    one = NativeReplica(
        node_id=1,
        flush_on_ack=False,
        min_insync_replicas=min_isr,
        log_end_offset=end,
        flushed_offset=end,
        high_watermark=0,
    )
    assign(one, isr=isr, replicas=replicas)
    one.update_live_brokers(list(live))
    return one


def assign(one, *, isr, replicas=(1, 2, 3), epoch=5, partition_epoch=0, leader_id=1, now_ms=0):
    one.handle_assignment(
        Assignment(
            leader_id=leader_id, leader_epoch=epoch, partition_epoch=partition_epoch, replicas=replicas, isr=isr
        ),
        now_ms,
    )


def test_follower_that_has_what_is_committed_is_proposed():
    """ISR-01, ISR-03, ISR-29, ISR-32, ISR-37, ISR-38: one replica, with the broker epochs of the last fetches."""
    one = leader()
    one.on_appended(10)
    one.on_follower_fetch(2, 10, 1, broker_epoch=20)
    proposal = one.on_follower_fetch(3, 10, 2, broker_epoch=30)
    assert proposal == (1, 5, 0, [(1, -1), (2, 20), (3, 30)])
    assert (one.isr, one.maximal_isr, one.pending_proposal) == ([1, 2], [1, 2, 3], 1)


def test_follower_behind_the_high_watermark_or_the_epoch_is_not_proposed():
    """RINV-57, LEPO-38, ISR-29: KAFKA-7128."""
    one = leader(end=4)
    one.on_appended(10)
    one.on_follower_fetch(2, 10, 1)
    assert one.high_watermark == 10
    assert one.on_follower_fetch(3, 9, 2) is None
    fresh = leader(isr=(1, 2), end=4)
    assert fresh.high_watermark == 0
    assert fresh.on_follower_fetch(3, 3, 1) is None, "the leader's epoch begins at 4"
    assert fresh.on_follower_fetch(3, 4, 1) is not None


@pytest.mark.parametrize(
    ("live", "broker_epoch", "joins"),
    [
        (((3, 30, False),), 30, True),
        (((3, 30, False),), -1, True),  # ISR-15: below version 15 of Fetch
        (((3, 30, False),), 31, False),
        (((3, 30, True),), 30, False),
        ((), 30, False),
    ],
)
def test_only_live_brokers_of_this_registration_join(live, broker_epoch, joins):
    """RINV-62, LEPO-39, ISR-30, ISR-31."""
    one = leader(isr=(1,), replicas=(1, 3), live=live)
    assert (one.on_follower_fetch(3, 0, 1, broker_epoch=broker_epoch) is not None) is joins


def test_fetch_of_an_earlier_registration_is_stale():
    """RINV-61, ISR-14, ISR-15."""
    one = leader()
    assert one.is_stale_broker(3, 29)
    assert not one.is_stale_broker(3, 30)
    assert not one.is_stale_broker(3, -1)
    assert not one.is_stale_broker(9, 5)


def test_one_proposal_at_a_time():
    """LEPO-42, ISR-05."""
    one = leader(isr=(1,))
    assert one.on_follower_fetch(2, 0, 1) is not None
    assert one.on_follower_fetch(3, 0, 1) is None
    one.on_appended(5)
    assert one.propose_shrink(10 * LAG_MS) is None


def test_replica_about_to_join_holds_the_high_watermark():
    """LEPO-41, ISR-03, ISR-53, ISR-67: also after a refusal that the metadata has to settle."""
    one = leader(isr=(1,), replicas=(1, 2), live=((2, 20, False),))
    one.on_follower_fetch(2, 0, 1)
    one.on_appended(10)
    assert one.high_watermark == 0
    one.on_follower_fetch(2, 10, 2)
    assert one.high_watermark == 10


def test_append_is_judged_by_the_confirmed_set():
    """RINV-66, ISR-58, ISR-66."""
    one = leader(isr=(1,), replicas=(1, 2), min_isr=2, live=((2, 20, False),))
    one.on_follower_fetch(2, 0, 1)
    assert one.maximal_isr == [1, 2]
    assert one.check_append(-1) == 19
    one.on_appended(3)
    one.on_follower_fetch(2, 3, 2)
    assert one.high_watermark == 0
    assert one.is_under_min_isr
    assert one.on_isr_committed(1, 5, 1, [1, 2])
    assert one.check_append(-1) == 0
    assert one.high_watermark == 3


def test_member_that_fell_behind_is_dropped_after_its_time():
    """RINV-64, LEPO-45, ISR-21, ISR-22, ISR-26: all of them in one proposal; the leader is never dropped."""
    one = leader(isr=(1, 2, 3))
    one.on_appended(10)
    one.on_follower_fetch(2, 5, 1_000)
    assert one.propose_shrink(LAG_MS) is None
    assert one.propose_shrink(LAG_MS + 1) == (1, 5, 0, [(1, -1)])
    assert one.maximal_isr == [1, 2, 3], "ISR-04: until it is confirmed they count"
    assert one.high_watermark == 0
    assert one.on_isr_committed(1, 5, 1, [1])
    assert one.isr == [1]
    assert one.high_watermark == 10


def test_member_at_the_end_stays_however_long_it_is_silent():
    """RINV-70, LEPO-45, ISR-23: KAFKA-7152."""
    one = leader(isr=(1, 2), replicas=(1, 2))
    one.on_appended(10)
    one.on_follower_fetch(2, 10, 1)
    assert one.propose_shrink(100 * LAG_MS) is None


def test_member_that_was_at_the_end_of_the_previous_fetch_is_caught_up():
    """RINV-70, ISR-09, ISR-10, ISR-11, ISR-24."""
    one = leader(isr=(1, 2), replicas=(1, 2))
    one.on_appended(10)
    one.on_follower_fetch(2, 5, 1_000)
    assert one.last_caught_up_ms(2) == 0
    one.on_appended(20)
    one.on_follower_fetch(2, 10, 2_000)
    assert one.last_caught_up_ms(2) == 1_000, "it has what there was at its last fetch"
    one.on_follower_fetch(2, 15, 3_000)
    assert one.last_caught_up_ms(2) == 1_000
    one.on_follower_fetch(2, 20, 4_000)
    assert one.last_caught_up_ms(2) == 4_000


def test_end_at_the_last_fetch_never_falls():
    """ISR-12: a log of the leader that was shorter for a moment makes nobody caught up."""
    one = leader(isr=(1, 2), replicas=(1, 2))
    one.on_appended(10)
    one.on_follower_fetch(2, 5, 1_000)
    one.on_appended(4)
    one.on_follower_fetch(2, 3, 2_000)
    one.on_appended(20)
    one.on_follower_fetch(2, 6, 3_000)
    assert one.last_caught_up_ms(2) == 0


def test_member_that_never_fetched_leaves_after_its_time():
    """ISR-25: counted from the election of this leader."""
    one = leader(isr=(1, 2), replicas=(1, 2))
    assign(one, isr=(1, 2), replicas=(1, 2), epoch=6, partition_epoch=1, leader_id=2)
    assign(one, isr=(1, 2), replicas=(1, 2), epoch=7, partition_epoch=2, now_ms=5_000)
    assert one.propose_shrink(5_000 + LAG_MS) is None
    assert one.propose_shrink(5_001 + LAG_MS) == (1, 7, 2, [(1, -1)])


def test_fenced_member_that_is_caught_up_is_the_controllers_to_drop():
    """ISR-27."""
    one = leader(isr=(1, 2), replicas=(1, 2))
    one.on_appended(10)
    one.on_follower_fetch(2, 10, 1)
    one.update_live_brokers([])
    assert one.propose_shrink(100 * LAG_MS) is None
    one.update_live_brokers([(2, 20, True)])
    assert one.propose_shrink(100 * LAG_MS) is None


def test_follower_that_lies_about_its_end_commits_nothing_that_is_not_there():
    """ISR-69, RINV-07: the leader's own end bounds the high watermark."""
    one = leader(isr=(1, 2), replicas=(1, 2))
    one.on_appended(10)
    one.on_follower_fetch(2, 1 << 50, 1)
    assert one.high_watermark == 10


def test_follower_that_lost_records_moves_no_high_watermark():
    """ISR-13."""
    one = leader(isr=(1, 2), replicas=(1, 2))
    one.on_appended(10)
    one.on_follower_fetch(2, 10, 1)
    one.on_follower_fetch(2, 3, 2)
    assert (one.follower_end_offset(2), one.high_watermark) == (3, 10)


def test_metadata_overtakes_a_proposal():
    """ISR-07: KAFKA-12686."""
    one = leader(isr=(1,), replicas=(1, 2), live=((2, 20, False),))
    number = one.on_follower_fetch(2, 0, 1)[0]
    assign(one, isr=(1,), replicas=(1, 2), partition_epoch=1)
    assert one.pending_proposal is None
    assert not one.on_isr_committed(number, 5, 2, [1, 2])
    assert one.isr == [1]


def test_metadata_that_the_leader_knows_already_leaves_the_proposal_in_flight():
    """RINV-24: the metadata of an answered change may come after the next change was proposed, whose replica counts."""
    one = leader(isr=(1,), live=((2, 20, False), (3, 30, False)))
    first = one.on_follower_fetch(2, 0, 1)[0]
    assert one.on_isr_committed(first, 5, 1, [1, 2])
    second = one.on_follower_fetch(3, 0, 2)[0]
    assign(one, isr=(1, 2), partition_epoch=1)
    assert (one.pending_proposal, one.maximal_isr) == (second, [1, 2, 3])
    one.update_live_brokers([(2, 20, False)])
    one.on_appended(4)
    one.on_follower_fetch(2, 4, 3)
    assert one.high_watermark == 0, "the controller may have taken replica 3 in"
    assert one.on_isr_committed(second, 5, 2, [1, 2, 3])


def test_leader_that_missed_an_epoch_forgets_what_its_followers_had():
    """RINV-08, RINV-23: another leader may have led in epoch 6, for which replica 3 truncated."""
    one = leader(isr=(1, 2, 3))
    one.on_appended(5)
    one.on_follower_fetch(2, 3, 1)
    one.on_follower_fetch(3, 5, 1)
    assert one.high_watermark == 3
    assign(one, isr=(1, 2, 3), epoch=7, partition_epoch=2)
    assert [one.follower_end_offset(replica) for replica in (2, 3)] == [-1, -1]
    one.on_follower_fetch(2, 5, 2)
    assert one.high_watermark == 3, "replica 3 has not fetched in this epoch"
    one.on_follower_fetch(3, 5, 3)
    assert one.high_watermark == 5


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "is_taken"),
    [(5, 4, True), (5, 3, True), (5, 2, False), (6, 4, False), (4, 4, False)],
)
def test_answer_must_fit_the_epochs(leader_epoch, partition_epoch, is_taken):
    """RINV-66, ISR-45, ISR-46, ISR-47."""
    one = leader(isr=(1,), replicas=(1, 2), live=((2, 20, False),))
    assign(one, isr=(1,), replicas=(1, 2), partition_epoch=3)
    number = one.on_follower_fetch(2, 0, 1)[0]
    assert one.on_isr_committed(number, leader_epoch, partition_epoch, [1, 2]) is is_taken
    assert (one.pending_proposal is None) is is_taken


def test_refused_proposal_may_be_made_again():
    """ISR-48."""
    one = leader(isr=(1,), replicas=(1, 2), live=((2, 20, False),))
    number = one.on_follower_fetch(2, 0, 1)[0]
    one.on_isr_refused(number)
    assert one.maximal_isr == [1]
    assert one.on_follower_fetch(2, 0, 2)[0] == number + 1


def test_older_partition_epoch_than_the_answer_is_ignored():
    """RDLT-03, RDLT-04."""
    one = leader(isr=(1,), replicas=(1, 2), live=((2, 20, False),))
    number = one.on_follower_fetch(2, 0, 1)[0]
    assert one.on_isr_committed(number, 5, 4, [1, 2])
    assign(one, isr=(1,), replicas=(1, 2), partition_epoch=3)
    assert one.isr == [1, 2]
    assign(one, isr=(1, 2), replicas=(1, 2), partition_epoch=4)
    assert one.isr == [1, 2]


def test_caught_up_replica_outside_the_set_holds_the_high_watermark_unless_it_cannot_join():
    """ISR-67, ISR-68."""
    one = leader(isr=(1, 2), live=((2, 20, False), (3, 30, False)))
    one.on_follower_fetch(2, 0, 1)
    one.on_follower_fetch(3, 0, 1)
    one.on_isr_refused(1)
    one.on_appended(10)
    one.on_follower_fetch(2, 10, 2)
    assert one.high_watermark == 0
    one.update_live_brokers([(2, 20, False), (3, 30, True)])
    assert one.high_watermark == 10


def test_follower_has_no_set_and_no_followers():
    """LEPO-35, ISR-06, ISR-08."""
    one = leader(isr=(1,), min_isr=2)
    assert one.is_under_replicated
    assert one.is_under_min_isr
    assign(one, isr=(1, 2), epoch=6, leader_id=2)
    assert (one.isr, one.is_under_replicated, one.is_under_min_isr) == ([], False, False)
    assert one.follower_end_offset(3) is None


def test_new_leader_knows_nothing_and_a_leader_elected_again_does():
    """ISR-17, ISR-18, ISR-19."""
    one = leader(isr=(1, 2))
    one.on_appended(8)
    one.on_follower_fetch(2, 8, 100)
    one.on_follower_fetch(3, 4, 100)
    assign(one, isr=(1, 2), epoch=6, partition_epoch=1, now_ms=500)
    assert [one.follower_end_offset(replica) for replica in (2, 3)] == [8, 4]
    assert [one.last_caught_up_ms(replica) for replica in (2, 3)] == [500, 0]
    assign(one, isr=(1, 2), epoch=7, partition_epoch=2, leader_id=2)
    assign(one, isr=(1, 2), epoch=8, partition_epoch=3, now_ms=900)
    assert [one.follower_end_offset(replica) for replica in (2, 3)] == [-1, -1]
    assert [one.last_caught_up_ms(replica) for replica in (2, 3)] == [900, 0]
    assign(one, isr=(1, 2), epoch=8, partition_epoch=4, replicas=(1, 2, 4), now_ms=950)
    assert one.follower_end_offset(3) is None
    assert one.follower_end_offset(4) == -1


def test_wait_ends_with_the_commit_although_the_set_is_too_small_by_then():
    """ISR-59, ISR-60: the high watermark is there, the set of two has shrunk to one meanwhile."""
    one = leader(isr=(1, 2), replicas=(1, 2), min_isr=2)
    one.on_appended(5)
    one.on_follower_fetch(2, 5, 1)
    one.take_effects()
    assign(one, isr=(1,), replicas=(1, 2), partition_epoch=1)
    one.wait_for_ack(5, "a")
    assert one.take_effects() == [AckCompleted("a", 20)]


def test_high_watermark_of_a_follower_follows_its_leader_within_the_log():
    """RFET-30: also back."""
    one = leader(isr=(1, 2))
    assign(one, isr=(1, 2), epoch=6, leader_id=2)
    one.on_replicated(10, 25, 0)
    assert (one.high_watermark, one.log_end_offset) == (10, 10)
    one.on_replicated(12, 7, 0)
    assert one.high_watermark == 7
    one.on_replicated(12, 7, 9)
    assert one.high_watermark == 9
    one.on_truncated(8)
    assert (one.high_watermark, one.log_end_offset) == (8, 8)


def test_changed_minimum_takes_no_acknowledgement_back():
    """RINV-31: it counts when the high watermark reaches a record; afterwards the record stays committed."""
    one = leader(isr=(1, 2), replicas=(1, 2, 3), min_isr=2)
    one.on_appended(5)
    one.wait_for_ack(5, "first")
    one.on_follower_fetch(2, 5, 1)
    assert AckCompleted("first", 0) in one.take_effects()
    for minimum in (3, 1):
        one.update_min_insync_replicas(minimum)
        assert one.high_watermark >= 5
        assert not any(isinstance(effect, AckCompleted) for effect in one.take_effects())
    one.update_min_insync_replicas(3)
    assert one.check_append(-1) == 19
    one.on_appended(6)
    one.wait_for_ack(6, "second")
    one.on_follower_fetch(2, 6, 2)
    assert (one.high_watermark, one.take_effects()) == (5, [])
