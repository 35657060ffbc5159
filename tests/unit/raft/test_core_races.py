"""What comes late, twice or never; and nobody is woken without end."""

from __future__ import annotations

import pytest

from kraftlog.raft.effects import SendResponse
from kraftlog.raft.messages import (
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
)
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.types import NodeId, Offset
from raft_fixture import ALL_STARTS, follower_of, key, leader_of, replica_in, requests_of


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
    answers = [effect for effect in effects if isinstance(effect, SendResponse) and effect.source == "waiting"]
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
