"""Answers that grant, acknowledge and give nothing, and what becomes of those who wait for them."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.raft.control_records import VotersChange
from kraftlog.raft.effects import AbandonSnapshot, Fault, InstallSnapshot, Notice, SendRequest
from kraftlog.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteResponse,
)
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet
from kraftlog.types import Epoch, NodeId, Offset, SnapshotId
from raft_fixture import candidate_of, core_of, endpoints, fetch, follower_of, key, leader_of, requests_of, voter_set

STRANGE = ErrorCode.UNKNOWN_SERVER_ERROR


def notices(effects):
    return [effect.text for effect in effects if isinstance(effect, Notice)]


def downloading():
    """A follower whose first question for a piece of snapshot 9-2 is under way, at 1 000 ms."""
    core = follower_of(1, 2, 3)
    core.handle_timeout(1000)
    asked = requests_of(core)[2]
    told = FetchResponse(leader_id=NodeId(2), leader_epoch=Epoch(2), snapshot_id=SnapshotId(Offset(9), Epoch(2)))
    core.handle_response(2, asked.correlation_id, told, 1000)
    sent = requests_of(core)[2]
    assert isinstance(sent.request, FetchSnapshotRequest)
    return core, sent.correlation_id


@pytest.mark.spec("VOTE-24", "RPC-28")
def test_voter_that_answers_with_an_error_has_rejected_nobody():
    core = candidate_of(1, 2, 3)
    core.handle_timeout(0)
    for node_id, sent in requests_of(core).items():
        answer = VoteResponse(error_code=STRANGE, leader_epoch=core.epoch)
        core.handle_response(node_id, sent.correlation_id, answer, 0)
    assert notices(core.take_effects()) == [f"{number} answers a Vote with UNKNOWN_SERVER_ERROR" for number in (2, 3)]
    assert isinstance(core.role, Candidate)
    assert not core.role.election.is_rejected
    core.handle_timeout(20)
    assert sorted(requests_of(core)) == [2, 3]


@pytest.mark.spec("CQ-12", "RPC-18")
def test_voter_that_answers_with_an_error_has_acknowledged_nothing():
    core = leader_of(1, 2, 3)
    core.handle_timeout(2000)  # those from its election have timed out
    core.confirm_leadership(2000)
    begun = requests_of(core)[2]
    refused = BeginQuorumEpochResponse(error_code=STRANGE, leader_id=NodeId(1), leader_epoch=core.epoch)
    core.handle_response(2, begun.correlation_id, refused, 2000)
    assert core.role.confirmed_round == 0
    core = leader_of(1, 2, 3)
    core.resign(0)
    ended = requests_of(core)[2]
    refused = EndQuorumEpochResponse(error_code=STRANGE, leader_id=NodeId(1), leader_epoch=core.epoch)
    core.handle_response(2, ended.correlation_id, refused, 0)
    assert core.role.unacknowledged == [2, 3]
    core.take_effects()
    core.handle_timeout(20)
    assert list(requests_of(core)) == [2]


@pytest.mark.spec("RPC-27")
@pytest.mark.parametrize("error", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_follower_that_may_not_fetch_a_snapshot_says_so_and_ends(error):
    core, correlation_id = downloading()
    core.handle_response(2, correlation_id, FetchSnapshotResponse(top_level_error_code=error), 1000)
    assert [effect.is_fatal for effect in core.take_effects() if isinstance(effect, Fault)] == [True]


@pytest.mark.spec("RPC-25", "RPC-28")
def test_download_outlives_a_leader_that_is_not_available_and_ends_with_other_errors():
    core, correlation_id = downloading()
    answer = FetchSnapshotResponse(top_level_error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    core.handle_response(2, correlation_id, answer, 1100)
    assert core.role.download is not None
    core, correlation_id = downloading()
    core.handle_response(2, correlation_id, FetchSnapshotResponse(top_level_error_code=STRANGE), 1100)
    effects = core.take_effects()
    assert any(isinstance(effect, AbandonSnapshot) for effect in effects)
    assert notices(effects) == ["2 refuses a FetchSnapshotRequest with UNKNOWN_SERVER_ERROR"]
    assert core.role.fetch_deadline_ms == 3000, "no fetch has succeeded"


@pytest.mark.spec("SNAP-37", "SNAP-42")
def test_snapshot_that_is_longer_than_it_was_said_to_be_is_not_installed():
    core, correlation_id = downloading()
    leader = {"leader_id": NodeId(2), "leader_epoch": Epoch(2), "snapshot_id": SnapshotId(Offset(9), Epoch(2))}
    piece = FetchSnapshotResponse(**leader, size_bytes=100, position=0, chunk_bytes=101)
    core.handle_response(2, correlation_id, piece, 1000)
    effects = core.take_effects()
    assert not any(isinstance(effect, InstallSnapshot) for effect in effects)
    assert any(isinstance(effect, AbandonSnapshot) for effect in effects)
    assert core.role.download is None


@pytest.mark.spec("RCFG-55", "RCFG-58")
@pytest.mark.parametrize(
    ("error", "is_acknowledged"),
    [(0, True), (ErrorCode.UNSUPPORTED_VERSION, True), (ErrorCode.REQUEST_TIMED_OUT, False), (STRANGE, False)],
)
def test_update_that_the_leader_took_or_cannot_take_counts_as_a_fetch(error, is_acknowledged):
    core = follower_of(1, 2, 3, now_ms=0)
    moved = Voter(key(1), (Endpoint("CONTROLLER", "elsewhere", 1),), 0, 1)
    core._replica.voters.add(Offset(2), VoterSet([moved, *(voter for voter in voter_set(2, 3))]))
    core.role.update_voter_deadline_ms = 1500
    core.handle_timeout(1500)
    sent = requests_of(core)[2]
    assert isinstance(sent.request, UpdateVoterRequest)
    answer = UpdateVoterResponse(top_level_error_code=error, leader_id=NodeId(2), leader_epoch=core.epoch)
    core.handle_response(2, sent.correlation_id, answer, 1900)
    assert core.role.has_updated_leader is is_acknowledged
    assert core.role.has_fetched is is_acknowledged
    assert core.role.fetch_deadline_ms == (3900 if is_acknowledged else 2000)
    assert bool(notices(core.take_effects())) is not is_acknowledged


@pytest.mark.spec("RCFG-54", "RCFG-60")
def test_order_of_endpoints_and_case_of_listener_names_are_nothing_to_correct():
    both = (Endpoint("CONTROLLER", "node1", 9093), Endpoint("SSL", "node1", 9094))
    written = Voter(key(1), (Endpoint("ssl", "node1", 9094), Endpoint("controller", "node1", 9093)), 0, 1)
    own = Voter(key(1), both, 0, 1)
    assert written == own
    assert hash(written) == hash(own)
    assert Voter(key(1), both[:1], 0, 1) != own
    assert Voter(key(1), (both[0], Endpoint("SSL", "node1", 9095)), 0, 1) != own
    core = core_of(1)
    core._replica.voters.add(Offset(1), VoterSet([written]))
    object.__setattr__(core.config, "local_endpoints", both)
    core.handle_timeout(5000)
    assert core.is_leader
    assert core.voters_offset == 1, "the leader writes no voters where nothing has changed"


@pytest.mark.spec("ENDP-04", "RCFG-14", "RCFG-16")
def test_voter_with_two_endpoints_of_one_listener_is_refused_by_the_leader_only():
    twice = (Endpoint("CONTROLLER", "a", 1), Endpoint("Controller", "b", 2))
    addition = AddVoterRequest(voter_key=key(4), endpoints=twice)
    for core, code in (
        (leader_of(1, 2), ErrorCode.INVALID_REQUEST),
        (follower_of(1, 2), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        core.handle_request("admin", addition, 0)
        told = [effect.response for effect in core.take_effects() if getattr(effect, "source", None) == "admin"]
        assert [response.top_level_error_code for response in told] == [code]
    core = leader_of(1, 2)
    fetch(core, 2, 4)
    update = UpdateVoterRequest(
        current_leader_epoch=core.epoch, voter_key=key(2), min_kraft_version=0, max_kraft_version=1, endpoints=twice
    )
    core.handle_request("voter", update, 0)
    told = [effect.response for effect in core.take_effects() if getattr(effect, "source", None) == "voter"]
    assert [response.top_level_error_code for response in told] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.spec("HWM-13")
def test_fetch_that_goes_back_is_told_to_whoever_runs_the_leader():
    core = leader_of(1, 2, 3)
    assert notices(fetch(core, 2, 4)) == []
    assert notices(fetch(core, 2, 4)) == []
    assert notices(fetch(core, 2, 0, last=0)) == [f"{key(2)} fetches from 0 after 4: has it lost its disk?"]
    assert core.high_watermark == 4


@pytest.mark.spec("OBS-08", "OBS-10")
def test_removed_voter_that_never_fetched_is_forgotten_like_one_that_is_silent():
    core = leader_of(1, 2, 3)
    core._replica.append_control([VotersChange(voters=voter_set(1, 2))])
    assert [progress.key.node_id for progress in core.observer_progress(1000)] == [3]
    assert [progress.key.node_id for progress in core.observer_progress(300_999)] == [3]
    assert core.observer_progress(301_000) == ()


@pytest.mark.spec("PREV-11", "CQ-21")
def test_prospective_replica_that_shuts_down_still_stands_where_pre_votes_are_not_known():
    core = core_of(1, 2, 3)
    core.handle_timeout(5000)
    asked = requests_of(core)
    core.shut_down(5000)
    core.take_effects()
    core.handle_no_response(2, asked[2].correlation_id, 5000, error_code=ErrorCode.UNSUPPORTED_VERSION)
    assert core.role.name == "candidate"
    assert all(not effect.request.pre_vote for effect in core.take_effects() if isinstance(effect, SendRequest))


@pytest.mark.spec("ENDP-08", "RCFG-22")
def test_new_voter_is_asked_on_the_listener_of_replicas():
    core = leader_of(1, 2)
    fetch(core, 2, 4)
    addition = AddVoterRequest(voter_key=key(4), endpoints=(Endpoint("SSL", "x", 1), *endpoints(4)))
    core.handle_request("admin", addition, 0)
    assert requests_of(core)[4].destination.endpoint == endpoints(4)[0]


@pytest.mark.spec("KVER-18")
@pytest.mark.parametrize(("level", "is_known"), [(0, True), (1, True), (2, False)])
def test_snapshot_of_a_level_that_nobody_knows_ends_the_replica(level, is_known):
    core, correlation_id = downloading()
    leader = {"leader_id": NodeId(2), "leader_epoch": Epoch(2), "snapshot_id": SnapshotId(Offset(9), Epoch(2))}
    piece = FetchSnapshotResponse(**leader, size_bytes=100, position=0, chunk_bytes=100)
    core.handle_response(2, correlation_id, piece, 1000)
    core.take_effects()
    core.on_snapshot_installed(
        SnapshotId(Offset(9), Epoch(2)), 100, kraft_version=level, voters=voter_set(1, 2, 3), now_ms=1000
    )
    faults = [effect.is_fatal for effect in core.take_effects() if isinstance(effect, Fault)]
    assert faults == ([] if is_known else [True])
    assert core.is_halted is not is_known
