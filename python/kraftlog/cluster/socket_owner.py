"""Which process has opened a TCP connection of this machine, as Linux tells in ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["can_tell_owners", "local_ports_of"]

_TABLE = Path("/proc/net/tcp")


def can_tell_owners() -> bool:
    """Whether this machine has the tables."""
    return _TABLE.exists()


def local_ports_of(process_ids: Iterable[int]) -> dict[int, int]:
    """Local ports of the IPv4 connections of processes.

    Returns:
        Port -> process id. A process that has ended has no connections.
    """
    owner_by_inode: dict[str, int] = {}
    for process_id in process_ids:
        folder = f"/proc/{process_id}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(f"{folder}/{name}")
            except OSError:
                continue
            if target.startswith("socket:["):
                owner_by_inode[target[8:-1]] = process_id
    ports: dict[int, int] = {}
    for line in _TABLE.read_text().splitlines()[1:]:
        columns = line.split()
        owner = owner_by_inode.get(columns[9])
        if owner is not None:
            ports[int(columns[1].rpartition(":")[2], 16)] = owner
    return ports
