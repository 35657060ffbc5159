"""RequestRoom: what may wait for the loop over all connections; real pairs of sockets, an exchange of the test."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.connection import Connection
from kraftlog.transport.exchange import PeerContext, PendingResponse
from kraftlog.transport.frame_reader import RECEIVE_BUFFER_BYTES, FrameReader
from kraftlog.transport.peer_log import PeerLog
from kraftlog.transport.request_room import RequestRoom
from kraftlog.transport.scheduler import Scheduler
from waiting import until

SCRATCH = memoryview(bytearray(RECEIVE_BUFFER_BYTES))


class Large:
    """A large request of which the test says when it is decoded and when it is answered."""

    def __init__(self):
        self.future = asyncio.get_running_loop().create_future()
        self.on_decoded = None


class Stage:
    """Connections of one room. A frame ``L...`` is a large request, any other one is answered at once."""

    def __init__(self, loop, **limits):
        self.loop = loop
        self.room = RequestRoom(loop, **limits)
        self.scheduler = Scheduler(loop)
        self.handled = []
        self.large = []
        self.connections = []
        self.peers = []

    def handle(self, peer, frame):
        self.handled.append((peer.peer, bytes(frame[:1])))
        if frame[:1] != b"L":
            return [struct.pack(">i", 1), bytes(frame[:1])]
        large = Large()
        self.large.append(large)
        return PendingResponse(
            large.future, lambda future: future.result(), ends_with_peer=True, is_exclusive=True, undecoded=large
        )

    def connect(self, name, *requests):
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        connection = Connection(
            self.loop,
            near,
            FrameReader(SCRATCH, 1 << 20),
            self,
            PeerContext("PLAINTEXT", False, ANONYMOUS, "127.0.0.1", name),
            on_lost=lambda _: None,
            peer_log=PeerLog(self.loop, logging.getLogger("test")),
            scheduler=self.scheduler,
            room=self.room,
        )
        self.connections.append(connection)
        self.peers.append(far)
        far.send(b"".join(struct.pack(">i", len(request)) + request for request in requests))
        return connection, far

    async def answer(self, sock):
        data = b""
        while len(data) < 5:
            got = await asyncio.wait_for(self.loop.sock_recv(sock, 5 - len(data)), 10)
            assert got
            data += got
        return data[4:]

    async def is_left_waiting(self, name):
        """Whether the loop, with nothing else to do, does not handle what this connection sent."""
        for _ in range(50):
            await asyncio.sleep(0)
        return all(of != name for of, _ in self.handled)


def run(scenario, **limits):
    async def main():
        stage = Stage(asyncio.get_running_loop(), **limits)
        try:
            await scenario(stage)
            for connection in stage.connections:
                connection.close(None)
            assert stage.room.is_free
        finally:
            for peer in stage.peers:
                peer.close()

    asyncio.run(main())


def test_connections_are_not_read_while_frames_above_the_bound_wait_to_be_decoded():
    async def scenario(stage):
        _, first = stage.connect("first", b"L" * 200)
        await until(lambda: stage.large)
        _, second = stage.connect("second", b"2")
        assert await stage.is_left_waiting("second")
        stage.large[0].on_decoded()
        assert await stage.answer(second) == b"2"
        stage.large[0].future.set_result([struct.pack(">i", 1), b"1"])
        assert await stage.answer(first) == b"1"

    run(scenario, bytes_max=100)


def test_only_so_many_connections_have_a_request_that_waits():
    async def scenario(stage):
        stage.connect("first", b"L1")
        stage.connect("second", b"L2")
        await until(lambda: len(stage.large) == 2)
        _, third = stage.connect("third", b"3")
        assert await stage.is_left_waiting("third")
        stage.large[1].on_decoded()
        assert await stage.answer(third) == b"3"

    run(scenario, requests_max=2)


def test_room_is_given_back_by_a_connection_that_ends_and_not_kept_by_one_that_left_the_queue():
    async def scenario(stage):
        first, _ = stage.connect("first", b"L1")
        await until(lambda: stage.large)
        second, _ = stage.connect("second", b"2")
        _, third = stage.connect("third", b"3")
        assert await stage.is_left_waiting("third")
        second.close(None)
        first.close(None)
        assert await stage.answer(third) == b"3"
        assert all(name != "second" for name, _ in stage.handled)

    run(scenario, requests_max=1)


def test_those_that_wait_are_served_although_the_first_of_them_needs_no_room():
    async def scenario(stage):
        stage.connect("first", b"L1")
        await until(lambda: stage.large)
        partial, partial_peer = stage.connect("partial")
        partial_peer.send(b"\0\0")  # half of a size: it has to be received, and takes no room
        later = [stage.connect(f"later {number}", b"x")[1] for number in range(5)]
        assert await stage.is_left_waiting("later 0")
        stage.large[0].on_decoded()
        assert [await stage.answer(peer) for peer in later] == [b"x"] * 5
        assert partial.has_partial_frame

    run(scenario, requests_max=1)


def test_requests_behind_a_large_one_of_their_connection_take_no_room():
    async def scenario(stage):
        _, first = stage.connect("first", b"L1", b"4" * 90, b"5" * 90)
        await until(lambda: stage.large)
        stage.large[0].on_decoded()
        _, second = stage.connect("second", b"2")
        assert await stage.answer(second) == b"2"
        stage.large[0].future.set_result([struct.pack(">i", 1), b"1"])
        assert [await stage.answer(first) for _ in range(3)] == [b"1", b"4", b"5"]

    run(scenario, bytes_max=100)
