"""What a replica makes of answers that are no failures, and when a change of the voters is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.raft.connections import Connections
from kraftlog.raft.control_records import VotersChange
from kraftlog.raft.effects import SendRequest, SendResponse
from kraftlog.raft.log import LogState
from kraftlog.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kraftlog.types import Epoch, NodeId, Offset, SnapshotId
from raft_fixture import candidate_of, core_of, fetch, follower_of, key, leader_of, requests_of, voter_set

SNAPSHOT = SnapshotId(Offset(9), Epoch(2))
VOTE = VoteRequest(
    replica_key=key(2), replica_epoch=Epoch(1), last_epoch=Epoch(0), last_epoch_end_offset=Offset(0), pre_vote=True
)


def downloading():
    """A follower whose first question for a piece of a snapshot is under way, at 1 000 ms."""
    core = follower_of(1, 2, 3)
    core.handle_timeout(1000)
    told = FetchResponse(leader_id=NodeId(2), leader_epoch=Epoch(2), snapshot_id=SNAPSHOT)
    core.handle_response(2, requests_of(core)[2].correlation_id, told, 1000)
    return core, requests_of(core)[2]


@pytest.mark.spec("FTCH-46", "RPC-22")
def test_fetch_from_a_leader_that_does_not_know_the_epoch_yet_is_sent_again_at_once():
    core = follower_of(1, 2, 3)
    core.handle_timeout(0)
    first = requests_of(core)[2]
    answer = FetchResponse(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, leader_id=NodeId(2), leader_epoch=core.epoch)
    core.handle_response(2, first.correlation_id, answer, 1)
    again = requests_of(core)[2]
    assert again.request == first.request
    assert core.role.fetch_deadline_ms == 2000


@pytest.mark.spec("CONN-09", "CONN-11")
@pytest.mark.parametrize("error_code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_who_cannot_say_where_the_leader_is_is_asked_again_after_a_pause(error_code):
    """A voter that had been down was asked a thousand times per second while the leader was down."""
    core = follower_of(1, 2, 3)
    core.handle_timeout(0)
    leader = requests_of(core)[2]
    core.handle_no_response(2, leader.correlation_id, 1)
    other = requests_of(core)[3]
    answer = FetchResponse(error_code=error_code, leader_epoch=Epoch(core.epoch - 1))
    core.handle_response(3, other.correlation_id, answer, 2)
    assert requests_of(core) == {}
    core.handle_timeout(21)
    assert list(requests_of(core)) == [2], "the leader first"


@pytest.mark.spec("SNAP-41")
def test_piece_is_asked_for_again_where_the_leader_does_not_know_the_epoch_yet():
    core, sent = downloading()
    answer = FetchSnapshotResponse(
        error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, leader_id=NodeId(2), leader_epoch=core.epoch
    )
    core.handle_response(2, sent.correlation_id, answer, 1100)
    again = requests_of(core)[2]
    assert again.request == sent.request
    assert core.role.fetch_deadline_ms == 3000


@pytest.mark.spec("SNAP-39", "SNAP-44")
@pytest.mark.parametrize("is_there", [True, False])
def test_each_answer_about_a_snapshot_resets_the_fetch_timer(is_there):
    core, sent = downloading()
    leader = {"leader_id": NodeId(2), "leader_epoch": core.epoch}
    answer = (
        FetchSnapshotResponse(**leader, snapshot_id=SNAPSHOT, size_bytes=200, chunk_bytes=100)
        if is_there
        else FetchSnapshotResponse(**leader, error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
    )
    core.handle_response(2, sent.correlation_id, answer, 1900)
    assert core.role.fetch_deadline_ms == 3900
    assert core.role.has_fetched
    following = requests_of(core)[2].request
    assert isinstance(following, FetchSnapshotRequest if is_there else FetchRequest)


@pytest.mark.spec("SNAP-38")
@pytest.mark.parametrize("level", [0, 1])
def test_loaded_snapshot_has_the_level_that_counts_from_then_on(level):
    core, sent = downloading()
    piece = FetchSnapshotResponse(
        leader_id=NodeId(2), leader_epoch=core.epoch, snapshot_id=SNAPSHOT, size_bytes=100, chunk_bytes=100
    )
    core.handle_response(2, sent.correlation_id, piece, 1000)
    core.on_snapshot_installed(SNAPSHOT, 100, kraft_version=level, voters=None, now_ms=1000)
    assert core.kraft_version == level
    assert (core.log.start_offset, core.log.end_offset, core.high_watermark) == (9, 9, 9)


def joining(*, is_old):
    """An observer that asks to be a voter, or that its old self is removed first."""
    core = core_of(2, 3, local=1, auto_join=True)
    if is_old:
        core = core_of(1, 2, 3, local=1, auto_join=True)
        object.__setattr__(core.config, "local_key", key(1, 9))
        core._replica.local_key = key(1, 9)
        core._replica._asked_voters = None
    core._replica.become_follower(Epoch(2), NodeId(2), core.voters.endpoints_of(NodeId(2)), 0)
    core.take_effects()
    core.handle_timeout(2000)
    sent = requests_of(core)[2]
    assert isinstance(sent.request, RemoveVoterRequest if is_old else AddVoterRequest)
    return core, sent


@pytest.mark.spec("JOIN-04", "JOIN-05", "JOIN-06")
@pytest.mark.parametrize(
    ("is_old", "error", "is_fine"),
    [
        (False, 0, True),
        (False, ErrorCode.REQUEST_TIMED_OUT, True),
        (False, ErrorCode.DUPLICATE_VOTER, True),
        (False, ErrorCode.VOTER_NOT_FOUND, False),
        (False, ErrorCode.INVALID_REQUEST, False),
        (True, 0, True),
        (True, ErrorCode.REQUEST_TIMED_OUT, True),
        (True, ErrorCode.VOTER_NOT_FOUND, True),
        (True, ErrorCode.DUPLICATE_VOTER, False),
        (True, ErrorCode.UNSUPPORTED_VERSION, False),
    ],
)
def test_who_joins_fetches_at_once_after_an_answer_that_ends_its_wish_and_is_quiet_after_others(is_old, error, is_fine):
    core, sent = joining(is_old=is_old)
    kind = RemoveVoterResponse if is_old else AddVoterResponse
    core.handle_response(2, sent.correlation_id, kind(top_level_error_code=error), 2100)
    assert core._replica.connections.is_backing_off(NodeId(2), 2100) is not is_fine
    asked = [effect.request for effect in core.take_effects() if isinstance(effect, SendRequest)]
    assert all(isinstance(request, FetchRequest) for request in asked)
    assert core.role.update_voter_deadline_ms == 4100


@pytest.mark.spec("RCFG-38", "RCFG-28")
def test_change_of_the_voters_is_over_when_its_own_record_is_committed_not_the_one_before():
    core = leader_of(1, 2, 3)
    fetch(core, 2, 4)
    core.propose([b"before"], 0)
    core.take_effects()
    core.handle_request("admin", RemoveVoterRequest(voter_key=key(3)), 0)
    core.on_flushed(core.log.end_offset, 0)
    voters_offset = core.voters_offset
    told = [
        effect
        for effect in fetch(core, 2, voters_offset)
        if isinstance(effect, SendResponse) and effect.source == "admin"
    ]
    assert core.high_watermark == voters_offset
    assert not told
    told = [
        effect
        for effect in fetch(core, 2, voters_offset + 1)
        if isinstance(effect, SendResponse) and effect.source == "admin"
    ]
    assert [effect.response.top_level_error_code for effect in told] == [0]


class Cleaned:
    """A log that begins behind a snapshot, with records of two later epochs."""

    log_start_offset = 4
    log_end_offset = 9
    leader_epochs = ((3, 4), (5, 7))
    snapshots = ((SnapshotId(Offset(4), Epoch(2)), 10), (SnapshotId(Offset(6), Epoch(3)), 10))


@pytest.mark.spec("FTCH-19", "FTCH-20")
def test_fetch_from_the_start_of_the_log_has_to_end_with_the_epoch_of_the_snapshot_there():
    log = LogState(Cleaned())
    latest = SnapshotId(Offset(6), Epoch(3))
    assert log.check_fetch(Offset(4), Epoch(2)) is None
    for last_epoch in (0, 1, 3, 5, 9):
        assert log.check_fetch(Offset(4), Epoch(last_epoch)) == latest, last_epoch
    assert log.check_fetch(Offset(5), Epoch(1)) == latest
    assert log.check_fetch(Offset(5), Epoch(3)) is None


@pytest.mark.spec("CQ-04", "CQ-02")
def test_fetch_of_a_voter_that_was_removed_counts_for_no_majority_of_the_others():
    core = leader_of(1, 2, 3, 4, 5)
    fetch(core, 2, 4, now_ms=100)
    core._replica.append_control([VotersChange(voters=voter_set(1, 3, 4, 5))])
    fetch(core, 3, 4, now_ms=200)
    assert core.role.check_quorum_deadline_ms == 3000
    fetch(core, 4, 4, now_ms=300)
    assert core.role.check_quorum_deadline_ms == 3300


@pytest.mark.spec("CONN-06")
def test_change_of_role_forgets_what_is_under_way_and_who_is_left_alone():
    connections = Connections(request_timeout_ms=2000, retry_backoff_ms=20)
    failed = connections.on_sent(NodeId(2), VOTE, 0)
    connections.on_answered(NodeId(2), failed, 0, is_success=False)
    asked = connections.on_sent(NodeId(3), VOTE, 0)
    assert not connections.is_ready(NodeId(2), 19)
    assert not connections.is_ready(NodeId(3), 19)
    connections.reset()
    assert connections.is_ready(NodeId(2), 0)
    assert connections.is_ready(NodeId(3), 0)
    assert connections.request_under_way(NodeId(3), asked, 0) is None


@pytest.mark.spec("ELEC-26")
@pytest.mark.parametrize("local", ["candidate", "prospective"])
def test_election_timer_runs_on_when_a_higher_epoch_is_seen(local):
    core = candidate_of(1, 2, 3) if local == "candidate" else core_of(1, 2, 3)
    core.handle_timeout(0 if local == "candidate" else 5000)
    assert core.role.name == local
    deadline_ms = core.role.deadline_ms
    request = replace(VOTE, replica_epoch=Epoch(9))
    core.handle_request(2, request, deadline_ms - 1)
    assert (core.role.name, core.epoch) == ("unattached", 9)
    assert core.role.deadline_ms == deadline_ms


@pytest.mark.spec("PREV-11", "PREV-12", "ENDP-29")
def test_vote_that_a_peer_refuses_for_its_version_leads_to_a_standard_election_and_later_means_nothing():
    core = core_of(1, 2, 3)
    core.handle_timeout(5000)
    asked = requests_of(core)
    refused = VoteResponse(top_level_error_code=ErrorCode.UNSUPPORTED_VERSION)
    core.handle_response(2, asked[2].correlation_id, refused, 5001)
    assert (core.role.name, core.epoch) == ("candidate", 2)
    votes = requests_of(core)
    assert [votes[number].request.pre_vote for number in (2, 3)] == [False, False]
    core.handle_response(3, asked[3].correlation_id, refused, 5002)
    core.handle_response(3, votes[3].correlation_id, refused, 5003)
    assert (core.role.name, core.epoch) == ("candidate", 2)
    core.handle_response(2, votes[2].correlation_id, VoteResponse(leader_epoch=Epoch(2), vote_granted=True), 5004)
    assert core.is_leader
