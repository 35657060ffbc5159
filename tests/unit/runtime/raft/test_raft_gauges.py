"""What raft-metrics say of a core in each role."""

from __future__ import annotations

import pytest

from kraftlog.raft.control_records import VotersChange
from kraftlog.raft.effects import InstallSnapshot, SendRequest, TruncateLog
from kraftlog.raft.messages import FetchedBatch, FetchRequest, FetchResponse, FetchSnapshotResponse, RemoveVoterRequest
from kraftlog.runtime.raft.raft_gauges import RaftGauges, raft_state
from kraftlog.types import ElectionState, Epoch, EpochEndOffset, NodeId, Offset, SnapshotId, Uuid
from raft_fixture import core_of, endpoints, fetch, follower_of, key, leader_of, replica_in, requests_of, voter_set


@pytest.mark.spec("METR-01")
@pytest.mark.parametrize(
    ("role", "state", "leader_id", "voted", "epoch"),
    [
        ("unattached", "unattached", -1, None, 1),
        ("follower", "follower", 2, None, 2),
        ("candidate", "candidate", -1, key(1), 2),
        ("prospective", "prospective", -1, None, 1),
        ("leader", "leader", 1, key(1), 2),
        ("resigned", "unattached", -1, None, 2),
    ],
)
def test_state_leader_vote_and_epoch_of_each_role(role, state, leader_id, voted, epoch):
    core, _ = replica_in(role)
    found = raft_state(core, 0)
    assert (found.state, found.leader_id, found.epoch) == (state, leader_id, epoch)
    assert found.voted_id == (-1 if voted is None else voted.node_id)
    assert found.voted_directory_id == (Uuid.ZERO if voted is None else voted.directory_id)


@pytest.mark.spec("METR-02")
def test_observer_is_observer_as_follower_and_unattached_without_leader():
    follower = follower_of(2, 3, local=9)
    assert raft_state(follower, 0).state == "observer"
    assert raft_state(follower, 0).leader_id == 2
    unattached = core_of(2, 3, local=9)
    assert raft_state(unattached, 0).state == "unattached"
    for core in (follower, unattached):
        assert (raft_state(core, 0).voted_id, raft_state(core, 0).voted_directory_id) == (-1, Uuid.ZERO)


@pytest.mark.spec("METR-03")
def test_vote_of_unattached_and_prospective_voted():
    core = core_of(1, 2, 3, stored=ElectionState(epoch=Epoch(2), voted_key=key(3)))
    found = raft_state(core, 0)
    assert (found.state, found.voted_id, found.voted_directory_id) == ("unattached-voted", 3, key(3).directory_id)
    core.handle_timeout(5000)
    found = raft_state(core, 5000)
    assert (found.state, found.voted_id, found.voted_directory_id) == ("prospective-voted", 3, key(3).directory_id)


@pytest.mark.spec("METR-17")
def test_leader_that_resigned_is_unattached_and_names_no_leader():
    core = leader_of(1, 2, 3)
    assert raft_state(core, 0).leader_id == 1
    core.resign(0)
    found = raft_state(core, 0)
    assert (found.state, found.leader_id, found.voted_id, found.epoch) == ("unattached", -1, -1, 2)
    assert found.observer_count is found.is_voter_change_uncommitted is None


def answer(core, response, now_ms=0):
    sent = requests_of(core)[2]
    core.handle_response(NodeId(2), sent.correlation_id, response, now_ms)


@pytest.mark.spec("METR-04", "METR-05")
def test_log_end_follows_append_truncation_and_snapshot():
    core = follower_of(1, 2, 3)
    found = raft_state(core, 0)
    assert (found.log_end_offset, found.log_end_epoch, found.high_watermark) == (3, 1, -1)
    core.handle_timeout(0)
    batch = FetchedBatch(base_offset=Offset(3), last_offset=Offset(6), epoch=Epoch(2), size_bytes=100, payload=b"")
    answer(core, FetchResponse(leader_id=NodeId(2), leader_epoch=Epoch(2), batches=(batch,), high_watermark=Offset(5)))
    found = raft_state(core, 0)
    assert (found.log_end_offset, found.log_end_epoch, found.high_watermark) == (7, 2, 5)
    core.on_flushed(7, 0)
    diverging = EpochEndOffset(Epoch(2), Offset(6))
    answer(core, FetchResponse(leader_id=NodeId(2), leader_epoch=Epoch(2), diverging_epoch=diverging))
    assert any(isinstance(effect, TruncateLog) for effect in core._replica.effects)
    found = raft_state(core, 0)
    assert (found.log_end_offset, found.log_end_epoch) == (6, 2)
    snapshot_id = SnapshotId(Offset(20), Epoch(2))
    answer(core, FetchResponse(leader_id=NodeId(2), leader_epoch=Epoch(2), snapshot_id=snapshot_id))
    response = FetchSnapshotResponse(
        leader_id=NodeId(2),
        leader_epoch=Epoch(2),
        snapshot_id=snapshot_id,
        position=0,
        size_bytes=4,
        chunk_bytes=4,
        payload=b"four",
    )
    answer(core, response)
    assert any(isinstance(effect, InstallSnapshot) for effect in core.take_effects())
    core.on_snapshot_installed(snapshot_id, 4, kraft_version=1, voters=voter_set(1, 2, 3), now_ms=0)
    found = raft_state(core, 0)
    assert (found.log_end_offset, found.log_end_epoch, found.high_watermark) == (20, 2, 20)
    core = leader_of(1)
    core.propose([b"a", b"b"], 0)
    assert raft_state(core, 0).log_end_offset == core.log.end_offset
    core.take_effects()
    assert raft_state(core, 0).log_end_offset == core.log.end_offset == 6


