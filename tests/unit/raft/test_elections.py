"""Votes and acknowledgements that no scenario can show."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.raft.effects import Fault
from kraftlog.raft.messages import (
    VoteResponse,
)
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.types import Epoch, NodeId
from raft_fixture import candidate_of, follower_of, requests_of, voter_set


@pytest.mark.spec("VOTE-23")
@pytest.mark.parametrize("granted", [True, False])
def test_voter_that_changes_its_vote_is_reported_and_its_first_answer_stands(granted):
    core = candidate_of(1, 2, 3, 4, 5)
    core.handle_timeout(0)
    election = core.role.election
    answer = VoteResponse(leader_epoch=core.epoch, vote_granted=not granted)
    election.record(NodeId(2), granted=granted)
    core._elections.handle_vote_response(NodeId(2), requests_of(core)[2].request, answer, 0)
    assert [effect.is_fatal for effect in core.take_effects() if isinstance(effect, Fault)] == [False]
    assert election.answer(NodeId(2)) is granted


@pytest.mark.spec("PREV-03", "PREV-04")
def test_the_last_answer_to_a_pre_vote_counts_and_strangers_do_not():
    election = Prospective(Epoch(1), local_id=NodeId(1), voters=voter_set(1, 2, 3), deadline_ms=0).election
    election.record(NodeId(2), granted=True)
    assert election.is_granted
    election.record(NodeId(2), granted=False)
    assert not election.is_granted
    election.record(NodeId(3), granted=False)
    assert election.is_rejected
    with pytest.raises(ValueError, match="not in the voter set"):
        election.record(NodeId(4), granted=True)
    with pytest.raises(ValueError, match="reject itself"):
        election.record(NodeId(1), granted=False)


@pytest.mark.spec("VOTE-33", "RPC-26")
def test_peer_that_calls_a_request_invalid_is_reported_and_changes_nothing():
    core = candidate_of(1, 2, 3)
    core.handle_timeout(0)
    sent = requests_of(core)[2]
    answer = VoteResponse(error_code=ErrorCode.INVALID_REQUEST, leader_epoch=core.epoch, vote_granted=True)
    core.handle_response(NodeId(2), sent.correlation_id, answer, 0)
    assert any(isinstance(effect, Fault) for effect in core.take_effects())
    assert (core.role.name, core.epoch) == ("candidate", 2)


@pytest.mark.spec("RPC-27")
def test_replica_that_is_not_authorised_stops():
    core = candidate_of(1, 2, 3)
    core.handle_timeout(0)
    sent = requests_of(core)[2]
    answer = VoteResponse(top_level_error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    core.handle_response(NodeId(2), sent.correlation_id, answer, 0)
    assert core.is_halted
    assert core.next_timeout_ms() is None


@pytest.mark.spec("FTCH-03")
def test_fetch_asks_for_what_is_configured():
    core = follower_of(1, 2, 3, fetch_max_bytes=1234)
    core.handle_timeout(0)
    request = requests_of(core)[2].request
    assert (request.max_bytes, request.max_wait_ms) == (1234, 500)


@pytest.mark.spec("CQ-16")
def test_acknowledgement_of_somebody_who_is_no_voter_is_refused():
    role = Resigned(Epoch(1), local_id=NodeId(1), deadline_ms=0, voters=[NodeId(number) for number in (1, 2, 3)])
    with pytest.raises(ValueError, match="not in the voter set"):
        role.acknowledge(NodeId(9))
    role.acknowledge(NodeId(2))
    assert role.unacknowledged == [3]
