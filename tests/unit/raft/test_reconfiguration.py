"""Why a leader refuses to change the voter set, one reason at a time and in Kafka's order."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.control_records import VotersChange
from kraftlog.raft.effects import SendRequest, SendResponse
from kraftlog.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
)
from kraftlog.raft.voter_set import Endpoint
from kraftlog.types import Epoch, Offset, ReplicaKey, Uuid
from raft_fixture import endpoints, fetch, follower_of, key, leader_of, voter_set

END = 4
NO_DIRECTORY = ReplicaKey(key(4).node_id, Uuid.ZERO)


def committed_leader(**options):
    """A leader of 1, 2 and 3 that has committed in its epoch; an observer 4 has caught up."""
    core = leader_of(1, 2, 3, **options)
    fetch(core, 2, END)
    fetch(core, 4, END)
    assert core.high_watermark == END
    return core


def answer_to(core, request, now_ms=0):
    """Code and text of the one answer; None while there is none."""
    core.handle_request("client", request, now_ms)
    found = [
        effect.response
        for effect in core.take_effects()
        if isinstance(effect, SendResponse) and effect.source == "client"
    ]
    assert len(found) <= 1
    return (found[0].top_level_error_code, getattr(found[0], "error_message", None)) if found else None


def addition(voter_key=None, voter_endpoints=None, **fields):
    voter_endpoints = endpoints(4) if voter_endpoints is None else voter_endpoints
    return AddVoterRequest(voter_key=voter_key or key(4), endpoints=voter_endpoints, **fields)


TWO_OF_ONE_LISTENER = (*endpoints(4), Endpoint("controller", "elsewhere", 9094))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (addition(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (addition(ReplicaKey(type(key(4).node_id)(-1), key(4).directory_id)), ErrorCode.INVALID_REQUEST),
        (addition(NO_DIRECTORY), ErrorCode.INVALID_REQUEST),
        (addition(voter_endpoints=()), ErrorCode.INVALID_REQUEST),
        (addition(voter_endpoints=(Endpoint("OTHER", "node4", 9093),)), ErrorCode.INVALID_REQUEST),
        (addition(voter_endpoints=TWO_OF_ONE_LISTENER), ErrorCode.INVALID_REQUEST),
        (addition(key(2)), ErrorCode.DUPLICATE_VOTER),
        (addition(key(2, directory=9)), ErrorCode.DUPLICATE_VOTER),
    ],
)
def test_addition_is_refused_without_asking_the_replica(request_, code):
    """CERR-24, CERR-26."""
    core = committed_leader()
    found = answer_to(core, request_)
    assert found is not None
    assert found[0] == code
    assert core.role.voter_change is None
    assert core.voters.ids == (1, 2, 3)


def test_first_reason_is_the_one_that_is_told():
    core = leader_of(1, 2, 3)  # nothing committed, so no change is allowed either
    assert answer_to(core, addition(NO_DIRECTORY, cluster_id="other"))[0] == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert answer_to(core, addition(NO_DIRECTORY, ()))[1] == "Add voter request didn't include a valid voter"
    assert "endpoint" in answer_to(core, addition(key(2), ()))[1]
    code, text = answer_to(core, addition(key(2)))
    assert code == ErrorCode.REQUEST_TIMED_OUT, "CERR-25"
    assert ErrorCode.is_retriable(code)
    assert "establish HWM" in text


def test_whoever_does_not_lead_refuses_without_a_text():
    core = follower_of(1, 2, 3)
    assert answer_to(core, addition(NO_DIRECTORY)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    assert answer_to(core, RemoveVoterRequest(voter_key=key(2))) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, "")


def test_second_change_is_refused_while_one_is_under_way():
    core = committed_leader()
    assert answer_to(core, addition()) is None
    code, text = answer_to(core, RemoveVoterRequest(voter_key=key(2)))
    assert code == ErrorCode.REQUEST_TIMED_OUT, "CERR-25"
    assert "previous voter change" in text


def test_voters_at_kraft_version_0_are_neither_added_nor_removed():
    """CERR-24."""
    core = committed_leader()
    core._replica.kraft_versions.add(Offset(1), 0)
    assert core.kraft_version == 0
    assert answer_to(core, addition())[0] == ErrorCode.UNSUPPORTED_VERSION
    assert answer_to(core, RemoveVoterRequest(voter_key=key(2)))[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("is_committed", [False, True])
def test_change_waits_for_the_commit_of_the_voter_set_in_force(is_committed):
    core = committed_leader()
    offset = core._replica.append_control([VotersChange(voters=voter_set(1, 2, 3))])
    core.on_flushed(core.log.end_offset, 0)
    fetch(core, 2, offset + 1 if is_committed else offset)  # at the offset the record itself is not committed
    assert core.high_watermark == (offset + 1 if is_committed else offset)
    found = answer_to(core, addition())
    assert (found is None) == is_committed
    if found is not None:
        assert found[0] == ErrorCode.REQUEST_TIMED_OUT
        assert f"latest voter change at {offset}" in found[1]


# What the replica answers that is to be added


def asked_replica(core):
    """Begin an addition; the question that the leader asks the replica."""
    core.handle_request("client", addition(), 0)
    sent = [
        effect
        for effect in core.take_effects()
        if isinstance(effect, SendRequest) and isinstance(effect.request, ApiVersionsRequest)
    ]
    assert len(sent) == 1
    return sent[0]


def answered(core, response, now_ms=0):
    sent = asked_replica(core)
    core.handle_response(sent.destination.node_id, sent.correlation_id, response, now_ms)
    found = [
        effect.response
        for effect in core.take_effects()
        if isinstance(effect, SendResponse) and effect.source == "client"
    ]
    return found[0].top_level_error_code if found else None


@pytest.mark.parametrize(
    ("low", "high", "is_added"),
    [(0, 1, True), (1, 1, True), (1, 2, True), (0, 0, False), (2, 2, False), (None, 1, False), (0, None, False)],
)
def test_replica_is_added_only_where_it_runs_the_level_in_force(low, high, is_added):
    core = committed_leader()
    code = answered(core, ApiVersionsResponse(min_kraft_version=low, max_kraft_version=high))
    assert code == (None if is_added else ErrorCode.INVALID_REQUEST)
    assert core.voters.ids == ((1, 2, 3, 4) if is_added else (1, 2, 3))
    assert (core.role.voter_change is not None) == is_added


def test_replica_that_never_fetched_is_not_added():
    core = leader_of(1, 2, 3)
    fetch(core, 2, END)
    assert answered(core, ApiVersionsResponse(min_kraft_version=0, max_kraft_version=1)) == ErrorCode.REQUEST_TIMED_OUT
    assert core.voters.ids == (1, 2, 3)
    assert core.role.voter_change is None


@pytest.mark.parametrize(("now_ms", "is_over"), [(1999, False), (2000, True)])
def test_addition_is_given_up_at_the_end_of_the_request_timeout(now_ms, is_over):
    core = committed_leader(request_timeout_ms=2000)
    asked_replica(core)
    core.handle_timeout(now_ms)
    codes = [
        effect.response.top_level_error_code
        for effect in core.take_effects()
        if isinstance(effect, SendResponse) and effect.source == "client"
    ]
    assert codes == ([ErrorCode.REQUEST_TIMED_OUT] if is_over else [])


# Removal


@pytest.mark.parametrize(
    ("voter_key", "code"),
    [
        (key(2, directory=9), ErrorCode.VOTER_NOT_FOUND),
        (key(7), ErrorCode.VOTER_NOT_FOUND),
        (ReplicaKey(key(2).node_id, Uuid.ZERO), ErrorCode.INVALID_REQUEST),
    ],
)
def test_removal_names_id_and_directory_of_a_voter(voter_key, code):
    core = committed_leader()
    assert answer_to(core, RemoveVoterRequest(voter_key=voter_key))[0] == code
    assert core.voters.ids == (1, 2, 3)


def test_removal_is_in_force_at_once_and_answered_when_it_is_committed():
    core = committed_leader()
    assert answer_to(core, RemoveVoterRequest(voter_key=key(3))) is None
    assert core.voters.ids == (1, 2)
    core.on_flushed(core.log.end_offset, 0)
    core.take_effects()
    effects = fetch(core, 2, core.log.end_offset)
    codes = [effect.response.top_level_error_code for effect in effects if getattr(effect, "source", None) == "client"]
    assert codes == [0]


def test_removed_leader_leads_until_its_removal_is_committed():
    core = committed_leader()
    core.propose([b"x"], 0)
    answer_to(core, RemoveVoterRequest(voter_key=key(1)))
    assert core.voters.ids == (2, 3)
    removal = core.log.end_offset - 1
    core.on_flushed(core.log.end_offset, 0)
    for end_offset, leads in ((removal, True), (removal + 1, False)):
        fetch(core, 2, end_offset)
        fetch(core, 3, end_offset)
        assert core.high_watermark == end_offset
        assert core.is_leader == leads


def test_last_voter_cannot_be_removed():
    core = leader_of(1)
    core.on_flushed(core.log.end_offset, 0)
    core.take_effects()
    assert answer_to(core, RemoveVoterRequest(voter_key=key(1)))[0] == ErrorCode.VOTER_NOT_FOUND


# Update


def update(voter_key=None, voter_endpoints=None, *, epoch=2, low=0, high=1):
    return UpdateVoterRequest(
        current_leader_epoch=Epoch(epoch),
        voter_key=voter_key or key(2),
        min_kraft_version=low,
        max_kraft_version=high,
        endpoints=endpoints(2) if voter_endpoints is None else voter_endpoints,
    )


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (update(epoch=1), ErrorCode.FENCED_LEADER_EPOCH),
        (update(epoch=3), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (update(voter_endpoints=()), ErrorCode.INVALID_REQUEST),
        (update(voter_endpoints=TWO_OF_ONE_LISTENER), ErrorCode.INVALID_REQUEST),
        (update(low=1, high=0), ErrorCode.INVALID_REQUEST),
        (update(low=2, high=3), ErrorCode.INVALID_REQUEST),
        (update(key(2, directory=9)), ErrorCode.VOTER_NOT_FOUND),
        (update(key(7)), ErrorCode.VOTER_NOT_FOUND),
        (update(low=1, high=1), 0),
    ],
)
def test_update_of_a_voter_is_checked_against_epoch_level_and_voter_set(request_, code):
    core = committed_leader()
    before = core.log.end_offset
    assert answer_to(core, request_)[0] == code
    assert core.log.end_offset == (before if code else before + 1)


# kraft.version


@pytest.mark.parametrize(
    ("level", "epoch", "error"),
    [
        (1, 2, None),  # the level in force: nothing to do
        (0, 2, ErrorCode.INVALID_UPDATE_VERSION),
        (2, 2, ErrorCode.INVALID_UPDATE_VERSION),
        (1, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_level_is_never_lowered_nor_raised_beyond_what_is_supported(level, epoch, error):
    reconfiguration = committed_leader()._reconfiguration
    if error is None:
        assert reconfiguration.update_kraft_version(level, Epoch(epoch), is_dry_run=False) is None
        return
    with pytest.raises(KafkaError) as caught:
        reconfiguration.update_kraft_version(level, Epoch(epoch), is_dry_run=False)
    assert caught.value.code == error


def test_level_for_an_epoch_that_nobody_is_in_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="above the current epoch"):
        committed_leader()._reconfiguration.update_kraft_version(1, Epoch(3), is_dry_run=False)
