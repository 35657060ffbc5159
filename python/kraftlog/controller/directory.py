"""Ids of log directories: what the reserved ones stand for (KIP-858)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kraftlog.types import Uuid

__all__ = [
    "DIRECTORY_LOST",
    "DIRECTORY_MIGRATING",
    "DIRECTORY_UNASSIGNED",
    "is_directory_online",
    "is_directory_reserved",
]

# The numbers are those of Kafka's DirectoryId; partitions of records without directories are MIGRATING.
DIRECTORY_MIGRATING: Final = Uuid(bytes(16))
DIRECTORY_UNASSIGNED: Final = Uuid(bytes(15) + b"\x01")
DIRECTORY_LOST: Final = Uuid(bytes(15) + b"\x02")

_RESERVED_COUNT: Final = 100


def is_directory_reserved(directory_id: Uuid) -> bool:
    """Whether no directory may have this id: the first hundred are reserved."""
    return int.from_bytes(directory_id, "big") < _RESERVED_COUNT


def is_directory_online(directory_id: Uuid, online: Collection[Uuid]) -> bool:
    """Whether a replica in this directory can be read.

    A replica without a directory counts as online, one whose directory is lost as offline. A broker without known
    directories registered before metadata.version 3.7-IV2: its directories count as online (KAFKA-16162).
    """
    if directory_id in {DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING}:
        return True
    if directory_id == DIRECTORY_LOST:
        return False
    return not online or directory_id in online
