"""Requests of a client to a peer that is too old for them, throttles it, or takes for ever."""

from __future__ import annotations

import asyncio

import pytest

from client_connections import client_connections
from kraftlog.client.connections import _Link
from kraftlog.client.driver import ConsumerDriver
from kraftlog.client.state.cluster_metadata import Node
from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.client.state.core_context import ConsumerOptions
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.metrics.consumer import ConsumerMetrics
from kraftlog.testing.world.machine import Machine
from kraftlog.testing.world.world import World
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.metadata import MetadataRequest, MetadataResponse


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
        connections = client_connections("h:1")

        async def connect(_node):
            return connection

        connections.connect = connect
        with pytest.raises(KafkaError, match="is too old: JoinGroupRequest v3 group_instance_id") as raised:
            await connections.ask(Node(1, "h", 1), JoinGroupRequest(group_id="g", group_instance_id="i"))
        assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION
        assert connection.oldest_s is None

    asyncio.run(run())


def test_broker_that_throttles_for_hours_costs_the_time_limit_of_each_call():
    class Throttling:
        is_closed = False

        def common_version(self, _api_key):
            return 0

        async def ask(self, _message, _version, *, timeout_s):
            return MetadataResponse(throttle_time_ms=10**8)

    async def run():
        connections = client_connections("h:1")
        node = Node(-1, "h", 1)
        connections._links[-1] = _Link(node, Throttling())
        await connections.ask(node, MetadataRequest())
        with pytest.raises(KafkaError, match="throttles this client for another") as raised:
            await connections.ask(node, MetadataRequest(), timeout_s=0.01)
        assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(run())


class Deaf(Unsent):
    """A transport whose peer answers nothing; counts requests."""

    count = 0

    def get_write_buffer_size(self):
        return 0

    def writelines(self, _data):
        self.count += 1


def test_each_request_of_a_connection_has_its_own_time_limit_and_answered_ones_share_a_timer():
    async def run():
        loop = asyncio.get_running_loop()
        connection = RpcConnection(loop, "c")
        transport = Deaf()
        connection.connection_made(transport)
        made = []
        call_at = loop.call_at
        loop.call_at = lambda *arguments, **options: made.append(arguments) or call_at(*arguments, **options)

        async def ask(timeout_s):
            begun_s = loop.time()
            with pytest.raises(TimeoutError):
                await connection.ask(MetadataRequest(), 0, timeout_s=timeout_s)
            return loop.time() - begun_s

        took_s = await asyncio.gather(*(ask(5 + index % 3) for index in range(30)))
        for index, found_s in enumerate(took_s):
            assert 5 + index % 3 <= found_s < 5.01 + index % 3
        assert transport.count == 30

        made.clear()
        for _ in range(30):
            asked = asyncio.ensure_future(connection.ask(MetadataRequest(), 0, timeout_s=60))
            await asyncio.sleep(0)
            *_, answered = connection._asked.popitem()[1]
            answered(MetadataResponse())
            assert await asked == MetadataResponse()
        assert len(made) == 1

        waiting = [asyncio.ensure_future(connection.ask(MetadataRequest(), 0, timeout_s=60)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        connection.close()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1].code == ErrorCode.BROKER_NOT_AVAILABLE
        assert connection._limit_timer is None
        with pytest.raises(KafkaError, match="the connection is closed"):
            await connection.ask(MetadataRequest(), 0, timeout_s=60)
        assert connection._limit_timer is None

    with World(1) as world:
        world.run(Machine(world, "m"), run())


def test_time_limit_of_a_question_holds_while_one_attempt_takes_for_ever():
    async def run():
        connections = client_connections("h:1")
        driver = ConsumerDriver(
            ConsumerCore(ConsumerOptions(), lambda _node, _key: None), connections, ConsumerMetrics(tuple, list)
        )
        with pytest.raises(TimeoutError, match=r"offsets: not within 0\.01 s"):
            await driver.ask_until(asyncio.Event().wait, "offsets", 0.01)

    asyncio.run(run())


@pytest.mark.parametrize(("host", "port"), [("a\0b", 1), ("127.0.0.1", 2**31 - 1), ("127.0.0.1", -1), ("x" * 300, 1)])
def test_address_that_cannot_be_is_a_broker_that_cannot_be_reached(host, port):
    """A broker names the addresses of the others: what it names must not end the client's tasks."""

    async def run():
        loop = asyncio.get_running_loop()
        with pytest.raises(KafkaError) as raised:
            await RpcConnection.open(loop, host, port, client_id="c", timeout_s=10)
        assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE

    asyncio.run(run())
