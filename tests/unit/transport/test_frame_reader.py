"""FrameReader: whole frames out of any cutting of the stream."""

from __future__ import annotations

import random
import socket

import pytest

from kraftlog.errors import RemoteProtocolError
from kraftlog.transport.frame_reader import FrameReader


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    right.setblocking(False)
    yield left, right
    left.close()
    right.close()


def reader(max_frame_bytes=100 * 1024 * 1024, scratch_bytes=256 * 1024):
    return FrameReader(memoryview(bytearray(scratch_bytes)), max_frame_bytes)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def read_available(one, sock):
    frames = []
    while True:
        try:
            got = one.read(sock)
        except BlockingIOError:
            return frames
        frames += got


def test_several_frames_of_one_wake_up_come_together(pair):
    left, right = pair
    left.sendall(frame(b"a") + frame(b"") + frame(b"ccc") + b"\0\0")
    one = reader()
    assert one.read(right) == [b"a", b"", b"ccc"]
    assert one.has_partial_frame


@pytest.mark.parametrize("seed", range(20))
def test_any_cutting_gives_the_same_frames(pair, seed):
    left, right = pair
    rng = random.Random(seed)
    bodies = [rng.randbytes(rng.choice([0, 1, 3, 4, 5, 100, 5000, 70000, 300000])) for _ in range(20)]
    data = b"".join(frame(body) for body in bodies)
    one = reader(scratch_bytes=rng.choice([16, 1024, 65536]))
    frames = []
    while data:
        size = rng.choice([1, 2, 3, 7, 1000, 30000])
        left.sendall(data[:size])
        data = data[size:]
        frames += read_available(one, right)
    assert [bytes(frame) for frame in frames] == bodies
    assert not one.has_partial_frame


def test_size_above_limit_is_refused(pair):
    left, right = pair
    left.sendall((101).to_bytes(4, "big"))
    with pytest.raises(RemoteProtocolError, match="101"):
        reader(max_frame_bytes=100).read(right)


def test_negative_size_is_refused(pair):
    left, right = pair
    left.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(RemoteProtocolError, match="-1"):
        reader().read(right)


def test_end_of_stream_is_none(pair):
    left, right = pair
    left.close()
    assert reader().read(right) is None
