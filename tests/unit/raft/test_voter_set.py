"""Voter sets as values, and how they change along the log."""

from __future__ import annotations

import pytest

from kraftlog.raft.voter_set import Endpoint, LogHistory, Voter, VoterSet
from kraftlog.types import NodeId, Offset, ReplicaKey, Uuid


def key(node_id, directory=None):
    return ReplicaKey(NodeId(node_id), Uuid(bytes([directory or node_id] * 16)))


def voter(node_id, directory=None, **fields):
    return Voter(key(node_id, directory), **fields)


def voters(*ids):
    return VoterSet(voter(identifier) for identifier in ids)


@pytest.mark.spec("RCFG-01")
def test_add_refuses_an_id_that_is_there_whatever_its_directory():
    assert voters(1, 2).with_added(voter(3)) == voters(1, 2, 3)
    assert voters(1, 2).with_added(voter(2, directory=9)) is None


@pytest.mark.spec("RCFG-02")
def test_remove_needs_id_and_directory_and_leaves_one():
    assert voters(1, 2).with_removed(key(2)) == voters(1)
    assert voters(1, 2).with_removed(key(2, directory=9)) is None
    assert voters(1).with_removed(key(1)) is None


@pytest.mark.spec("RCFG-03", "RCFG-04")
def test_update_replaces_endpoints_of_the_same_directory():
    moved = voter(2, endpoints=(Endpoint("CONTROLLER", "elsewhere", 1),))
    assert voters(1, 2).with_updated(moved).get(NodeId(2)) == moved
    other = voter(2, directory=9)
    assert voters(1, 2).with_updated(other) is None
    assert voters(1, 2).with_updated(other, ignores_directory_id=True).get(NodeId(2)) == other
    unknown = VoterSet([Voter(ReplicaKey(NodeId(2)))])
    assert unknown.with_updated(other).get(NodeId(2)) == other
    assert voters(1).with_updated(voter(5)) is None


@pytest.mark.spec("RCFG-06")
@pytest.mark.parametrize(
    ("before", "after", "overlaps"),
    [
        ((1, 2, 3), (1, 2, 3, 4), True),
        ((1, 2, 3), (1, 2), True),
        ((1, 2, 3), (1, 2, 4), True),
        ((1, 2, 3), (1, 4, 5), False),
        ((1, 2, 3), (1,), False),
    ],
)
def test_majorities_overlap_when_one_voter_differs(before, after, overlaps):
    assert voters(*before).has_overlapping_majority(voters(*after)) is overlaps


@pytest.mark.spec("ENDP-03", "ENDP-09")
def test_endpoint_is_found_by_listener_name_in_any_case():
    one = VoterSet([voter(1, endpoints=(Endpoint("CONTROLLER", "here", 1),))])
    assert one.endpoint(NodeId(1), "controller") == Endpoint("CONTROLLER", "here", 1)
    assert one.endpoint(NodeId(1), "SSL") is None
    assert one.endpoint(NodeId(2), "CONTROLLER") is None


@pytest.mark.spec("RCFG-10", "SNAP-16")
def test_history_goes_back_on_truncation_and_forgets_on_snapshots():
    history = LogHistory(voters(1))
    history.add(Offset(5), voters(1, 2))
    history.add(Offset(9), voters(1, 2, 3))
    history.trim_to(Offset(7))
    assert history.value_before(Offset(6)) == voters(1, 2)
    history.truncate_to(Offset(9))
    assert history.latest == voters(1, 2)
    history.truncate_to(Offset(5))
    assert history.latest == voters(1)
    history.restart_at(Offset(99), voters(7))
    assert (history.latest, history.latest_offset) == (voters(7), 99)


def test_keys_print_as_kafka_prints_them():
    assert str(ReplicaKey(NodeId(9))) == "ReplicaKey(id=9, directoryId=<undefined>)"
    assert str(key(1)) == f"ReplicaKey(id=1, directoryId={key(1).directory_id})"
