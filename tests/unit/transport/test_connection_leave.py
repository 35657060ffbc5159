"""A connection that gives its socket away behind an answer: what its successor gets, and what is left of it."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.connection import Connection
from kraftlog.transport.exchange import PeerContext, PeerThrottle
from kraftlog.transport.frame_reader import RECEIVE_BUFFER_BYTES
from kraftlog.transport.handshake_reader import HandshakeReader
from kraftlog.transport.peer_log import PeerLog
from kraftlog.transport.request_room import RequestRoom
from kraftlog.transport.scheduler import Scheduler
from waiting import settle, until

MAX_FRAME_BYTES = 1000


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class Stage:
    """A connection that leaves with the frame ``leave``; all others are echoed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.given: list[tuple[socket.socket, bytes, bytes]] = []
        self.lost: list[Connection] = []
        self.handled: list[bytes] = []
        self.room = RequestRoom(loop)
        near, self.far = socket.socketpair()
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.connection = Connection(
            loop,
            near,
            HandshakeReader(memoryview(bytearray(RECEIVE_BUFFER_BYTES)), MAX_FRAME_BYTES),
            self,
            PeerContext("SASL", False, ANONYMOUS, "test", "test:1", throttle=PeerThrottle()),
            on_lost=self.lost.append,
            peer_log=PeerLog(loop, logging.getLogger("test")),
            scheduler=Scheduler(loop),
            room=self.room,
        )

    def handle(self, _peer, frame):
        self.handled.append(bytes(frame))
        if frame == b"leave":
            self.connection.leave(lambda *given: self.given.append(given))
        return [framed(bytes(frame))]

    def close(self):
        self.far.close()
        self.connection.close(None)
        for sock, *_ in self.given:
            sock.close()


def run(scenario):
    async def main():
        stage = Stage(asyncio.get_running_loop())
        try:
            await scenario(stage)
        finally:
            stage.close()

    asyncio.run(main())


def test_successor_gets_all_bytes_behind_the_frame():
    """Whole frames that were cut already, and a frame that is larger than any may be before it."""

    async def scenario(stage):
        behind = framed(b"1") + framed(b"2") * 20 + struct.pack(">i", 5000) + b"start"
        stage.far.sendall(framed(b"first") + framed(b"leave") + behind)
        await until(lambda: stage.given)
        ((sock, received, unsent),) = stage.given
        assert (received, unsent) == (behind, b"")
        assert stage.handled == [b"first", b"leave"]
        assert stage.far.recv(100) == framed(b"first") + framed(b"leave")
        # The socket is the successor's alone.
        assert stage.connection.transport.is_closed
        stage.far.sendall(b"more")
        await settle()
        assert sock.recv(100) == b"more"
        stage.connection.mute(10)
        stage.connection.close("nobody hears of this")
        assert stage.lost == []

    run(scenario)


def test_successor_gets_answers_that_the_peer_did_not_take():
    async def scenario(stage):
        stage.connection.transport.write([bytes(100_000)])
        before = stage.connection.transport.unsent_bytes
        assert before > 0
        stage.far.sendall(framed(b"leave"))
        await until(lambda: stage.given)
        ((_, received, unsent),) = stage.given
        assert received == b""
        assert unsent == bytes(before) + framed(b"leave")

    run(scenario)


def test_peer_that_is_gone_has_no_successor():
    async def scenario(stage):
        stage.far.sendall(framed(b"leave"))
        stage.far.close()
        await until(lambda: stage.lost)
        assert stage.handled == [b"leave"]
        assert (stage.given, stage.lost) == ([], [stage.connection])

    run(scenario)
