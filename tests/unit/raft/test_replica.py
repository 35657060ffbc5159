"""Transitions that cannot be: refused, and the replica stays what it is."""

from __future__ import annotations

import pytest

from kraftlog.types import Epoch, NodeId
from raft_fixture import ALL_STARTS, STARTS, core_of, endpoints, key, replica_in


def assert_refused(role, change):
    core, replica = replica_in(role)
    before = (core.role, core.epoch)
    core.take_effects()
    with pytest.raises((RuntimeError, ValueError)):
        change(replica)
    assert (core.role, core.epoch) == before
    assert core.take_effects() == []


@pytest.mark.spec("ELEC-16", "ELEC-37")
@pytest.mark.parametrize("role", STARTS)
def test_only_a_prospective_replica_becomes_a_candidate(role):
    assert_refused(role, lambda replica: replica.become_candidate(0))


@pytest.mark.spec("ELEC-19", "ELEC-37")
@pytest.mark.parametrize("role", ALL_STARTS)
def test_nobody_without_a_majority_of_votes_becomes_leader(role):
    assert_refused(role, lambda replica: replica.become_leader(0))


@pytest.mark.spec("ELEC-37")
def test_leader_does_not_become_prospective():
    assert_refused("leader", lambda replica: replica.become_prospective(0))


@pytest.mark.spec("ELEC-38")
@pytest.mark.parametrize("role", [role for role in ALL_STARTS if role != "leader"])
def test_only_a_leader_resigns(role):
    assert_refused(role, lambda replica: replica.become_resigned(0))


@pytest.mark.spec("ELEC-29")
@pytest.mark.parametrize("role", ALL_STARTS)
def test_no_role_goes_back_to_a_lower_epoch(role):
    lower = Epoch(replica_in(role)[0].epoch - 1)
    assert_refused(role, lambda replica: replica.become_unattached(lower, 0))
    assert_refused(role, lambda replica: replica.become_follower(lower, NodeId(2), endpoints(2), 0))


@pytest.mark.spec("ELEC-28")
@pytest.mark.parametrize("role", ["follower", "leader", "resigned"])
def test_a_role_with_a_leader_does_not_become_unattached_in_its_epoch(role):
    assert_refused(role, lambda replica: replica.become_unattached(replica.epoch, 0))


@pytest.mark.spec("ELEC-32")
@pytest.mark.parametrize("role", ALL_STARTS)
def test_nobody_follows_itself(role):
    assert_refused(role, lambda replica: replica.become_follower(Epoch(9), NodeId(1), endpoints(1), 0))


@pytest.mark.spec("ELEC-33")
@pytest.mark.parametrize("role", ALL_STARTS)
def test_nobody_follows_a_leader_without_endpoints(role):
    assert_refused(role, lambda replica: replica.become_follower(Epoch(9), NodeId(2), (), 0))


@pytest.mark.spec("ELEC-30")
@pytest.mark.parametrize("leader_id", [2, 3])
def test_follower_is_not_told_twice_without_more_endpoints(leader_id):
    assert_refused(
        "follower",
        lambda replica: replica.become_follower(Epoch(2), NodeId(leader_id), endpoints(leader_id), 0),
    )


@pytest.mark.spec("ELEC-35")
def test_leader_follows_nobody_in_its_epoch():
    assert_refused("leader", lambda replica: replica.become_follower(replica.epoch, NodeId(2), endpoints(2), 0))


@pytest.mark.spec("ELEC-40")
def test_observer_never_stands_for_election():
    core = core_of(2, 3, local=1)
    with pytest.raises(RuntimeError):
        core._replica.become_prospective(0)
    for now_ms in range(0, 60_000, 500):
        core.handle_timeout(now_ms)
        assert core.role.name == "unattached"
    assert core.epoch == 1  # that of its log


@pytest.mark.spec("VOTE-20")
@pytest.mark.parametrize("directory", [1, 9])
def test_nobody_votes_for_its_own_id(directory):
    assert_refused("unattached", lambda replica: replica.add_vote(key(1, directory), 0))
