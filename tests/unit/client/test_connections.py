"""Which connections a client opens."""

from __future__ import annotations

import asyncio

import pytest

from client_connections import client_connections
from kraftlog.client.state.cluster_metadata import Node
from kraftlog.transport.rpc_client import RpcConnection

BOOTSTRAP = Node(-1, "a", 9092)
COORDINATOR_ID = 2**31 - 1 - 1


class Opened:
    """Stands for a connection that was opened."""

    def __init__(self, address):
        self.address = address
        self.is_closed = False
        self.oldest_s = None

    def close(self):
        self.is_closed = True


@pytest.fixture
def opened(monkeypatch):
    found = []

    async def open_(loop, host, port, **_options):
        found.append(Opened((host, port)))
        return found[-1]

    monkeypatch.setattr(RpcConnection, "open", open_)
    return found


def connect(*nodes):
    async def run():
        connections = client_connections("a:9092")
        return [await connections.connect(node) for node in nodes]

    return asyncio.run(run())


def test_connection_to_a_bootstrap_server_is_that_of_its_broker(opened):
    """A second connection cost a round trip before the first fetch."""
    bootstrap, broker, again = connect(BOOTSTRAP, Node(1, "a", 9092), Node(1, "a", 9092))
    assert bootstrap is broker is again
    assert len(opened) == 1


def test_other_addresses_coordinators_and_later_bootstraps_have_connections_of_their_own(opened):
    nodes = [BOOTSTRAP, Node(2, "b", 9092), Node(COORDINATOR_ID, "a", 9092), Node(1, "a", 9092), BOOTSTRAP]
    first, other, coordinator, broker, again = connect(*nodes)
    assert broker is first
    assert len({id(other), id(coordinator), id(broker), id(again)}) == 4
    assert [found.address[0] for found in opened] == ["a", "b", "a", "a"]


def test_metadata_is_asked_of_the_node_that_kept_nobody_waiting(opened):
    async def run():
        connections = client_connections("a:9092")
        nodes = {number: Node(number, "abc"[number], 9092) for number in range(3)}
        for number in (1, 2):
            await connections.connect(nodes[number])
        chosen = [await connections.any_node(nodes)]
        now_s = asyncio.get_running_loop().time()
        # One hangs since long, the other has a long poll.
        opened[0].oldest_s, opened[1].oldest_s = now_s - 20, now_s - 0.4
        chosen.append(await connections.any_node(nodes))
        opened[1].close()
        chosen.append(await connections.any_node(nodes))
        return [node.node_id for node in chosen]

    assert asyncio.run(run()) == [1, 2, 1]
