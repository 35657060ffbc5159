"""One request at a time to each destination."""

from __future__ import annotations

import random

import pytest

from kraftlog.raft.connections import Connections, Destination, bootstrap_destinations
from kraftlog.raft.messages import (
    ApiVersionsRequest,
)
from kraftlog.raft.voter_set import Endpoint
from kraftlog.types import NodeId


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
