"""Builders of a consensus core in each role, with the voters it knows, for the tests of kraftlog.raft."""

from __future__ import annotations

import random

from kraftlog.raft.config import RaftConfig
from kraftlog.raft.core import RaftCore
from kraftlog.raft.effects import SendRequest
from kraftlog.raft.messages import (
    FetchRequest,
    VoteResponse,
)
from kraftlog.raft.voter_set import Endpoint, LogHistory, Voter, VoterSet
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, ReplicaKey, Uuid


def key(node_id, directory=None):
    return ReplicaKey(NodeId(node_id), Uuid(bytes([directory or node_id] * 16)))


def endpoints(node_id):
    return (Endpoint("CONTROLLER", f"node{node_id}", 9093),)


def voter_set(*ids):
    return VoterSet(Voter(key(identifier), endpoints(identifier), 0, 1) for identifier in ids)


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
    return {effect.destination.node_id: effect for effect in core.take_effects() if isinstance(effect, SendRequest)}


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
