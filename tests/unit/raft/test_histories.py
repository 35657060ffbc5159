"""Voter sets, and what they were before an offset."""

from __future__ import annotations

import random

import pytest

from kraftlog.raft.control_records import VotersChange
from kraftlog.raft.core import RaftCore
from kraftlog.raft.effects import Fault
from kraftlog.raft.voter_set import LogHistory, Voter
from kraftlog.types import Epoch, NodeId, Offset, SnapshotId
from raft_fixture import FoundLog, follower_of, key, voter_set


@pytest.mark.spec("RCFG-01", "RCFG-02", "RCFG-03", "RCFG-04", "RCFG-05", "RCFG-06")
def test_voter_set_changes():
    voters = voter_set(1, 2, 3)
    assert voters.with_added(Voter(key(3, 9))) is None
    assert voters.with_added(Voter(key(4))).ids == (1, 2, 3, 4)
    assert voters.with_removed(key(3, 9)) is None
    assert voters.with_removed(key(4)) is None
    assert voters.with_removed(key(3)).ids == (1, 2)
    assert voter_set(1).with_removed(key(1)) is None
    assert voters.with_updated(Voter(key(4))) is None
    assert voters.with_updated(Voter(key(3, 9))) is None
    assert voters.with_updated(Voter(key(3), (), 1, 1)).get(NodeId(3)) == Voter(key(3), (), 1, 1)
    assert voters.with_updated(Voter(key(3, 9)), ignores_directory_id=True).contains(key(3, 9))
    assert voters.contains(key(3))
    assert not voters.contains(key(3, 9))
    assert voters.has_overlapping_majority(voter_set(1, 2))
    assert voters.has_overlapping_majority(voter_set(1, 2, 4))
    assert not voters.has_overlapping_majority(voter_set(1, 4, 5))


@pytest.mark.spec("RCFG-08", "RCFG-09", "SNAP-11", "SNAP-16")
def test_history_of_voter_sets_by_offset():
    core = follower_of(1, 2, 3)
    core.log.append(Epoch(2), 10)
    history = core._replica.voters
    history.add(Offset(5), voter_set(1, 2))
    history.add(Offset(8), voter_set(2))
    with pytest.raises(ValueError, match="not above"):
        history.add(Offset(8), voter_set(1))
    assert [core.voters_before(Offset(end)).ids for end in (1, 5, 6, 8, 9)] == [
        (1, 2, 3),
        (1, 2, 3),
        (1, 2),
        (1, 2),
        (2,),
    ]
    core.on_snapshot_created(SnapshotId(Offset(7), Epoch(1)), 10)
    assert core.voters_before(Offset(7)).ids == (1, 2)
    assert core.voters.ids == (2,)


@pytest.mark.spec("RCFG-08")
def test_voter_set_without_a_common_majority_is_reported_and_taken_but_the_first_one_is_not_compared():
    core = follower_of(1, 2, 3)
    core._replica.apply_control(Offset(3), VotersChange(voters=voter_set(1, 2, 4)))
    assert not any(isinstance(effect, Fault) for effect in core.take_effects())
    core._replica.apply_control(Offset(4), VotersChange(voters=voter_set(1, 7, 8)))
    faults = [effect for effect in core.take_effects() if isinstance(effect, Fault)]
    assert [(fault.is_fatal, "no common majority" in fault.reason) for fault in faults] == [(False, True)]
    assert core.voters.ids == (1, 7, 8)
    static = RaftCore(
        core.config,
        None,
        FoundLog(),
        voters=LogHistory(voter_set(1, 2, 3)),
        kraft_versions=LogHistory(1),
        rng=random.Random(1),
        now_ms=0,
    )
    static._replica.apply_control(Offset(3), VotersChange(voters=voter_set(7, 8, 9)))
    assert not any(isinstance(effect, Fault) for effect in static.take_effects())


@pytest.mark.spec("RCFG-09", "SNAP-09")
def test_static_voters_are_of_no_record_and_go_into_no_snapshot():
    history = LogHistory(voter_set(1, 2, 3))
    assert history.latest == voter_set(1, 2, 3)
    assert history.value_before(Offset(100)) is None
    history.add(Offset(5), voter_set(1, 2))
    assert history.value_before(Offset(5)) is None
    assert history.value_before(Offset(6)) == voter_set(1, 2)
    history.truncate_to(Offset(5))
    assert (history.latest, history.value_before(Offset(100))) == (voter_set(1, 2, 3), None)
