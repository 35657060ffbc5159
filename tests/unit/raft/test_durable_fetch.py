"""What a fetch promises about the disk, and whose disk counts."""

from __future__ import annotations

import random

import pytest

from kraftlog.raft.config import RaftConfig
from kraftlog.raft.core import RaftCore
from kraftlog.raft.effects import AppendFetched, FlushLog, SendRequest
from kraftlog.raft.messages import FetchedBatch, FetchRequest, FetchResponse
from kraftlog.raft.voter_set import LogHistory, VoterSet
from kraftlog.types import ElectionState, Epoch, NodeId, Offset
from raft_fixture import FoundLog, core_of, endpoints, follower_of, key, requests_of, voter_set


def after_records(core, *, epochs=(2,)):
    """The effects of an answer that has one record of each of these epochs."""
    core.handle_timeout(0)
    sent = requests_of(core)[2]
    assert isinstance(sent.request, FetchRequest)
    batches = [
        FetchedBatch(base_offset=Offset(3 + index), last_offset=Offset(3 + index), epoch=Epoch(epoch))
        for index, epoch in enumerate(epochs)
    ]
    response = FetchResponse(
        leader_id=NodeId(2),
        leader_epoch=Epoch(2),
        leader_endpoints=endpoints(2),
        high_watermark=Offset(3),
        batches=batches,
    )
    core.handle_response(2, sent.correlation_id, response, 1)
    return core.take_effects()


def next_fetch(effects):
    return next(
        effect for effect in effects if isinstance(effect, SendRequest) and isinstance(effect.request, FetchRequest)
    )


@pytest.mark.spec("DISK-24")
@pytest.mark.parametrize("local", [1, 4], ids=["voter", "observer that could become one"])
def test_fetch_of_a_possible_voter_waits_for_the_flush_of_what_it_acknowledges(local):
    core = core_of(1, 2, 3, local=local, stored=ElectionState(epoch=Epoch(2), leader_id=NodeId(2)))
    effects = after_records(core)
    sent = next_fetch(effects)
    assert sent.request.fetch_offset == 4
    assert sent.waits_for.log_end_offset == 4
    assert any(isinstance(effect, FlushLog) and effect.log_end_offset == 4 for effect in effects)


@pytest.mark.spec("DISK-26")
def test_fetch_of_an_observer_for_good_waits_for_no_flush():
    core = core_of(1, 2, 3, local=4, stored=ElectionState(epoch=Epoch(2), leader_id=NodeId(2)), can_become_voter=False)
    effects = after_records(core)
    assert next_fetch(effects).request.fetch_offset == 4
    assert next_fetch(effects).waits_for.log_end_offset is None
    assert not any(isinstance(effect, FlushLog) for effect in effects)


@pytest.mark.spec("DISK-19")
def test_batches_of_an_epoch_above_the_asked_one_are_left_out():
    effects = after_records(follower_of(1, 2, 3), epochs=(2, 3, 3))
    (appended,) = (effect for effect in effects if isinstance(effect, AppendFetched))
    assert [batch.epoch for batch in appended.batches] == [2]
    assert next_fetch(effects).request.fetch_offset == 4


class EmptyLog(FoundLog):
    log_end_offset = 0
    leader_epochs = ()


@pytest.mark.spec("DISK-37")
def test_replica_with_a_new_directory_id_does_not_stand_for_election():
    history, kraft_versions = LogHistory(VoterSet()), LogHistory(0)
    history.add(Offset(0), voter_set(1, 2, 3))
    kraft_versions.add(Offset(0), 1)
    core = RaftCore(
        RaftConfig(cluster_id="c", local_key=key(3, 9), local_endpoints=endpoints(3)),
        None,
        EmptyLog(),
        voters=history,
        kraft_versions=kraft_versions,
        rng=random.Random(1),
        now_ms=0,
    )
    assert not core.is_voter
    for now_ms in range(0, 60_000, 1000):
        core.handle_timeout(now_ms)
        asked = requests_of(core).values()
        assert all(isinstance(effect.request, FetchRequest) for effect in asked)
    assert core.role.name == "unattached"
    assert core.epoch == 0
