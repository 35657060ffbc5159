"""Transport: buffers and file slices go out in order, whatever the kernel takes at a time."""

from __future__ import annotations

import asyncio
import errno
import random
import socket

import pytest

from kraftlog.transport.frame_reader import FrameReader
from kraftlog.transport.socket import Transport


class Slice:
    """What the engine's FileSlice offers a transport."""

    def __init__(self, file, position, size_bytes):
        self.file, self.position, self.size_bytes = file, position, size_bytes

    def fileno(self):
        return self.file.fileno()

    def read(self):
        self.file.seek(self.position)
        return self.file.read(self.size_bytes)


class Receiver:
    """Notes what it is told."""

    is_behind = False

    def __init__(self):
        self.events = []

    def may_receive(self):
        return True

    def frames_received(self, frames):
        self.events.append(frames)

    def connection_lost(self, reason):
        self.events.append(("lost", reason))

    def writing_paused(self):
        self.events.append("paused")

    def writing_resumed(self):
        self.events.append("resumed")


def run(scenario):
    async def main():
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        receiver = Receiver()
        transport = Transport(loop, ours, FrameReader(memoryview(bytearray(65536)), 1 << 20), receiver)
        try:
            await scenario(loop, transport, theirs, receiver)
        finally:
            transport.close(None)
            theirs.close()

    asyncio.run(main())


async def receive(loop, sock, count):
    data = bytearray()
    while len(data) < count:
        got = await asyncio.wait_for(loop.sock_recv(sock, 100_000), 5)
        assert got
        data += got
    return bytes(data)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(random.Random(3).randbytes(3_000_000))
    with path.open("r+b") as one:
        yield one


@pytest.mark.parametrize("seed", range(5))
def test_buffers_and_slices_of_any_size_arrive_in_order(file, seed):
    rng = random.Random(seed)
    outputs, expected = [], b""
    for _ in range(60):
        if rng.random() < 0.5:
            data = rng.randbytes(rng.choice([0, 1, 50, 5000, 100_000]))
            outputs.append(data if rng.random() < 0.5 else memoryview(data))
            expected += data
        else:
            size = rng.choice([0, 1, 1000, 20_000, 700_000])
            one = Slice(file, rng.randrange(1_000_000), size)
            outputs.append(one)
            expected += one.read()

    async def scenario(loop, transport, theirs, receiver):
        cut = rng.randrange(len(outputs))
        transport.write(outputs[:cut])
        transport.write(outputs[cut:])
        assert await receive(loop, theirs, len(expected)) == expected
        await asyncio.sleep(0)
        assert transport.unsent_bytes == 0
        assert receiver.events in ([], ["paused", "resumed"])

    run(scenario)


def test_many_buffers_go_out_in_few_calls(file):
    async def scenario(loop, transport, theirs, receiver):
        outputs = [b"%06d" % number for number in range(500)]
        transport.write(outputs)
        assert await receive(loop, theirs, 3000) == b"".join(outputs)

    run(scenario)


def test_file_that_became_shorter_closes_the_connection(file):
    async def scenario(loop, transport, theirs, receiver):
        file.truncate(100_000)
        transport.write([b"head", Slice(file, 50_000, 500_000)])
        assert await receive(loop, theirs, 50_004)
        while not receiver.events:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert receiver.events == [("lost", "send failed: the file ended before the slice did")]
        assert transport.is_closed

    run(scenario)


def test_slice_that_cannot_be_read_closes_the_connection(file):
    """Seed 80231 with records: the answer was lost, and the follower waited for it until its time-out."""

    class Unreadable(Slice):
        def read(self):
            raise OSError(errno.EIO, "read t-0/0.log: Input/output error")

    async def scenario(loop, transport, theirs, receiver):
        transport.write([b"head", Unreadable(file, 0, 100), b"tail"])
        assert await asyncio.wait_for(loop.sock_recv(theirs, 1), 5) == b""
        ((event, reason),) = receiver.events
        assert event == "lost"
        assert "cannot be read from a log" in reason
        assert "t-0/0.log" in reason

    run(scenario)


def test_close_when_sent_sends_everything_first():
    async def scenario(loop, transport, theirs, receiver):
        data = bytes(900_000)
        transport.write([data])
        transport.close_when_sent()
        assert await receive(loop, theirs, len(data)) == data
        assert await asyncio.wait_for(loop.sock_recv(theirs, 1), 5) == b""
        assert receiver.events == [("lost", None)]

    run(scenario)


def test_peer_that_goes_away_while_bytes_wait_is_no_noise():
    async def scenario(loop, transport, theirs, receiver):
        transport.write([bytes(5_000_000)])
        theirs.close()
        while not transport.is_closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert receiver.events == ["paused", ("lost", None)]
        transport.write([b"late"])

    run(scenario)
