"""Connection: slices of work, and bounds on what waits; over a real pair of sockets, with an exchange of the test."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from types import SimpleNamespace

import pytest

from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.connection import (
    MAX_FRAMES_PER_SLICE,
    MAX_HELD_BYTES,
    MAX_IN_FLIGHT,
    Connection,
)
from kraftlog.transport.exchange import PeerContext, PeerThrottle, PendingResponse
from kraftlog.transport.frame_reader import RECEIVE_BUFFER_BYTES, FrameReader
from kraftlog.transport.mute import Mute
from kraftlog.transport.peer_log import PeerLog
from kraftlog.transport.peer_watch import PeerWatch
from kraftlog.transport.scheduler import SLICE_S, Scheduler
from kraftlog.transport.socket import MEMORY_HIGH_WATER_BYTES
from waiting import settle, until

SCRATCH = memoryview(bytearray(RECEIVE_BUFFER_BYTES))


class Clock:
    """Moves only when a handler says so."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


class Exchange:
    """Hands frames to the test's function, with the name of the peer, and notes them."""

    def __init__(self, answer):
        self.answer = answer
        self.handled = []

    def handle(self, peer, frame):
        self.handled.append((peer.peer, bytes(frame)))
        return self.answer(peer.peer, bytes(frame))


class Bench:
    """Connections of one scheduler, each with the peer's end of its socket."""

    def __init__(self, loop, answer):
        self.loop = loop
        self.clock = Clock()
        self.peer_watch = PeerWatch(loop)
        self.scheduler = Scheduler(loop, self.clock)
        self.exchange = Exchange(answer)
        self.peers = []
        self.connections = []
        self.lost = []

    def connect(self, name):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        connection = Connection(
            self.loop,
            ours,
            FrameReader(SCRATCH, 100 << 20),
            self.exchange,
            PeerContext("PLAINTEXT", False, ANONYMOUS, "127.0.0.1", name, throttle=PeerThrottle()),
            on_lost=self.lost.append,
            peer_log=PeerLog(self.loop, logging.getLogger("test")),
            scheduler=self.scheduler,
            peer_watch=self.peer_watch,
        )
        self.connections.append(connection)
        self.peers.append(theirs)
        return connection, theirs


def run(answer, scenario):
    async def main():
        bench = Bench(asyncio.get_running_loop(), answer)
        try:
            await scenario(bench)
        finally:
            for connection in bench.connections:
                connection.close(None)
            for peer in bench.peers:
                peer.close()
            bench.peer_watch.close()

    asyncio.run(main())


def frame(data):
    return struct.pack(">i", len(data)) + data


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def until_handled(bench, request=None):
    """Wait turn by turn of the loop, so that a test sees the first turn that handles a request."""
    for _ in range(100_000):
        if request in bench.exchange.handled if request else bench.exchange.handled:
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing was handled")


async def receive(loop, sock, count):
    data = bytearray()
    while len(data) < count:
        got = await asyncio.wait_for(loop.sock_recv(sock, 1 << 16), 10)
        assert got
        data += got
    return bytes(data)


def test_answers_that_nobody_reads_are_bounded_and_the_rest_follows_when_they_are_read():
    size = 60_000

    def answer(_, data):
        return [data.ljust(size, b".")]

    async def scenario(bench):
        connection, peer = bench.connect("a")
        count = 500
        peer.send(b"".join(frame(b"%08d" % number) for number in range(count)))
        for _ in range(2000):
            await asyncio.sleep(0)
            assert connection.transport.unsent_bytes <= MEMORY_HIGH_WATER_BYTES + size
        assert connection.is_stuck
        handled = len(bench.exchange.handled)
        assert handled * size < 4 * MEMORY_HIGH_WATER_BYTES  # a socket's buffer takes some
        got = await receive(bench.loop, peer, count * size)
        assert [got[start : start + 8] for start in range(0, count * size, size)] == [b"%08d" % n for n in range(count)]

    run(answer, scenario)


def test_connections_that_pipeline_are_served_in_a_round():
    async def scenario(bench):
        for name in "abc":
            _, peer = bench.connect(name)
            peer.send(frame(b"x") * 50)
        await turns(200)
        served = [name for name, _ in bench.exchange.handled]
        assert len(served) == 150
        # One request uses a slice. Whatever came first, nobody is ever far ahead.
        for end in range(1, 150):
            counts = [served[:end].count(name) for name in "abc"]
            assert max(counts) - min(counts) <= 3

    bench_of = {}

    def answer(_, __):
        bench_of["clock"].now_s += SLICE_S
        return [b"y"]

    async def with_clock(bench):
        bench_of["clock"] = bench.clock
        await scenario(bench)

    run(answer, with_clock)


