"""Large requests reach the peer whole and in order, whatever the socket takes at once."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from kraftlog.errors import KafkaError
from kraftlog.transport import rpc_client
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.transport.vectored_writer import VectoredWriter
from kraftlog.wire.messages.produce import ProduceRequest


def pair():
    left, right = socket.socketpair()
    for end in (left, right):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    left.setblocking(False)
    right.settimeout(30)
    return left, right


def read(sock, size):
    found = bytearray()
    while len(found) < size:
        part = sock.recv(size - len(found))
        if not part:
            break
        found += part
    return bytes(found)


def test_buffers_larger_than_the_socket_arrive_in_order():
    buffers = [os.urandom(size) for size in (0, 1, 70_000, 3, 300_000)]
    buffers += [bytes([number]) * 100 for number in range(200)]

    async def run():
        left, right = pair()
        writer = VectoredWriter(asyncio.get_running_loop(), left)
        writer.write(buffers)
        assert 0 < writer.unsent_bytes <= sum(map(len, buffers))
        writer.write([memoryview(b"last")])
        expected = b"".join(buffers) + b"last"
        assert await asyncio.to_thread(read, right, len(expected)) == expected
        assert writer.unsent_bytes == 0
        writer.close()
        left.close()
        assert await asyncio.to_thread(read, right, 1) == b""  # no descriptor is left open
        right.close()

    asyncio.run(run())


def test_peer_that_is_gone_is_no_error_and_close_forgets_what_waits():
    async def run():
        left, right = pair()
        writer = VectoredWriter(asyncio.get_running_loop(), left)
        writer.write([bytes(200_000)])
        assert writer.unsent_bytes > 0
        right.close()
        writer.write([b"more"])
        writer.close()
        writer.close()
        writer.write([b"more"])
        assert writer.unsent_bytes == 0
        left.close()

    asyncio.run(run())


def produce(records):
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=0, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])])


def test_small_and_large_requests_of_a_connection_keep_their_order():
    """Small ones go through the transport of asyncio, large ones beside it."""
    sizes = [10, 500_000, 20, 30, 700_000, 800_000, 40]

    async def run():
        sent = asyncio.get_running_loop().create_future()

        async def serve(reader, writer):
            frames = []
            for _ in sizes:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frames.append(await reader.readexactly(size))
            sent.set_result(frames)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 16)
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        connection = RpcConnection(loop, "c")
        await loop.create_connection(lambda: connection, "127.0.0.1", port)
        payloads = [os.urandom(size) for size in sizes]
        for payload in payloads:
            connection.tell(produce(payload), 7)
        frames = await sent
        assert all(payload in frame for payload, frame in zip(payloads, frames, strict=True))
        assert connection.unsent_bytes == 0
        assert connection._writer is not None
        connection.close()
        with pytest.raises(KafkaError):
            connection.tell(produce(b"x"), 7)
        server.close()

    asyncio.run(run())


def test_sockets_that_are_not_of_the_system_are_left_to_their_transport():
    class Joined(asyncio.WriteTransport):
        def __init__(self):
            super().__init__()
            self.lines = []

        def get_write_buffer_size(self):
            return 0

        def writelines(self, list_of_data):
            self.lines += [bytes(data) for data in list_of_data]

        def abort(self):
            pass

    async def run():
        connection = RpcConnection(asyncio.get_running_loop(), "c")
        transport = Joined()
        connection.connection_made(transport)
        payload = bytes(rpc_client.SHARED_BYTES_MIN)
        connection.tell(produce(payload), 7)
        assert payload in b"".join(transport.lines)
        assert connection._writer is None
        connection.close()

    asyncio.run(run())
