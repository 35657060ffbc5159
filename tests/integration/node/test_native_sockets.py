"""Connections whose sockets I/O threads own, with an exchange that does what each frame says."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time

import pytest

from kraftlog._kraftlog import Partitions
from kraftlog.runtime.inbox import Inbox
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import CloseConnection, PeerContext, PendingResponse
from kraftlog.transport.native_sockets import DataPathLimits, NativeSockets
from kraftlog.transport.peer_log import PeerLog
from kraftlog.transport.scheduler import Scheduler
from waiting import until

CONTEXT = PeerContext(
    listener_name="PLAINTEXT", is_controller_listener=False, principal=ANONYMOUS, client_host="test", peer="test:1"
)
TIMEOUT_S = 30.0
METADATA = b"\0\3"
FETCH = b"\0\1"
# More than are copied in one step.
BUFFERS = [bytes([index]) * 1000 for index in range(200)]


def framed(data):
    return struct.pack(">i", len(data)) + data


class Exchange:
    """The byte behind the API key says what becomes of a frame."""

    def __init__(self):
        self.handled = []
        self.futures = []

    def handle(self, context, frame):
        assert context is CONTEXT
        self.handled.append(bytes(frame))
        what, rest = frame[2:3], bytes(frame[3:])
        match what:
            case b"e":
                return [framed(rest)]
            case b"m":
                return [struct.pack(">i", len(rest)), memoryview(rest)]
            case b"l":
                return [framed(bytes(int(rest)))]
            case b"w":
                return [struct.pack(">i", sum(map(len, BUFFERS))), *BUFFERS]
            case b"s":
                time.sleep(0.001)
                return [framed(rest)]
            case b"n":
                return None
            case b"p":
                future = asyncio.get_running_loop().create_future()
                self.futures.append(future)
                return PendingResponse(future, self._finish, is_long_poll=frame[:2] == FETCH)
        return CloseConnection("not a request")

    @staticmethod
    def _finish(future):
        return CloseConnection("abandoned") if future.cancelled() else future.result()


class Stage:
    def __init__(self, loop, sockets, exchange, failures):
        self.loop, self.sockets, self.exchange, self.failures = loop, sockets, exchange, failures
        self.lost = []
        self.peer_log = PeerLog(loop, logging.getLogger("kraftlog.transport"))

    def connect(self):
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        connection = self.sockets.adopt(
            near, self.exchange, CONTEXT, listener=0, on_lost=self.lost.append, peer_log=self.peer_log
        )
        return connection, Peer(self.loop, far)


class Peer:
    def __init__(self, loop, sock):
        self.loop, self.sock = loop, sock

    async def send(self, *requests):
        await self.loop.sock_sendall(self.sock, b"".join(framed(request) for request in requests))

    async def receive(self):
        (size,) = struct.unpack(">i", await self._exactly(4))
        return await self._exactly(size)

    async def at_end(self):
        try:
            return await asyncio.wait_for(self.loop.sock_recv(self.sock, 1), TIMEOUT_S) == b""
        except ConnectionResetError:  # the other end had bytes that it did not read
            return True

    async def _exactly(self, count):
        data = bytearray()
        while len(data) < count:
            got = await asyncio.wait_for(self.loop.sock_recv(self.sock, count - len(data)), TIMEOUT_S)
            assert got, "closed"
            data += got
        return bytes(data)


def run(scenario, *, max_idle_ms=0):
    async def main():
        loop = asyncio.get_running_loop()
        failures = []
        limits = DataPathLimits(
            threads=1,
            max_frame_bytes=1 << 20,
            max_idle_ms=max_idle_ms,
            fetch_max_bytes=1 << 20,
            fetch_sessions_max=10,
            fetch_session_eviction_ms=1000,
        )
        inbox = Inbox(loop)
        sockets = NativeSockets(
            loop, Partitions(), inbox, limits, scheduler=Scheduler(loop), on_failure=failures.append
        )
        try:
            await scenario(Stage(loop, sockets, Exchange(), failures))
        finally:
            sockets.close()
            inbox.close()
        assert not failures

    asyncio.run(main())


def test_answers_leave_in_the_order_of_the_requests():
    async def scenario(stage):
        _, peer = stage.connect()
        await peer.send(METADATA + b"p", METADATA + b"e2", METADATA + b"n", METADATA + b"m4", METADATA + b"p")
        await until(lambda: len(stage.exchange.futures) == 2)
        stage.exchange.futures[1].set_result([framed(b"5")])
        await asyncio.sleep(0.02)
        stage.exchange.futures[0].set_result([framed(b"1")])
        assert [await peer.receive() for _ in range(4)] == [b"1", b"2", b"4", b"5"]

    run(scenario)


def test_an_answer_of_many_buffers_is_whole_and_those_behind_it_follow():
    async def scenario(stage):
        connection, peer = stage.connect()
        await peer.send(METADATA + b"w", METADATA + b"e2", METADATA + b"w")
        assert [await peer.receive() for _ in range(3)] == [b"".join(BUFFERS), b"2", b"".join(BUFFERS)]
        await until(lambda: not connection.is_owed)

    run(scenario)


def test_a_frame_as_large_as_allowed_arrives_whole():
    async def scenario(stage):
        _, peer = stage.connect()
        text = bytes(range(256)) * 4095
        sending = asyncio.create_task(peer.send(METADATA + b"e" + text, METADATA + b"eend"))
        assert await peer.receive() == text
        assert await peer.receive() == b"end"
        await sending

    run(scenario)


def test_a_reason_to_close_is_logged_with_the_peer(caplog):
    async def scenario(stage):
        connection, peer = stage.connect()
        await peer.send(METADATA + b"eok", METADATA + b"?", METADATA + b"enot handled")
        assert await peer.receive() == b"ok"
        assert await peer.at_end()
        await until(lambda: stage.lost == [connection])
        assert len(stage.exchange.handled) == 2

    run(scenario)
    assert "closing connection from test:1 on listener PLAINTEXT: not a request" in caplog.text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", -1), "a frame of -1 bytes is not between 0 and 1048576 bytes"),
        (struct.pack(">i", (1 << 20) + 1), "a frame of 1048577 bytes is not between 0 and 1048576 bytes"),
        (b"\0\0\0\x09ab", "peer closed the connection inside a frame"),
    ],
)
def test_a_stream_that_has_no_frames_is_closed_with_the_reason(caplog, data, reason):
    async def scenario(stage):
        connection, peer = stage.connect()
        await stage.loop.sock_sendall(peer.sock, data)
        peer.sock.shutdown(socket.SHUT_WR)
        assert await peer.at_end()
        await until(lambda: stage.lost == [connection])

    run(scenario)
    assert reason in caplog.text


def test_long_polls_of_a_lost_connection_are_cancelled_and_other_work_goes_on():
    async def scenario(stage):
        connection, peer = stage.connect()
        await peer.send(METADATA + b"p", FETCH + b"p")
        await until(lambda: len(stage.exchange.futures) == 2)
        assert connection.is_owed
        peer.sock.close()
        await until(lambda: stage.lost == [connection])
        append, poll = stage.exchange.futures
        assert poll.cancelled()
        assert not append.done()
        append.set_result([framed(b"to nobody")])
        await asyncio.sleep(0.01)

    run(scenario)


def test_responses_that_nobody_takes_hold_back_the_handling():
    async def scenario(stage):
        connection, peer = stage.connect()
        for _ in range(300):
            await peer.send(METADATA + b"l200000")
        await asyncio.sleep(0.1)
        # 4 MiB and the one that exceeds them, and what the kernel holds.
        assert len(stage.exchange.handled) < 40
        assert connection.socket.unsent_bytes < 5 << 20
        for _ in range(300):
            assert len(await peer.receive()) == 200_000

    run(scenario)


def test_a_small_request_waits_for_a_slice_and_not_for_the_queue_of_another_connection():
    async def scenario(stage):
        for _ in range(5):
            _, greedy = stage.connect()
            await greedy.send(*[METADATA + b"s"] * 2000)
        await until(lambda: len(stage.exchange.handled) > 20)
        _, peer = stage.connect()
        before = len(stage.exchange.handled)
        await peer.send(METADATA + b"esmall")
        assert await peer.receive() == b"small"
        handled = len(stage.exchange.handled) - before
        assert handled < 100, f"{handled} requests of others were handled first"

    run(scenario)


def test_a_stopped_connection_answers_what_is_pending_and_handles_nothing_more():
    async def scenario(stage):
        connection, peer = stage.connect()
        await peer.send(METADATA + b"p")
        await until(lambda: len(stage.exchange.futures) == 1)
        connection.stop_reading()
        await asyncio.sleep(0.02)
        await peer.send(METADATA + b"elate")
        await asyncio.sleep(0.02)
        assert connection.is_owed
        stage.exchange.futures[0].set_result([framed(b"pending")])
        assert await peer.receive() == b"pending"
        await until(lambda: not connection.is_owed)
        assert len(stage.exchange.handled) == 1
        connection.close(None)
        assert await peer.at_end()
        await until(lambda: stage.lost == [connection])

    run(scenario)


def test_idle_connections_are_closed(caplog):
    async def scenario(stage):
        silent, silent_peer = stage.connect()
        partial, partial_peer = stage.connect()
        waiting, waiting_peer = stage.connect()
        await stage.loop.sock_sendall(partial_peer.sock, b"\0\0\0\x09a")
        await waiting_peer.send(METADATA + b"p")
        assert await silent_peer.at_end()
        assert await partial_peer.at_end()
        await until(lambda: set(stage.lost) == {silent, partial})
        stage.exchange.futures[0].set_result([framed(b"still here")])
        assert await waiting_peer.receive() == b"still here"
        assert waiting not in stage.lost

    run(scenario, max_idle_ms=150)
    assert "no bytes for connections.max.idle.ms=150 inside a frame" in caplog.text


def test_closing_ends_every_connection():
    async def scenario(stage):
        peers = [stage.connect()[1] for _ in range(10)]
        stage.sockets.close()
        stage.sockets.close()
        assert len(stage.lost) == 10
        for peer in peers:
            assert await peer.at_end()

    run(scenario)