@pytest.mark.spec("METR-06")
def test_number_of_voters_is_that_of_the_set_in_force_also_uncommitted_or_cut_away():
    core = leader_of(1, 2, 3)
    assert raft_state(core, 0).voter_count == 3
    core._replica.append_control([VotersChange(voters=voter_set(1, 2, 3, 4))])
    assert raft_state(core, 0).voter_count == 4
    assert raft_state(core, 0).is_voter_change_uncommitted
    end_offset = core.log.end_offset
    core._replica.become_unattached(Epoch(3), 0)
    core._replica.become_follower(Epoch(3), NodeId(2), endpoints(2), 0)
    core.take_effects()
    core.handle_timeout(1)
    diverging = EpochEndOffset(Epoch(2), Offset(end_offset - 1))
    sent = next(effect for effect in core.take_effects() if isinstance(effect, SendRequest))
    assert isinstance(sent.request, FetchRequest)
    response = FetchResponse(leader_id=NodeId(2), leader_epoch=Epoch(3), diverging_epoch=diverging)
    core.handle_response(sent.destination.node_id, sent.correlation_id, response, 1)
    assert core.log.end_offset == end_offset - 1
    assert raft_state(core, 1).voter_count == 3


@pytest.mark.spec("METR-07", "METR-08", "RCFG-11")
def test_observers_and_voter_change_are_the_leaders_and_begin_anew_with_each_leadership():
    core = core_of(1, 2, 3)
    assert raft_state(core, 0).observer_count is None
    core = leader_of(1, 2, 3)
    found = raft_state(core, 0)
    assert (found.observer_count, found.is_voter_change_uncommitted) == (0, False)
    fetch(core, 2, 4)
    fetch(core, 8, 4)
    fetch(core, 9, 4)
    assert raft_state(core, 0).observer_count == 2
    core.handle_request("tool", RemoveVoterRequest(cluster_id="c", voter_key=key(3)), 0)
    core.take_effects()
    assert raft_state(core, 0).is_voter_change_uncommitted
    core.on_flushed(core.log.end_offset, 0)
    core.take_effects()
    fetch(core, 2, core.log.end_offset)
    found = raft_state(core, 0)
    assert (found.is_voter_change_uncommitted, found.voter_count) == (False, 2)
    assert found.observer_count == 3, "the removed voter is one of them"
    core.resign(0)
    found = raft_state(core, 0)
    assert found.observer_count is found.is_voter_change_uncommitted is None
    again = leader_of(1, 2, 3)
    assert raft_state(again, 0).observer_count == 0


@pytest.mark.spec("METR-09")
def test_observer_that_stopped_fetching_is_counted_no_more_after_five_minutes():
    core = leader_of(1)
    fetch(core, 8, 4)
    fetch(core, 9, 4, now_ms=100_000)
    assert raft_state(core, 299_999).observer_count == 2
    assert raft_state(core, 301_000).observer_count == 1
    assert raft_state(core, 402_000).observer_count == 0


def test_gauges_count_observers_once_a_second_and_show_all_else_at_once():
    core = leader_of(1)
    fetch(core, 8, 4)
    gauges = RaftGauges(core)
    assert gauges.state(0).observer_count == 1
    fetch(core, 9, 4, now_ms=100)
    assert gauges.state(999).observer_count == 1
    assert gauges.state(1000).observer_count == 2
    core.resign(1001)
    assert gauges.state(1001) == raft_state(core, 1001)
    assert gauges.state(1001).observer_count is None
