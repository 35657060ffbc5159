"""What the scenarios under tests/scenarios do not show: refusals, voter sets, tallies, histories."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.core import RaftConfig, RaftCore
from kraftlog.raft.effects import AppendRecords, FlushLog, HighWatermarkAdvanced, PersistElectionState
from kraftlog.raft.election import EpochElection
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.voter_set import LogHistory, Voter, VoterSet
from kraftlog.types import Epoch, NodeId, Offset, ReplicaKey, Uuid

LOCAL = ReplicaKey(NodeId(1), Uuid(b"d" * 16))


class EmptyLog:
    log_start_offset = 0
    log_end_offset = 0
    leader_epochs = ()
    snapshots = ()


def voters_of(*ids):
    return VoterSet(
        Voter(LOCAL if identifier == 1 else ReplicaKey(NodeId(identifier), Uuid(bytes([identifier] * 16))))
        for identifier in ids
    )


def core_of(voters, *, local=LOCAL, election_timeout_ms=1000, seed=1):
    return RaftCore(
        RaftConfig(cluster_id="c", local_key=local, election_timeout_ms=election_timeout_ms),
        None,
        EmptyLog(),
        voters=LogHistory(voters),
        kraft_versions=LogHistory(0),
        rng=random.Random(seed),
        now_ms=0,
    )


def leader():
    core = core_of(voters_of(1))
    core.handle_timeout(0)
    core.take_effects()
    return core


@pytest.mark.spec("ELEC-13")
def test_zero_directory_id_is_refused():
    with pytest.raises(ValueError, match="zero uuid"):
        core_of(voters_of(1), local=ReplicaKey(NodeId(1)))


@pytest.mark.spec("DISK-14")
def test_empty_proposal_is_refused():
    with pytest.raises(ValueError, match="empty batch"):
        leader().propose([], 0)


def test_proposal_is_refused_before_leadership():
    with pytest.raises(KafkaError) as caught:
        core_of(voters_of(1)).propose([b"x"], 0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.spec("ELEC-01")
def test_election_timer_of_one_voter_among_several_is_within_its_bounds():
    timeouts = {core_of(voters_of(1, 2, 3), seed=seed).next_timeout_ms() for seed in range(50)}
    assert min(timeouts) >= 1000
    assert max(timeouts) < 2000
    assert len(timeouts) > 30
    assert core_of(voters_of(1, 2, 3), election_timeout_ms=0).next_timeout_ms() == 0


@pytest.mark.spec("ELEC-14", "VOTE-28")
def test_one_voter_among_several_becomes_prospective_and_writes_nothing():
    core = core_of(voters_of(1, 2, 3))
    core.handle_timeout(2000)
    assert core.role.name == "prospective"
    assert core.epoch == 0
    assert core.take_effects() == []
    assert core.next_timeout_ms() >= 3000


def test_effects_wait_for_the_state_they_rely_on():
    core = core_of(voters_of(1))
    core.handle_timeout(0)
    persisted = None
    for effect in core.take_effects():
        if isinstance(effect, PersistElectionState):
            persisted = effect.state
        elif hasattr(effect, "waits_for"):
            assert effect.waits_for.election_state == persisted


@given(steps=st.lists(st.one_of(st.integers(1, 5), st.just("flush"), st.just("late"))))
@pytest.mark.spec("HWM-05", "HWM-19", "HWM-20")
def test_high_watermark_is_the_flushed_end_and_never_falls(steps):
    core = leader()
    log_end, flushed, high_watermark = 1, 0, None
    for step in steps:
        if isinstance(step, int):
            assert core.propose([b"x"] * step, 0) == log_end + step - 1
            log_end += step
        else:
            flushed = max(flushed, log_end if step == "flush" else log_end // 2)
            core.on_flushed(flushed)
        for effect in core.take_effects():
            if isinstance(effect, HighWatermarkAdvanced):
                assert high_watermark is None or effect.high_watermark > high_watermark
                high_watermark = effect.high_watermark
                assert high_watermark == flushed
            elif isinstance(effect, AppendRecords):
                assert effect.epoch == core.epoch
            else:
                assert isinstance(effect, FlushLog)
    assert core.high_watermark == high_watermark == (flushed or None)


@pytest.mark.spec("HWM-12")
def test_durable_end_going_backwards_is_refused():
    core = leader()
    core.on_flushed(1)
    with pytest.raises(ValueError, match="back to 0"):
        core.on_flushed(0)


@pytest.mark.spec("HWM-01", "HWM-09")
def test_leader_outside_the_voter_set_does_not_count_itself():
    role = Leader(Epoch(1), local_key=LOCAL, voters=voters_of(2), epoch_start_offset=Offset(0))
    assert not role.update_local_end_offset(Offset(9))
    assert role.high_watermark is None


@pytest.mark.spec("VOTE-25")
def test_candidate_outside_the_voter_set_is_refused():
    with pytest.raises(ValueError, match="not in the voter set"):
        Candidate(Epoch(1), local_key=LOCAL, voters=voters_of(2, 3), deadline_ms=0)


# Voter sets


def test_voter_set_refuses_an_id_twice_and_compares_by_content():
    with pytest.raises(ValueError, match="twice"):
        voters_of(1, 1)
    assert voters_of(2, 1) == voters_of(1, 2)
    assert hash(voters_of(2, 1)) == hash(voters_of(1, 2))
    assert voters_of(1, 2).ids == (1, 2)
    assert voters_of(1).is_only_voter(LOCAL)
    assert not voters_of(1, 2).is_only_voter(LOCAL)


def test_voter_is_known_by_id_and_directory_id():
    assert voters_of(1).contains(LOCAL)
    assert not voters_of(1).contains(ReplicaKey(NodeId(1), Uuid(b"x" * 16)))
    static = VoterSet([Voter(ReplicaKey(NodeId(1)))])
    assert static.contains(LOCAL)


@pytest.mark.spec("VOTE-24")
@given(st.integers(1, 9), st.data())
def test_tally_agrees_with_counting(count, data):
    election = EpochElection(voters_of(*range(1, count + 1)))
    answers = data.draw(st.dictionaries(st.integers(1, count), st.booleans()))
    for voter, granted in answers.items():
        election.record(NodeId(voter), granted=granted)
    granted = sum(answers.values())
    assert election.is_granted == (granted * 2 > count)
    assert election.is_rejected == ((count - (len(answers) - granted)) * 2 <= count)
    assert not (election.is_granted and election.is_rejected)


def test_tally_refuses_strangers():
    with pytest.raises(ValueError, match="not in the voter set"):
        EpochElection(voters_of(1)).record(NodeId(2), granted=True)


# Histories


@pytest.mark.spec("KVER-01", "KVER-14", "KVER-16")
def test_history_gives_the_value_in_force_and_forgets_what_is_truncated():
    history = LogHistory(0)
    assert (history.latest, history.latest_offset) == (0, None)
    history.add(Offset(4), 1)
    history.add(Offset(9), 2)
    assert [history.value_before(Offset(end)) for end in (0, 4, 5, 9, 10)] == [None, None, 1, 1, 2]
    with pytest.raises(ValueError, match="not above"):
        history.add(Offset(9), 3)
    history.truncate_to(Offset(9))
    assert (history.latest, history.latest_offset) == (1, 4)
    history.truncate_to(Offset(0))
    assert history.latest == 0
