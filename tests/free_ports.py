"""Ports of 127.0.0.1 for servers that are started later, and may be down for a while."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

# Linux gives ports from 32768 to outgoing connections: any of them may be taken before its server is started.
_PORTS = range(10_000, 32_768)
_TRIES = 100


def free_ports(count: int) -> list[int]:
    """Different ports that nobody has at this moment."""
    return free_port_groups(count, 1)


def free_port_groups(count: int, size: int) -> list[int]:
    """The first ports of different groups of ``size`` ports in a row, which begin with a multiple of ``size``."""
    found: list[int] = []
    groups = range(_PORTS.start // size + 1, _PORTS.stop // size)
    for group in random.SystemRandom().sample(groups, _TRIES + count):
        if len(found) == count:
            break
        with ExitStack() as held:
            try:
                for port in range(group * size, (group + 1) * size):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(group * size)
    assert len(found) == count, f"{len(found)} of {count} ports are free"
    return found


def free_port() -> int:
    """A port that nobody has at this moment."""
    return free_ports(1)[0]


def free_addresses(count: int) -> list[str]:
    """Addresses, as HOST:PORT, that nobody listens on at this moment."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]