def test_small_request_waits_for_one_turn_beside_fifty_that_pipeline():
    clocks = []

    def answer(_, __):
        clocks[0].now_s += SLICE_S
        return [b"y"]

    async def scenario(bench):
        clocks.append(bench.clock)
        for number in range(50):
            _, peer = bench.connect(f"heavy-{number}")
            peer.send(frame(b"x") * 400)
        await turns(100)
        _, peer = bench.connect("victim")
        waits = []
        for _ in range(20):
            await turns(3)
            sent_s = bench.clock.now_s
            peer.send(frame(b"v"))
            await until_handled(bench, ("victim", b"v"))
            bench.exchange.handled.remove(("victim", b"v"))
            waits.append(bench.clock.now_s - sent_s)
        assert any(connection.is_behind for connection in bench.connections[:-1])
        assert max(waits) <= 0.010

    run(answer, scenario)


def test_requests_of_one_slice_are_counted_when_the_clock_says_nothing():
    async def scenario(bench):
        connection, peer = bench.connect("a")
        peer.send(frame(b"x") * 1000)
        await until_handled(bench)
        assert len(bench.exchange.handled) == MAX_FRAMES_PER_SLICE
        assert connection.is_behind
        await until(lambda: len(bench.exchange.handled) == 1000)

    run(lambda _, __: None, scenario)


def test_answers_held_behind_a_long_poll_are_bounded():
    future = []
    size = 100_000

    def answer(_, data):
        if data == b"poll":
            future.append(asyncio.get_running_loop().create_future())
            return PendingResponse(future[0], lambda _: [b"polled"], is_long_poll=True)
        return [data.ljust(size, b".")]

    async def scenario(bench):
        _, peer = bench.connect("a")
        peer.send(frame(b"poll") + b"".join(frame(b"%08d" % number) for number in range(60)))
        await turns(200)
        handled = len(bench.exchange.handled)
        assert handled < MAX_IN_FLIGHT
        assert (handled - 1) * size <= MAX_HELD_BYTES + size
        future[0].set_result(None)
        got = await receive(bench.loop, peer, 6 + 60 * size)
        assert got.startswith(b"polled")
        assert [got[start : start + 8] for start in range(6, len(got), size)] == [b"%08d" % n for n in range(60)]

    run(answer, scenario)


def test_answers_that_become_known_together_are_encoded_in_slices():
    futures, finished, clocks = [], [], []

    def answer(_, __):
        future = asyncio.get_running_loop().create_future()
        futures.append(future)

        def finish(_):
            clocks[0].now_s += SLICE_S
            finished.append(clocks[0].now_s)
            return [b"%02d" % len(finished)]

        return PendingResponse(future, finish, is_long_poll=True)

    async def scenario(bench):
        clocks.append(bench.clock)
        _, peer = bench.connect("a")
        peer.send(frame(b"x") * 40)
        await until(lambda: len(futures) == 40)
        for future in futures:
            future.set_result(None)
        most, before = 0, 0
        for _ in range(200):
            await asyncio.sleep(0)
            most, before = max(most, len(finished) - before), len(finished)
        assert most <= 10
        assert await receive(bench.loop, peer, 80) == b"".join(b"%02d" % n for n in range(1, 41))

    run(answer, scenario)


def test_answers_of_a_closed_connection_are_not_encoded():
    futures, finished = [], []

    def answer(_, __):
        futures.append(asyncio.get_running_loop().create_future())
        return PendingResponse(futures[-1], finished.append)

    async def scenario(bench):
        connection, peer = bench.connect("a")
        peer.send(frame(b"x") * 2)
        await until(lambda: len(futures) == 2)
        connection.close(None)
        futures[0].set_result("late")
        futures[1].set_exception(ValueError("late"))
        await turns(3)
        assert finished == [futures[1]]  # whose error is logged

    run(answer, scenario)


def test_closed_connection_frees_the_half_frame_it_received():
    async def scenario(bench):
        connection, peer = bench.connect("a")
        peer.send(struct.pack(">i", 90 << 20) + bytes(100_000))
        await until(lambda: connection.has_partial_frame)
        connection.close(None)
        assert not connection.has_partial_frame
        assert bench.lost == [connection]

    run(lambda _, __: None, scenario)


def test_closed_connection_that_is_queued_is_served_no_more():
    def answer(_, data):
        return [data]

    async def scenario(bench):
        connection, peer = bench.connect("a")
        peer.send(frame(b"x") * 1000)
        await until_handled(bench)
        connection.close(None)
        handled = len(bench.exchange.handled)
        await turns(5)
        assert len(bench.exchange.handled) == handled
        assert len(bench.scheduler) == 0

    run(answer, scenario)


