"""The replica that a consumer is sent to (KIP-392)."""

from __future__ import annotations

import pytest

from kraftlog.partition.assignment import Assignment
from kraftlog.partition.replica_selector import ReplicaView, select_by_rack
from oracle.native_replica import NativeReplica

A, B = ReplicaView(2, "a", 10, 0), ReplicaView(3, "b", 10, 0)


@pytest.mark.parametrize(
    ("rack", "leader_rack", "followers", "selected"),
    [
        ("a", "c", [A, B], 2),
        ("b", "c", [A, B], 3),
        ("a", "a", [A, B], None),  # the leader serves its rack
        ("d", "c", [A, B], None),
        ("", "c", [A, B], None),
        ("a", None, [A, B], 2),
        ("a", "c", [A, ReplicaView(4, "a", 12, 50)], 4),  # who has most
        ("a", "c", [A, ReplicaView(4, "a", 10, 50)], 2),  # who was caught up last
        ("a", "c", [A, ReplicaView(4, "a", 10, 0)], 4),  # the highest id
        ("a", "c", [ReplicaView(2, None, 10, 0)], None),
        ("a", "c", [], None),
    ],
)
def test_follower_in_the_rack_is_selected(rack, leader_rack, followers, selected):
    assert select_by_rack(rack, leader_rack, followers) == selected


def test_only_in_sync_followers_that_have_the_offset_are_candidates():
    """RINV-91: KAFKA-14372, 15390."""
    core = NativeReplica(
        node_id=1, flush_on_ack=False, min_insync_replicas=1, log_end_offset=0, flushed_offset=0, high_watermark=0
    )
    core.handle_assignment(
        Assignment(leader_id=1, leader_epoch=5, partition_epoch=0, replicas=(1, 2, 3), isr=(1, 2)), 0
    )
    core.on_appended(10)
    assert core.in_sync_followers_with(0) == [], "nothing is known of them in this epoch"
    core.on_follower_fetch(2, 8, 70, log_start_offset=3)
    core.on_follower_fetch(3, 10, 80, log_start_offset=3)
    assert core.in_sync_followers_with(3) == [(2, 8, 0)]
    assert core.in_sync_followers_with(8) == [(2, 8, 0)]
    assert core.in_sync_followers_with(9) == core.in_sync_followers_with(2) == []
    core.handle_assignment(
        Assignment(leader_id=2, leader_epoch=6, partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2)), 0
    )
    assert core.in_sync_followers_with(3) == []
