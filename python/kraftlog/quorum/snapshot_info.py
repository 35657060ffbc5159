"""Snapshots of a quorum as its users see them: finished ones, and the progress of one."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SnapshotInfo", "SnapshotProgress"]


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot on this replica's disk.

    Args:
        end_offset: It holds the effect of all commands below.
        epoch: Leader epoch of the last of them.
        size_bytes: Of its file.
    """

    end_offset: int
    epoch: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """How far a snapshot is that is being written, or taken in.

    Args:
        end_offset: It holds the effect of all commands below.
        record_count: Records that the state machine has given so far, or got.
        size_bytes: What of its file was written so far; of one that is taken in, the whole file.
    """

    end_offset: int
    record_count: int
    size_bytes: int
