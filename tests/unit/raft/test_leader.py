"""What a leader counts and knows of others."""

from __future__ import annotations

import itertools

import pytest

from kraftlog.raft.control_records import VotersChange
from kraftlog.raft.effects import HighWatermarkAdvanced, SendResponse
from kraftlog.raft.messages import (
    FetchRequest,
    RemoveVoterRequest,
)
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.voter_set import Voter, VoterSet
from kraftlog.types import Epoch, NodeId, Offset, ReplicaKey
from raft_fixture import endpoints, fetch, key, leader_of, voter_set


def slow_high_watermark(ends, epoch_start):
    """The largest end that a majority has reached, if it is above the beginning of the epoch."""
    reached = [end for end in ends if sum(other >= end for other in ends) > len(ends) // 2]
    return max((end for end in reached if end > epoch_start), default=None)


@pytest.mark.spec("HWM-01", "HWM-02", "HWM-18")
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_high_watermark_is_what_a_majority_holds(count):
    for ends in itertools.product((2, 3, 4, 6), repeat=count):
        role = Leader(Epoch(2), local_key=key(1), voters=voter_set(*range(1, count + 1)), epoch_start_offset=Offset(3))
        for node_id, end in enumerate(ends[1:], 2):
            role.on_fetch(key(node_id), Offset(end), Offset(6), 0)
        role.update_local_end_offset(Offset(ends[0]))
        assert role.high_watermark == slow_high_watermark(ends, 3), ends


@pytest.mark.spec("HWM-03", "HWM-13")
def test_high_watermark_stays_when_a_voter_loses_its_disk_or_one_is_added():
    core = leader_of(1, 2, 3)
    fetch(core, 2, 4)
    assert core.high_watermark == 4
    fetch(core, 2, 0, last=0)
    assert core.progress(0)[1].log_end_offset == 0
    core.role.set_voters(voter_set(1, 2, 3, 4))
    assert core.high_watermark == core.role.high_watermark == 4


@pytest.mark.spec("HWM-07")
def test_observer_counts_from_the_moment_it_is_a_voter():
    core = leader_of(1, 2)
    fetch(core, 3, 4)
    fetch(core, 4, 4)
    assert core.high_watermark is None
    core._replica.append_control([VotersChange(voters=voter_set(1, 2, 3))])
    assert core.high_watermark == 4


def test_new_directory_id_does_not_inherit_what_the_old_one_acknowledged():
    role = Leader(Epoch(2), local_key=key(1), voters=voter_set(1, 2, 3), epoch_start_offset=Offset(3))
    role.on_fetch(key(2), Offset(9), Offset(9), 0)
    role.update_local_end_offset(Offset(5))
    assert role.high_watermark == 5
    role.set_voters(voter_set(1, 3).with_added(Voter(key(2, directory=9), endpoints(2))))
    role.update_local_end_offset(Offset(9))
    assert role.high_watermark == 5


def test_voter_that_was_removed_counts_no_more_for_the_majority_that_keeps_a_leader():
    role = Leader(Epoch(2), local_key=key(1), voters=voter_set(1, 2, 3, 4, 5), epoch_start_offset=Offset(3))
    deadline_ms = role.check_quorum_deadline_ms
    role.on_heard(key(2), 100)
    role.set_voters(voter_set(1, 3, 4, 5))
    role.on_heard(key(3), 100)
    assert role.check_quorum_deadline_ms == deadline_ms
    role.on_heard(key(4), 100)
    assert role.check_quorum_deadline_ms == deadline_ms + 100


@pytest.mark.spec("HWM-09", "CQ-03")
def test_leader_outside_the_voter_set_counts_neither_itself_nor_a_minority():
    role = Leader(Epoch(2), local_key=key(1), voters=voter_set(1, 2, 3), epoch_start_offset=Offset(3))
    role.update_local_end_offset(Offset(9))
    role.set_voters(voter_set(2, 3))
    role.on_fetch(key(2), Offset(5), Offset(9), 100)
    assert role.high_watermark is None
    assert role.check_quorum_deadline_ms == 3000
    role.on_fetch(key(3), Offset(6), Offset(9), 200)
    assert role.high_watermark == 5
    assert role.check_quorum_deadline_ms == 3200


@pytest.mark.spec("HWM-10")
def test_what_is_known_of_a_voter_stays_when_its_directory_id_becomes_known():
    static = VoterSet(Voter(ReplicaKey(NodeId(number)), endpoints(number)) for number in (1, 2, 3))
    role = Leader(Epoch(2), local_key=key(1), voters=static, epoch_start_offset=Offset(3))
    role.on_fetch(key(2), Offset(5), Offset(9), 0)
    role.set_voters(voter_set(1, 2, 3))
    assert [progress.log_end_offset for progress in role.progress(0)] == [None, 5, None]


@pytest.mark.spec("HWM-17", "RCFG-38", "FTCH-31")
def test_those_who_wait_for_the_high_watermark_are_told_in_order():
    core = leader_of(1, 2, 3)
    fetch(core, 2, 4)
    core.handle_request("admin", RemoveVoterRequest(voter_key=key(3)), 0)
    core.on_flushed(core.log.end_offset, 0)
    waiting = FetchRequest(
        replica_key=key(9),
        current_leader_epoch=core.epoch,
        fetch_offset=core.log.end_offset,
        last_fetched_epoch=core.epoch,
        max_wait_ms=500,
    )
    core.handle_request(9, waiting, 0)
    core.take_effects()
    told = [
        effect.source if isinstance(effect, SendResponse) else "high watermark"
        for effect in fetch(core, 2, core.log.end_offset)
        if isinstance(effect, SendResponse | HighWatermarkAdvanced)
    ]
    assert told == ["admin", "high watermark", 9, 2]


@pytest.mark.spec("HWM-14", "HWM-15")
@pytest.mark.parametrize(
    ("current", "told", "end", "expected"),
    [(None, 5, 9, 5), (None, 9, 5, 5), (None, -1, 5, None), (4, -1, 5, 4), (4, 3, 5, 4), (4, 5, 5, 5)],
)
def test_high_watermark_of_a_follower(current, told, end, expected):
    role = Follower(Epoch(1), leader_id=NodeId(2), leader_endpoints=endpoints(2), fetch_deadline_ms=0)
    assert role.known_high_watermark(current, Offset(told), Offset(end)) == expected


@pytest.mark.spec("OBS-08")
def test_observer_that_is_silent_for_five_minutes_is_forgotten():
    core = leader_of(1, 2, 3)
    fetch(core, 8, 4)
    fetch(core, 9, 4, now_ms=1)
    assert [progress.key.node_id for progress in core.observer_progress(299_999)] == [8, 9]
    assert [progress.key.node_id for progress in core.observer_progress(300_000)] == [9]
    core.role.set_voters(voter_set(2, 3))
    assert [progress.key.node_id for progress in core.observer_progress(900_000)] == [1]


@pytest.mark.spec("OBS-09")
def test_replica_was_caught_up_when_it_holds_what_the_leader_had_at_its_fetch_before():
    core = leader_of(1, 2)
    fetch(core, 9, 4, now_ms=10)
    core.propose([b"x"], 20)
    core.take_effects()
    fetch(core, 9, 4, now_ms=30)
    assert core.observer_progress(30)[0].last_caught_up_ms == 10
    core.propose([b"x"], 40)
    core.on_flushed(core.log.end_offset, 40)
    core.take_effects()
    fetch(core, 9, 5, now_ms=50)
    assert core.observer_progress(50)[0].last_caught_up_ms == 30


@pytest.mark.spec("RCFG-25")
def test_replica_that_has_not_fetched_for_an_hour_is_not_caught_up():
    core = leader_of(1, 2)
    fetch(core, 9, 4)
    assert core.role.is_caught_up(key(9), 3_599_999)
    assert not core.role.is_caught_up(key(9), 3_600_000)


@pytest.mark.spec("RCFG-70", "OBS-10")
def test_voters_and_their_endpoints_are_those_of_the_set_in_force():
    core = leader_of(1, 2, 3)
    fetch(core, 2, 4)
    core.handle_request("admin", RemoveVoterRequest(voter_key=key(3)), 0)
    assert [(voter.key.node_id, voter.endpoints[0].host) for voter in core.voters] == [(1, "node1"), (2, "node2")]
    assert [progress.key.node_id for progress in core.observer_progress(0)] == [3]
