"""Behaviours of the core that no message can show: transitions that are refused, values that are counted.

What messages do show is in tests/scenarios.
"""

from __future__ import annotations

import itertools
import random

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.raft.config import RaftConfig
from kraftlog.raft.connections import Connections, Destination, bootstrap_destinations
from kraftlog.raft.control_records import VotersChange
from kraftlog.raft.core import RaftCore
from kraftlog.raft.effects import Fault, HighWatermarkAdvanced, SendRequest, SendResponse
from kraftlog.raft.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    RemoveVoterRequest,
    VoteResponse,
)
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.raft.voter_set import Endpoint, LogHistory, Voter, VoterSet
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, ReplicaKey, SnapshotId, Uuid


def key(node_id, directory=None):
    return ReplicaKey(NodeId(node_id), Uuid(bytes([directory or node_id] * 16)))


def endpoints(node_id):
    return (Endpoint("CONTROLLER", f"node{node_id}", 9093),)


def voter_set(*ids):
    return VoterSet(Voter(key(one), endpoints(one), 0, 1) for one in ids)


class FoundLog:
    log_start_offset = 0
    log_end_offset = 3
    leader_epochs = ((1, 0),)
    snapshots = ()


def core_of(*ids, local=1, stored=None, now_ms=0, **options):
    history, kraft_versions = LogHistory(VoterSet()), LogHistory(0)
    history.add(Offset(0), voter_set(*ids))
    kraft_versions.add(Offset(0), 1)
    return RaftCore(
        RaftConfig(cluster_id="c", local_key=key(local), local_endpoints=endpoints(local), **options),
        stored,
        FoundLog(),
        voters=history,
        kraft_versions=kraft_versions,
        rng=random.Random(1),
        now_ms=now_ms,
    )


def candidate_of(*ids, **options):
    return core_of(*ids, stored=ElectionState(epoch=Epoch(2), voted_key=key(1)), **options)


def requests_of(core):
    return {one.destination.node_id: one for one in core.take_effects() if isinstance(one, SendRequest)}


def leader_of(*ids, **options):
    core = candidate_of(*ids, **options)
    core.handle_timeout(0)
    for node_id, sent in requests_of(core).items():
        core.handle_response(node_id, sent.correlation_id, VoteResponse(leader_epoch=core.epoch, vote_granted=True), 0)
    assert core.is_leader
    core.on_flushed(core.log.end_offset, 0)
    core.take_effects()
    return core


def follower_of(*ids, **options):
    return core_of(*ids, stored=ElectionState(epoch=Epoch(2), leader_id=NodeId(2)), **options)


def fetch(core, node_id, offset, *, now_ms=0, directory=None, last=None):
    request = FetchRequest(
        replica_key=key(node_id, directory),
        current_leader_epoch=core.epoch,
        fetch_offset=Offset(offset),
        last_fetched_epoch=core.epoch if last is None else Epoch(last),
    )
    core.handle_request(node_id, request, now_ms)
    return core.take_effects()


# Transitions that are refused

STARTS = {
    "unattached": lambda: core_of(1, 2, 3),
    "follower": lambda: follower_of(1, 2, 3),
    "candidate": lambda: candidate_of(1, 2, 3),
    "resigned": lambda: core_of(1, 2, 3, stored=ElectionState(epoch=Epoch(2), leader_id=NodeId(1))),
    "leader": lambda: leader_of(1, 2, 3),
}


def prospective():
    core = core_of(1, 2, 3)
    core.handle_timeout(5000)
    return core


ALL_STARTS = {**STARTS, "prospective": prospective}


def replica_in(role):
    core = ALL_STARTS[role]()
    assert core.role.name == role
    return core, core._replica


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


# Votes


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
    role = Resigned(Epoch(1), local_id=NodeId(1), deadline_ms=0, voters=[NodeId(one) for one in (1, 2, 3)])
    with pytest.raises(ValueError, match="not in the voter set"):
        role.acknowledge(NodeId(9))
    role.acknowledge(NodeId(2))
    assert role.unacknowledged == [3]


# The high watermark


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
    static = VoterSet(Voter(ReplicaKey(NodeId(one)), endpoints(one)) for one in (1, 2, 3))
    role = Leader(Epoch(2), local_key=key(1), voters=static, epoch_start_offset=Offset(3))
    role.on_fetch(key(2), Offset(5), Offset(9), 0)
    role.set_voters(voter_set(1, 2, 3))
    assert [one.log_end_offset for one in role.progress(0)] == [None, 5, None]


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


# What the leader knows of others


@pytest.mark.spec("OBS-08")
def test_observer_that_is_silent_for_five_minutes_is_forgotten():
    core = leader_of(1, 2, 3)
    fetch(core, 8, 4)
    fetch(core, 9, 4, now_ms=1)
    assert [one.key.node_id for one in core.observer_progress(299_999)] == [8, 9]
    assert [one.key.node_id for one in core.observer_progress(300_000)] == [9]
    core.role.set_voters(voter_set(2, 3))
    assert [one.key.node_id for one in core.observer_progress(900_000)] == [1]


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
    assert [(one.key.node_id, one.endpoints[0].host) for one in core.voters] == [(1, "node1"), (2, "node2")]
    assert [one.key.node_id for one in core.observer_progress(0)] == [3]


