"""What a replica wants done; the shell carries effects out in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["AckCompleted", "AssignEpochStart", "Effect", "FlushLog", "HighWatermarkAdvanced", "LeadershipChanged"]


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Make the log durable up to ``end_offset`` (exclusive), then call ``on_flushed``."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class AssignEpochStart:
    """Write (leader_epoch, start_offset) into the leader epoch checkpoint before any append of that epoch."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Records below ``high_watermark`` (exclusive) are committed: waiting fetches may have something to read."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """Epoch or leader changed: fetches that wait here end with an error."""

    leader_epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class AckCompleted:
    """A wait for acks=all is over.

    Attributes:
        token: What was given to ``wait_for_ack``.
        error_code: 0 when the records are committed, else why they may not be.
    """

    token: Any
    error_code: int


Effect = FlushLog | AssignEpochStart | HighWatermarkAdvanced | LeadershipChanged | AckCompleted