def test_requests_behind_one_in_slices_wait_for_its_answer():
    futures = []

    def answer(_, data):
        if data == b"large":
            futures.append(asyncio.get_running_loop().create_future())
            return PendingResponse(futures[-1], lambda _: [b"large"], is_exclusive=True)
        return [data]

    async def scenario(bench):
        _, peer = bench.connect("a")
        peer.send(frame(b"x") + frame(b"large") + frame(b"y") + frame(b"z"))
        await turns(50)
        assert [data for _, data in bench.exchange.handled] == [b"x", b"large"]
        futures[0].set_result(None)
        assert await receive(bench.loop, peer, 8) == b"xlargeyz"

    run(answer, scenario)


def waiting(is_long_poll):
    """An answer that never becomes known, and the futures that were made."""
    futures = []

    def answer(_name, _frame):
        futures.append(asyncio.get_running_loop().create_future())
        return PendingResponse(futures[-1], lambda _: [], is_long_poll=is_long_poll)

    return answer, futures


def test_peer_that_leaves_behind_long_polls_is_noticed_although_nothing_is_received_from_it():
    answer, futures = waiting(is_long_poll=True)

    async def scenario(bench):
        connection, peer = bench.connect("impatient")
        peer.send(frame(b"poll") * (MAX_IN_FLIGHT + 10))
        await until(lambda: connection.is_full and not connection.transport.is_reading)
        peer.close()
        await until(lambda: bench.lost)
        assert all(future.cancelled() for future in futures)
        assert len(bench.peer_watch) == 0

    run(answer, scenario)


def test_requests_that_change_something_are_handled_after_their_peer_left():
    answer, futures = waiting(is_long_poll=False)

    async def scenario(bench):
        connection, peer = bench.connect("quick")
        peer.send(frame(b"append") * (MAX_IN_FLIGHT + 10))
        await until(lambda: connection.is_full and not connection.transport.is_reading)
        peer.close()
        await turns(50)
        assert not bench.lost
        for future in futures[:20]:
            future.set_result(None)
        await until(lambda: len(futures) == MAX_IN_FLIGHT + 10)

    run(answer, scenario)


class Timers:
    """Stands for the timers of a loop; time passes when a test says so."""

    def __init__(self):
        self.now_s = 0.0
        self.armed = []

    def time(self):
        return self.now_s

    def call_later(self, delay_s, callback):
        timer = SimpleNamespace(at_s=self.now_s + delay_s, callback=callback)
        timer.cancel = lambda: self.armed.remove(timer)
        self.armed.append(timer)
        return timer

    def pass_time(self, seconds):
        self.now_s += seconds
        for timer in [timer for timer in self.armed if timer.at_s <= self.now_s]:
            self.armed.remove(timer)
            timer.callback()


def with_timers(connection):
    """Let a connection be muted in the time of a test."""
    timers = Timers()
    connection._mute = Mute(timers, connection._mute_ended)
    return timers


@pytest.mark.spec("CERR-36")
def test_a_muted_connection_is_answered_but_handles_no_request_until_it_is_over():
    """What came with the throttled request waits as well; another connection does not."""

    async def scenario(bench):
        connection, peer = bench.connect("throttled")
        _, other = bench.connect("other")
        timers = with_timers(connection)
        pending = bench.loop.create_future()

        def answer(_, request):
            if request == b"wait":
                return PendingResponse(pending, lambda future: [frame(future.result())])
            if request == b"throttle":
                connection.context.throttle.mute(1_500)
            return [frame(request)]

        bench.exchange.answer = answer
        peer.sendall(frame(b"wait") + frame(b"throttle") + frame(b"next"))
        await until(lambda: len(bench.exchange.handled) == 2)
        peer.sendall(frame(b"last"))
        other.sendall(frame(b"served"))
        await until(lambda: ("other", b"served") in bench.exchange.handled)
        pending.set_result(b"waited")
        expected = frame(b"waited") + frame(b"throttle")
        received = b""
        while len(received) < len(expected):
            received += await bench.loop.sock_recv(peer, 1000)
        assert received == expected
        timers.pass_time(1.4)
        await settle()
        assert [request for name, request in bench.exchange.handled if name == "throttled"] == [b"wait", b"throttle"]
        assert not connection.transport.is_reading
        timers.pass_time(0.1)
        await until(lambda: bench.exchange.handled[-1] == ("throttled", b"last"))
        assert bench.exchange.handled[-2] == ("throttled", b"next")
        assert connection.transport.is_reading

    run(None, scenario)


def test_the_longest_of_several_mutes_counts_and_a_closed_connection_has_none():
    async def scenario(bench):
        connection, peer = bench.connect("throttled")
        timers = with_timers(connection)
        for duration_ms in (200, 20, 0):
            connection.mute(duration_ms)
        peer.sendall(frame(b"late"))
        timers.pass_time(0.19)
        await settle()
        assert not bench.exchange.handled
        timers.pass_time(0.01)
        await until(lambda: bench.exchange.handled)
        connection.mute(60_000)
        assert timers.armed
        connection.close(None)
        connection.mute(60_000)
        assert not timers.armed

    run(lambda _, request: [frame(request)], scenario)
