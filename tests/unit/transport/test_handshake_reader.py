"""Frames before authentication: small, whole, and none of them lost when another reader goes on."""

from __future__ import annotations

import pytest

from kraftlog.errors import RemoteProtocolError
from kraftlog.transport.handshake_reader import HandshakeReader


class Source:
    """A socket that gives these pieces, one per call."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def recv_into(self, buffer: memoryview) -> int:
        if not self.pieces:
            raise BlockingIOError
        piece, rest = self.pieces[0][: len(buffer)], self.pieces[0][len(buffer) :]
        self.pieces[:1] = [rest] if rest else []
        buffer[: len(piece)] = piece
        return len(piece)


def framed(data):
    return len(data).to_bytes(4, "big") + data


def reader(max_frame_bytes=100):
    return HandshakeReader(memoryview(bytearray(1000)), max_frame_bytes)


def test_frames_come_whole_however_they_are_cut():
    data = framed(b"one") + framed(b"") + framed(b"three")
    for cut in range(1, len(data)):
        source, found, frames = Source(data[:cut], data[cut:]), reader(), []
        while source.pieces:
            frames += found.read(source, 1000)
        assert frames == [b"one", b"", b"three"]
        assert not found.has_partial_frame


def test_no_more_is_received_than_wanted():
    source, found = Source(framed(b"one")), reader()
    assert found.read(source, 3) == []
    assert found.has_partial_frame
    assert found.read(source, 1000) == [b"one"]


@pytest.mark.parametrize("size", [b"\0\0\0\x65", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_a_large_frame_is_refused_by_its_size(size):
    with pytest.raises(RemoteProtocolError, match="before authentication"):
        reader().read(Source(size), 1000)


def test_a_large_frame_behind_another_waits_for_what_that_one_brings():
    found, large = reader(), framed(b"x" * 200)
    assert found.read(Source(framed(b"token") + large[:150]), 1000) == [b"token"]
    assert found.take_rest() == large[:150]
    assert not found.has_partial_frame

    found.read(Source(framed(b"token") + large[:150]), 1000)
    with pytest.raises(RemoteProtocolError):
        found.read(Source(b"x"), 1000)


def test_the_end_of_the_stream():
    class Ended:
        def recv_into(self, buffer: memoryview) -> int:
            return 0

    assert reader().read(Ended(), 1000) is None
