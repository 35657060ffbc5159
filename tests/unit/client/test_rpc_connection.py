"""Requests of a client to a peer that is too old for them."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog.client.config import ClientConfig
from kraftlog.client.connections import Connections
from kraftlog.client.state.cluster_metadata import Node
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.wire.messages.join_group import JoinGroupRequest


class Unsent(asyncio.WriteTransport):
    """A transport that takes no bytes."""

    def abort(self):
        pass


def test_request_that_the_version_cannot_hold_waits_for_no_answer():
    """It was noted as sent before it was encoded, and failed once more, unheard, when the connection was closed."""

    async def run():
        connection = RpcConnection(asyncio.get_running_loop(), "c")
        connection.connection_made(Unsent())
        connection._versions = {11: (0, 3)}
        connections = Connections(ClientConfig({"bootstrap.servers": "h:1"}, "consumer"), asyncio.get_running_loop())

        async def connect(_node):
            return connection

        connections.connect = connect
        with pytest.raises(KafkaError, match="is too old: JoinGroupRequest v3 group_instance_id") as raised:
            await connections.ask(Node(1, "h", 1), JoinGroupRequest(group_id="g", group_instance_id="i"))
        assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION
        assert connection.oldest_s is None

    asyncio.run(run())