# Voter sets and histories


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


# Connections


@pytest.mark.spec("CONN-01", "CONN-02", "CONN-03", "CONN-04", "CONN-06")
def test_one_request_at_a_time_with_time_out_and_back_off():
    connections = Connections(request_timeout_ms=100, retry_backoff_ms=20)
    assert connections.is_ready(NodeId(2), 0)
    first = connections.on_sent(NodeId(2), ApiVersionsRequest(), 0)
    assert not connections.is_ready(NodeId(2), 99)
    assert connections.is_ready(NodeId(3), 99)
    connections.on_answered(NodeId(2), first + 1, 50, is_success=True)
    assert not connections.is_ready(NodeId(2), 99)
    assert connections.is_ready(NodeId(2), 100)
    assert connections.request_under_way(NodeId(2), first, 100) is None
    second = connections.on_sent(NodeId(2), ApiVersionsRequest(), 100)
    connections.on_answered(NodeId(2), second, 110, is_success=False)
    assert connections.is_backing_off(NodeId(2), 129)
    assert connections.is_ready(NodeId(2), 130)
    third = connections.on_sent(NodeId(2), ApiVersionsRequest(), 130)
    connections.on_answered(NodeId(2), third, 131, is_success=True)
    assert connections.is_ready(NodeId(2), 131)
    fourth = connections.on_sent(NodeId(2), ApiVersionsRequest(), 131)
    connections.reset()
    assert connections.request_under_way(NodeId(2), fourth, 132) is None


@pytest.mark.spec("CONN-05")
def test_bootstrap_servers_are_chosen_from_a_random_one_on():
    connections = Connections(request_timeout_ms=100, retry_backoff_ms=20)
    servers = bootstrap_destinations([Endpoint("CONTROLLER", "host", port) for port in range(4)])
    rng = random.Random(3)
    assert {connections.choose(servers, 0, rng) for _ in range(60)} == set(servers)
    connections.on_sent(NodeId(-3), ApiVersionsRequest(), 0)
    chosen = {connections.choose(servers, 50, rng).node_id for _ in range(60)}
    assert chosen == {-2, -4, -5}
    assert NodeId(-3) in {connections.choose(servers, 100, rng).node_id for _ in range(60)}
    assert connections.choose((), 0, rng) is None
    assert isinstance(servers[0], Destination)


@pytest.mark.spec("CONN-10", "CONN-11", "JOIN-14", "RCFG-56")
@pytest.mark.parametrize("role", ALL_STARTS)
@pytest.mark.parametrize("shuts_down", [False, True])
def test_nobody_is_woken_without_end(role, shuts_down):
    """Each time that is asked for comes, peers never answer: no role may spin."""
    core, replica = replica_in(role)
    now_ms = 5000 if role == "prospective" else 0
    if shuts_down:
        core.shut_down(now_ms)
    end_ms, polls = now_ms + 60_000, 0
    while (wanted_ms := core.next_timeout_ms()) is not None and wanted_ms < end_ms:
        now_ms = max(now_ms, wanted_ms)
        core.handle_timeout(now_ms)
        replica.effects.clear()
        polls += 1
        assert polls < 60 * 50, f"{role} was woken {polls} times until {now_ms}"


@pytest.mark.spec("CONN-19", "FTCH-32")
def test_fetch_that_waits_is_answered_exactly_once():
    core = leader_of(1, 2, 3)
    request = FetchRequest(
        replica_key=key(9),
        current_leader_epoch=core.epoch,
        fetch_offset=core.log.end_offset,
        last_fetched_epoch=core.epoch,
        max_wait_ms=500,
    )
    core.handle_request("waiting", request, 0)
    effects = core.take_effects()
    core.propose([b"x"], 500)
    core.handle_timeout(500)
    effects += core.take_effects()
    core.handle_timeout(900)
    core.resign(900)
    effects += core.take_effects()
    answers = [one for one in effects if isinstance(one, SendResponse) and one.source == "waiting"]
    assert len(answers) == 1


@pytest.mark.spec("RCFG-26")
def test_answer_to_somebody_elses_question_does_not_add_a_voter():
    core = leader_of(1, 2)
    core.handle_response(NodeId(3), 77, ApiVersionsResponse(min_kraft_version=0, max_kraft_version=1), 0)
    assert core.take_effects() == []
    assert core.voters.ids == (1, 2)


@pytest.mark.spec("FTCH-43")
def test_answer_to_a_fetch_from_before_a_truncation_is_ignored():
    core = follower_of(1, 2, 3)
    core.handle_timeout(0)
    sent = requests_of(core)[2]
    core._replica.log.truncate_to(Offset(1))
    core.handle_response(NodeId(2), sent.correlation_id, FetchResponse(leader_id=NodeId(2), leader_epoch=core.epoch), 0)
    assert isinstance(core.role, Follower)
    assert core.role.has_fetched is False


def test_roles_have_the_names_that_scenarios_print():
    assert {type(replica_in(role)[0].role) for role in ALL_STARTS} == {
        Unattached,
        Follower,
        Candidate,
        Resigned,
        Leader,
        Prospective,
    }
