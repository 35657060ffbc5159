"""Where a replica believes its leader to be, as epochs, answers and BeginQuorumEpoch tell it."""

from __future__ import annotations

import random

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.raft.config import RaftConfig
from kraftlog.raft.core import RaftCore
from kraftlog.raft.messages import BeginQuorumEpochRequest, FetchedBatch, FetchResponse, RemoveVoterRequest
from kraftlog.raft.voter_set import Endpoint, LogHistory, VoterSet
from kraftlog.runtime.metadata.quorum_info import describe
from kraftlog.types import ElectionState, Epoch, NodeId, Offset
from raft_fixture import FoundLog, fetch, follower_of, key, leader_of, requests_of

ONE = (Endpoint("CONTROLLER", "one", 1),)
TWO = (*ONE, Endpoint("OTHER", "two", 2))
BOOTSTRAP = (Endpoint("CONTROLLER", "bootstrap", 9),)


def begin(core, endpoints):
    request = BeginQuorumEpochRequest(
        cluster_id="c",
        voter_key=key(1),
        leader_id=NodeId(2),
        leader_epoch=core.epoch,
        leader_endpoints=endpoints,
    )
    core.handle_request("peer", request, 0)
    return core.leader_endpoints


@pytest.mark.spec("ENDP-15")
def test_more_endpoints_of_the_leader_replace_fewer_and_never_the_other_way():
    core = follower_of(1, 2, 3)
    assert [leader_endpoint.host for leader_endpoint in core.leader_endpoints] == ["node2"]
    assert begin(core, TWO) == TWO
    assert begin(core, ONE) == TWO


def observer(stored=None, **options):
    """A replica that knows no voters at all."""
    kraft_versions = LogHistory(0)
    config = RaftConfig(cluster_id="c", local_key=key(7), bootstrap_servers=BOOTSTRAP, **options)
    core = RaftCore(
        config, stored, FoundLog(), voters=LogHistory(VoterSet()), kraft_versions=kraft_versions,
        rng=random.Random(1), now_ms=0,
    )  # fmt: skip
    core.handle_timeout(0)
    return core


def answer(core, sent, **fields):
    response = FetchResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=Epoch(5), **fields)
    core.handle_response(sent.destination.node_id, sent.correlation_id, response, 10)
    core.handle_timeout(10)


@pytest.mark.spec("ENDP-16", "BOOT-26", "BOOT-29")
def test_an_answer_that_names_leader_and_endpoint_is_enough_to_follow():
    core = observer()
    (sent,) = requests_of(core).values()
    assert (sent.destination.node_id, sent.destination.endpoint) == (-2, BOOTSTRAP[0])
    answer(core, sent, leader_id=NodeId(2), leader_endpoints=ONE)
    assert (core.leader_id, core.leader_endpoints) == (2, ONE)
    assert requests_of(core)[2].destination.endpoint == ONE[0]


@pytest.mark.spec("ENDP-17")
def test_a_leader_without_endpoint_is_looked_for_at_the_bootstrap_servers():
    core = observer()
    (sent,) = requests_of(core).values()
    answer(core, sent, leader_id=NodeId(2), leader_endpoints=())
    assert (core.leader_id, core.leader_endpoints, core.epoch) == (2, (), 5)
    core.handle_timeout(5_000)
    assert set(requests_of(core)) == {-2}


REMEMBERS_LEADER = ElectionState(epoch=Epoch(5), leader_id=NodeId(2))


@pytest.mark.spec("ENDP-16", "ENDP-17", "INV-36")
def test_a_leader_without_endpoint_is_followed_once_it_answers_itself():
    """A simulated broker lost power, and with it the log with the voters; it fetched for ever and took no record."""
    core = observer(REMEMBERS_LEADER)
    assert (core.leader_id, core.leader_endpoints) == (2, ())
    (sent,) = requests_of(core).values()
    batch = FetchedBatch(base_offset=Offset(0), last_offset=Offset(2), epoch=Epoch(5), size_bytes=10, payload=b"")
    response = FetchResponse(
        leader_id=NodeId(2), leader_epoch=Epoch(5), leader_endpoints=ONE, high_watermark=Offset(3), batches=(batch,)
    )
    core.handle_response(sent.destination.node_id, sent.correlation_id, response, 10)
    assert (core.leader_id, core.leader_endpoints, core.log.end_offset) == (2, ONE, 3)
    assert requests_of(core)[2].destination.endpoint == ONE[0]


@pytest.mark.spec("ENDP-17", "INV-32")
def test_who_answers_without_endpoints_of_the_leader_is_not_asked_again_at_once():
    core = observer(REMEMBERS_LEADER)
    (sent,) = requests_of(core).values()
    response = FetchResponse(leader_id=NodeId(2), leader_epoch=Epoch(5), high_watermark=Offset(0))
    core.handle_response(sent.destination.node_id, sent.correlation_id, response, 10)
    core.handle_timeout(10)
    assert not requests_of(core)
    core.handle_timeout(5_000)
    assert set(requests_of(core)) == {-2}


@pytest.mark.spec("BOOT-40")
def test_a_leader_that_removed_itself_is_described_as_an_observer():
    core = leader_of(1, 2, 3)
    for node_id in (2, 3):
        fetch(core, node_id, core.log.end_offset)
    core.handle_request("admin", RemoveVoterRequest(cluster_id="c", voter_key=key(1)), 0)
    found = describe(core, now_ms=0, wall_ms=1_000)
    assert core.is_leader
    assert found.leader_id == 1
    assert [voter.replica_id for voter in found.voters] == [2, 3]
    assert 1 in [observer.replica_id for observer in found.observers]
