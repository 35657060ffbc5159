"""Lines that peers provoke are bounded per host and second, and what is left out is counted."""

from __future__ import annotations

import logging
import socket

import pytest

import kraftlog
from kraftlog.transport.peer_log import HOSTS_MAX, LINES_PER_SECOND, PeerLog


class Loop:
    """Keeps what is to be called at the end of the second."""

    def __init__(self):
        self.later = []

    def call_later(self, delay_s, callback, *arguments):
        assert delay_s == 1.0
        self.later.append((callback, arguments))

    def end_second(self):
        later, self.later = self.later, []
        for callback, arguments in later:
            callback(*arguments)


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def peer_log(loop, caplog):
    caplog.set_level(logging.WARNING, logger="kraftlog.peer")
    return PeerLog(loop, logging.getLogger("kraftlog.peer"))


def test_lines_beyond_the_bound_are_counted_in_one(loop, peer_log, caplog):
    for index in range(2_000):
        peer_log.warning("10.0.0.1", "closing %d", index)
    peer_log.warning("10.0.0.2", "closing another")
    loop.end_second()
    *lines, last = caplog.messages
    assert lines == [*(f"closing {index}" for index in range(LINES_PER_SECOND)), "closing another"]
    assert last == "1990 more warnings about 10.0.0.1 within a second were left out"


def test_the_next_second_begins_anew(loop, peer_log, caplog):
    for _ in range(2):
        for index in range(LINES_PER_SECOND):
            peer_log.warning("10.0.0.1", "closing %d", index)
        loop.end_second()
    assert len(caplog.messages) == 2 * LINES_PER_SECOND


def host_name(index):
    return f"host-{index}"


def test_many_hosts_share_one_count(loop, peer_log, caplog):
    for index in range(HOSTS_MAX + 500):
        peer_log.warning(host_name(index), "closing")
    assert len(loop.later) == HOSTS_MAX + 1
    loop.end_second()
    assert len(caplog.messages) == HOSTS_MAX + LINES_PER_SECOND + 1
    assert caplog.messages[-1] == "490 more warnings about other hosts within a second were left out"


def test_half_frames_of_one_peer_write_few_lines(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="kraftlog.transport"), kraftlog.Broker(tmp_path / "data") as broker:
        host, port = broker.bootstrap_servers.split(":")
        for _ in range(100):
            with socket.create_connection((host, int(port))) as sock:
                sock.sendall(b"\0\0\1\0half")
                sock.shutdown(socket.SHUT_WR)
                assert sock.recv(1) == b""
    about = [message for message in caplog.messages if "closing connection from 127.0.0.1" in message]
    assert 0 < len(about) < 100
