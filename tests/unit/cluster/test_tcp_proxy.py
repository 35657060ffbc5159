"""Proxies forward bytes, hold them back during a cut, and end with either side."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

import kraftlog
from kraftlog.cluster import cluster as cluster_module
from kraftlog.cluster.socket_owner import can_tell_owners, local_ports_of
from kraftlog.cluster.tcp_proxy import TcpProxy
from waiting import settle, until


class Cut:
    """What ``is_blocked`` says, and whom it was asked about."""

    def __init__(self) -> None:
        self.is_on = False
        self.ports: list[int] = []

    def __call__(self, port: int) -> bool:
        self.ports.append(port)
        return self.is_on


@asynccontextmanager
async def proxied(cut: Callable[[int], bool], connections: list[asyncio.StreamWriter]) -> AsyncIterator[TcpProxy]:
    """A proxy before a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    proxy = TcpProxy(listener, server.sockets[0].getsockname()[1], cut)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
        server.close()


def test_bytes_arrive_in_order_and_are_held_back_during_a_cut():
    async def check() -> None:
        cut, connections = Cut(), []
        async with proxied(cut, connections) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            data = bytes(range(256)) * 20_000  # more than the buffers of the sockets
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
            cut.is_on = True
            proxy.apply_cut()
            writer.write(b"held")
            late_reader, late_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            late_writer.write(b"late")
            await settle()
            assert len(connections) == 1, "no connection to the target during the cut"
            assert not reader._buffer
            cut.is_on = False
            proxy.apply_cut()
            assert await reader.readexactly(4) == b"held"
            assert await late_reader.readexactly(4) == b"late"
            assert writer.get_extra_info("sockname")[1] in cut.ports
            writer.close()
            late_writer.close()
            await until(lambda: not proxy.links)

    asyncio.run(check())


@pytest.mark.parametrize("who", ["sender", "target"])
def test_a_connection_ends_with_either_side(who):
    async def check() -> None:
        connections: list[asyncio.StreamWriter] = []
        async with proxied(Cut(), connections) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"x")
            await reader.readexactly(1)
            if who == "sender":
                writer.transport.abort()
            else:
                connections[0].close()
                assert await reader.read() == b""
            await until(lambda: not proxy.links)
            writer.close()

    asyncio.run(check())


def test_a_target_that_does_not_listen_ends_the_connection():
    async def check() -> None:
        listener, nobody = socket.socket(), socket.socket()
        for bound in (listener, nobody):
            bound.bind(("127.0.0.1", 0))
        proxy = TcpProxy(listener, nobody.getsockname()[1], Cut())
        await proxy.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await proxy.close()
        nobody.close()

    asyncio.run(check())


@pytest.mark.skipif(not can_tell_owners(), reason="only Linux tells the owners of connections")
def test_the_owner_of_a_connection_is_found():
    import os

    with socket.socket() as listener, socket.socket() as sender:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sender.connect(listener.getsockname())
        port = sender.getsockname()[1]
        assert local_ports_of([os.getpid()])[port] == os.getpid()
        assert port not in local_ports_of([1 << 30])


@pytest.mark.skipif(not can_tell_owners(), reason="networks can only be cut on Linux")
def test_a_cut_looks_for_the_owners_of_all_connections_at_once(monkeypatch):
    """With one look per client connection, proxies with many clients forwarded nothing for a minute."""
    looks: list[object] = []

    def look(process_ids: object) -> dict[int, int]:
        looks.append(process_ids)
        return {}

    monkeypatch.setattr(cluster_module, "local_ports_of", look)

    async def check() -> None:
        cluster = kraftlog.Cluster(nodes=1)
        connections: list[asyncio.StreamWriter] = []
        async with proxied(lambda port: cluster._is_blocked(port, 1), connections) as proxy:
            cluster._proxies = {1: [proxy]}
            clients = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(20)]
            await until(lambda: len(connections) == len(clients))
            await cluster._apply_cut(frozenset({1}))
            assert all(link.is_held for link in proxy.links)
            assert len(proxy.links) == len(clients)
            assert len(looks) == 1
            late = await asyncio.open_connection("127.0.0.1", proxy.port)  # opened during the cut: it may be a node's
            await until(lambda: len(proxy.links) == len(clients) + 1)
            assert len(looks) == 2
            await cluster._apply_cut(frozenset())
            assert not any(link.is_held for link in proxy.links)
            for _, writer in (*clients, late):
                writer.close()

    asyncio.run(check())
