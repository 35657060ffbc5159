"""What clients leave behind in the memory of a node, seen from outside its process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from waiting import until_true

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MB = 1 << 20

NODE = """
import sys
import kraftlog

with kraftlog.Broker(data_dir=sys.argv[1]) as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """A node in a child process: its pid, and where it listens."""
    command = [sys.executable, "-c", NODE, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            bootstrap = child.stdout.readline().strip()
            # What the first connections load once (code, threads, buffers) is not what the tests ask about.
            _leave_half_frames(bootstrap, connections=400, sent_bytes=10)
            yield child.pid, bootstrap
        finally:
            child.stdin.close()
            child.wait(30)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def _leave_half_frames(bootstrap: str, *, connections: int, sent_bytes: int) -> None:
    """Opens `connections`, sends `sent_bytes` of a frame of 60 000 over each, and closes all."""
    with contextlib.ExitStack() as stack:
        for _ in range(connections):
            sock = stack.enter_context(connect(bootstrap))
            sock.sendall((60_000).to_bytes(4, "big") + bytes(sent_bytes))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_half_frames_of_connections_that_left_are_freed(node: tuple[int, str]) -> None:
    pid, bootstrap = node
    before = resident_bytes(pid)
    piece = bytes(MB)
    for _ in range(6):
        with connect(bootstrap) as sock, contextlib.suppress(OSError):
            sock.sendall((95 * MB).to_bytes(4, "big"))
            for _ in range(60):
                sock.sendall(piece)
    # At most one is still being noticed; the others must not wait for a collection of garbage.
    assert resident_bytes(pid) - before < 130 * MB
    until_true(lambda: resident_bytes(pid) - before < 20 * MB, timeout_s=20)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_half_frames_below_the_threshold_of_the_allocator_are_given_back(node: tuple[int, str]) -> None:
    pid, bootstrap = node
    before = resident_bytes(pid)
    _leave_half_frames(bootstrap, connections=400, sent_bytes=50_000)
    until_true(lambda: resident_bytes(pid) - before < 8 * MB, timeout_s=20)
