"""Rounds in which a leader asks a majority whether it still leads; and proposals that a crash takes away."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.control_records import VotersChange
from kraftlog.raft.effects import AppendRecords, LeadershipConfirmed, SendRequest
from kraftlog.raft.messages import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlog.types import Epoch, NodeId
from raft_fixture import ALL_STARTS, core_of, fetch, leader_of, voter_set


def taken(core):
    """Rounds confirmed, and questions by destination."""
    effects = core.take_effects()
    asked = {
        effect.destination.node_id: effect.correlation_id
        for effect in effects
        if isinstance(effect, SendRequest) and isinstance(effect.request, BeginQuorumEpochRequest)
    }
    return [effect.round for effect in effects if isinstance(effect, LeadershipConfirmed)], asked


def answer(core, node_id, correlation_id, *, epoch=None, leader_id=1, error_code=0, now_ms=0):
    response = BeginQuorumEpochResponse(
        error_code=error_code,
        leader_id=None if leader_id is None else NodeId(leader_id),
        leader_epoch=core.epoch if epoch is None else Epoch(epoch),
    )
    core.handle_response(NodeId(node_id), correlation_id, response, now_ms)


def idle_leader(*ids):
    """A leader whose voters have answered its first BeginQuorumEpoch."""
    core = leader_of(*ids)
    _, asked = taken(core)
    for node_id in ids[1:]:
        if node_id in asked:
            answer(core, node_id, asked[node_id])
        fetch(core, node_id, core.log.end_offset)
    core._replica.connections.reset()
    taken(core)
    return core


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_round_is_confirmed_by_a_majority_of_answers_to_questions_asked_after_it_began(count):
    ids = tuple(range(1, count + 1))
    core = idle_leader(*ids)
    number = core.confirm_leadership(0)
    confirmed, asked = taken(core)
    assert sorted(asked) == list(ids[1:])
    for index, node_id in enumerate(ids[1:], 2):
        assert confirmed == ([number] if index - 1 > count // 2 else [])
        if confirmed:
            break
        answer(core, node_id, asked[node_id])
        confirmed, _ = taken(core)
    assert confirmed == [number]
    assert taken(core) == ([], {})


def test_an_answer_to_an_older_question_confirms_nothing_newer():
    core = idle_leader(1, 2, 3)
    first = core.confirm_leadership(0)
    _, asked = taken(core)
    second, third = core.confirm_leadership(0), core.confirm_leadership(0)
    assert (second, third) == (first + 1, first + 2)
    assert taken(core) == ([], {}), "one question at a time to each"
    answer(core, 2, asked[2])
    confirmed, again = taken(core)
    assert confirmed == [first]
    assert sorted(again) == [2]
    answer(core, 2, again[2])
    assert taken(core)[0] == [third]


@pytest.mark.parametrize("answered", [{"error_code": ErrorCode.INVALID_VOTER_KEY}, {"leader_id": None, "epoch": 2}])
def test_a_voter_that_does_not_follow_confirms_nothing(answered):
    core = idle_leader(1, 2, 3)
    core.confirm_leadership(0)
    _, asked = taken(core)
    answer(core, 2, asked[2], **answered)
    assert taken(core)[0] == []


def test_a_higher_epoch_ends_leadership_and_no_round_is_confirmed():
    core = idle_leader(1, 2, 3)
    core.confirm_leadership(0)
    _, asked = taken(core)
    answer(core, 2, asked[2], epoch=core.epoch + 1, leader_id=None, error_code=ErrorCode.FENCED_LEADER_EPOCH)
    assert taken(core)[0] == []
    assert not core.is_leader


def test_a_voter_that_cannot_be_reached_is_asked_again_until_enough_have_answered():
    core = idle_leader(1, 2, 3)
    number = core.confirm_leadership(0)
    _, asked = taken(core)
    core.handle_no_response(NodeId(2), asked[2], 0)
    core.handle_no_response(NodeId(3), asked[3], 0)
    assert taken(core) == ([], {})
    wanted_ms = core.next_timeout_ms()
    assert wanted_ms == core.config.retry_backoff_ms
    core.handle_timeout(wanted_ms)
    _, again = taken(core)
    assert sorted(again) == [2, 3]
    answer(core, 3, again[3], now_ms=wanted_ms)
    assert taken(core)[0] == [number]
    core.handle_no_response(NodeId(2), again[2], wanted_ms)
    core.handle_timeout(wanted_ms + 100)
    assert taken(core) == ([], {}), "nobody waits for it any more"


def test_a_removed_voter_no_longer_counts():
    core = idle_leader(1, 2, 3)
    number = core.confirm_leadership(0)
    taken(core)
    core._replica.append_control([VotersChange(voters=voter_set(1))])
    core.handle_timeout(0)
    assert taken(core)[0] == [number]


@pytest.mark.parametrize("role", sorted(set(ALL_STARTS) - {"leader"}))
def test_only_a_leader_can_ask(role):
    with pytest.raises(KafkaError) as caught:
        ALL_STARTS[role]().confirm_leadership(0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_was_paused_looks_at_its_timers_first():
    core = idle_leader(1, 2, 3)
    with pytest.raises(KafkaError):
        core.confirm_leadership(core.config.check_quorum_ms + 1)
    assert core.role.name == "resigned"


@pytest.mark.spec("APPD-22")
def test_what_was_proposed_and_not_appended_is_gone_after_a_crash_and_its_offsets_are_others():
    core = leader_of(1, 2, 3, append_linger_ms=25)
    core.propose([b"flushing"], 0)
    end_offset = core.log.end_offset
    assert any(isinstance(effect, AppendRecords) for effect in core.take_effects())
    offset = core.propose([b"lost"], 0)  # waits for the flush to end
    assert offset == end_offset + 1
    assert not any(isinstance(effect, AppendRecords) for effect in core.take_effects())
    # The crash: nothing but what was carried out is there. Another replica leads from the same log's end.
    other = leader_of(1, 2, 3)
    assert other.log.end_offset < offset
    while other.propose([b"other"], 0) < offset:
        pass
    appended = [effect for effect in other.take_effects() if isinstance(effect, AppendRecords)]
    assert {record for batch in appended for record in batch.records} == {b"other"}
    assert core_of(1, 2, 3).log.end_offset < offset
