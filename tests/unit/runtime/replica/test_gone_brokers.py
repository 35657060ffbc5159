"""Metadata does not send clients to a leader whose process has ended, before the controller has fenced it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from kraftlog.controller.cluster_image import ListenerEndpoint
from kraftlog.runtime.replica import gone_brokers
from kraftlog.runtime.replica.gone_brokers import GoneBrokers
from kraftlog.runtime.replica.leader_link import BrokerAddress, LeaderLink
from kraftlog.transport.rpc_client import RpcConnection
from waiting import settle, until

SSL = 1


@asynccontextmanager
async def answering(port=0):
    """A listener that answers each connection; gives its port."""

    async def serve(reader, writer):
        await reader.readexactly(19)
        writer.write(b"\0\0\0\x06")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def closed_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def image_of(port, *, fenced=False, security_protocol=0):
    end_points = (ListenerEndpoint("A", "127.0.0.1", port, security_protocol),)
    broker = SimpleNamespace(broker_id=2, epoch=72, fenced=fenced, end_points=end_points)
    return SimpleNamespace(cluster=SimpleNamespace(brokers={2: broker}))


def gone_of(image, links=()):
    return GoneBrokers(asyncio.get_running_loop(), lambda: image, lambda: links)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gone_brokers, "_PROBES_AFTER_S", (0.0, 0.0))
    monkeypatch.setattr(gone_brokers, "_PROBED_AGAIN_AFTER_S", 0.001)


def test_broker_that_refuses_is_gone_from_the_end_of_its_connection_until_the_metadata_changes():
    async def check():
        gone = gone_of(image_of(closed_port()))
        gone.connection_lost(2, was_open=True)
        assert gone.find() == {2}
        await settle()
        assert gone.find() == {2}
        gone.apply(SimpleNamespace(changed_brokers={3}))
        assert gone.find() == {2}
        gone.apply(SimpleNamespace(changed_brokers={2}))
        assert gone.find() == set()
        await settle()
        assert gone.find() == set()
        await gone.stop()

    asyncio.run(check())


def test_broker_that_answers_is_gone_only_until_it_was_seen():
    async def check():
        async with answering() as port:
            gone = gone_of(image_of(port))
            gone.connection_lost(2, was_open=True)
            assert gone.find() == {2}
            await until(lambda: not gone.find())
            await gone.stop()

    asyncio.run(check())


def test_broker_that_was_never_connected_is_gone_once_it_refuses():
    async def check():
        gone = gone_of(image_of(closed_port()))
        gone.connection_lost(2, was_open=False)
        assert gone.find() == set()
        await until(gone.find)
        await gone.stop()

    asyncio.run(check())


def test_broker_that_listens_again_is_not_gone_any_more():
    async def check():
        port = closed_port()
        gone = gone_of(image_of(port))
        gone.connection_lost(2, was_open=True)
        await settle()
        assert gone.find() == {2}
        async with answering(port):
            await until(lambda: not gone.find())
        await gone.stop()

    asyncio.run(check())


def test_listener_that_only_accepts_says_nothing():
    async def check():
        async with answering() as port:
            gone = gone_of(image_of(port, security_protocol=SSL))
            gone.connection_lost(2, was_open=True)
            await until(lambda: not gone.find())
            await until(lambda: not gone._looks)
            assert gone.find() == set()
            await gone.stop()

    asyncio.run(check())


@pytest.mark.parametrize("broker_id", [2, 3])
def test_fenced_and_unknown_brokers_are_left_to_the_metadata(broker_id):
    async def check():
        gone = gone_of(image_of(closed_port(), fenced=True))
        gone.connection_lost(broker_id, was_open=True)
        assert gone.find() == set()
        assert not gone._looks
        await gone.stop()

    asyncio.run(check())


def test_connection_that_ended_counts_before_the_loop_has_noticed():
    async def check():
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            link = LeaderLink(BrokerAddress(2, "127.0.0.1", port), "c", 1.0, lambda: None)
            link._connection = RpcConnection(loop, "c", 1000)
            await loop.create_connection(lambda: link._connection, "127.0.0.1", port)
            accepted, _ = server.accept()
            gone = gone_of(image_of(port), [link])
            assert (gone.find(), link.is_ended) == (set(), False)
            accepted.close()
            assert (gone.find(), link.is_ended) == ({2}, True)
            assert not link._connection.is_closed
            await gone.stop()
            link.close()
            assert not link.is_ended

    asyncio.run(check())
