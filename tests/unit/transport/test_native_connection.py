"""Large answers are copied for the I/O thread in slices: requests of others are handled meanwhile."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import CloseConnection, PeerContext
from kraftlog.transport.native_connection import NativeConnection
from kraftlog.transport.peer_log import PeerLog
from kraftlog.transport.scheduler import SLICE_S, TURN_S, Scheduler
from waiting import settle, until

CONTEXT = PeerContext(
    listener_name="PLAINTEXT", is_controller_listener=False, principal=ANONYMOUS, client_host="test", peer="test:1"
)
BUFFERS = 1000
BUFFERS_PER_SLICE_MAX = 10


class Machine:
    """A clock that moves when something is copied, and answers by connection."""

    def __init__(self):
        self.now_s = 100.0
        self.answers = []
        self.lost = []

    def clock(self):
        return self.now_s

    def handle(self, _peer, frame):
        if frame == b"close":
            return CloseConnection("as the frame says")
        return [frame] * (BUFFERS if frame == b"large" else 1)


class DataSocket:
    """Takes a slice to copy as many buffers as a slice may have."""

    unsent_bytes = owed = 0

    def __init__(self, machine, name):
        self.machine, self.name = machine, name
        self.begun = {}
        self.is_closed = False

    def _copy(self, number, outputs):
        self.machine.now_s += SLICE_S * len(outputs) / BUFFERS_PER_SLICE_MAX
        return self.begun.pop(number, []) + list(outputs)

    def begin_answer(self, number, outputs):
        self.begun[number] = self._copy(number, outputs)

    def answer(self, number, outputs):
        self.machine.answers.append((self.name, number, self._copy(number, outputs)))

    def close(self, _reason):
        self.is_closed = True

    def stop_reading(self):
        pass


@pytest.fixture
def machine():
    return Machine()


def connection(machine, scheduler, name):
    loop = asyncio.get_running_loop()
    return NativeConnection(
        loop,
        DataSocket(machine, name),
        machine,
        CONTEXT,
        on_lost=machine.lost.append,
        peer_log=PeerLog(loop, logging.getLogger("kraftlog.transport")),
        scheduler=scheduler,
        flush_soon=lambda: None,
    )


def receive(connection, *frames):
    for number, frame in enumerate(frames):
        connection.frame_received(number, frame)
    connection.work()


def test_requests_of_others_are_answered_while_a_large_answer_is_copied(machine):
    async def run():
        scheduler = Scheduler(asyncio.get_running_loop(), machine.clock)
        large, small = connection(machine, scheduler, "large"), connection(machine, scheduler, "small")
        began_s = machine.now_s
        receive(large, b"large", b"next")
        assert machine.now_s - began_s <= 2 * SLICE_S
        assert large.is_owed
        receive(small, b"small")
        await until(lambda: machine.answers)
        assert machine.answers.pop(0) == ("small", 0, [b"small"])
        assert machine.now_s - began_s <= 2 * TURN_S
        await until(lambda: len(machine.answers) == 2)
        assert machine.answers == [("large", 0, [b"large"] * BUFFERS), ("large", 1, [b"next"])]
        assert not large.is_owed

    asyncio.run(run())


@pytest.mark.parametrize("is_lost", [False, True])
def test_the_rest_of_a_large_answer_is_dropped_with_its_connection(machine, is_lost):
    async def run():
        scheduler = Scheduler(asyncio.get_running_loop(), machine.clock)
        ended = connection(machine, scheduler, "ended")
        receive(ended, b"large")
        if is_lost:
            ended.connection_lost(None)
        else:
            ended.close(None)
        copied_until_s = machine.now_s
        await settle()
        assert machine.now_s == copied_until_s
        assert not machine.answers
        assert not ended.is_owed

    asyncio.run(run())
