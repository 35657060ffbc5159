"""What the core wants done. Effects come in order; each says which durability it waits for.

A shell carries them out one after the other: an effect may only be carried out once everything its ``waits_for``
names is on disk. ``PersistElectionState`` is on disk when the store's ``write`` returned, log records are when
``on_flushed`` was told of their offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kraftlog.raft.messages import ControlRecord, Response
from kraftlog.types import ElectionState, Epoch, NodeId, Offset

__all__ = [
    "AppendControlRecords",
    "AppendRecords",
    "Durability",
    "Effect",
    "FlushLog",
    "HighWatermarkAdvanced",
    "LeaderChanged",
    "PersistElectionState",
    "SendResponse",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """What must be on disk first: this election state (or a later one), the log up to this offset (exclusive)."""

    election_state: ElectionState | None = None
    log_end_offset: Offset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistElectionState:
    """Make the state durable. Of several in a row, with nothing between, the last one is enough."""

    state: ElectionState
    kraft_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRecords:
    """Append one data batch; the log's end must be at ``base_offset`` before."""

    base_offset: Offset
    epoch: Epoch
    records: Sequence[object]
    waits_for: Durability


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendControlRecords:
    """Append one control batch; the log's end must be at ``base_offset`` before."""

    base_offset: Offset
    epoch: Epoch
    records: Sequence[ControlRecord]
    waits_for: Durability


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushLog:
    """Make the log durable up to ``log_end_offset`` (exclusive) and tell ``on_flushed``. A later one covers it."""

    log_end_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResponse:
    """Answer a request."""

    source: object
    response: Response
    waits_for: Durability = field(default_factory=Durability)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged:
    """The leader of ``epoch`` is now known, or no longer known (None). Proposals of earlier epochs may be lost."""

    leader_id: NodeId | None
    epoch: Epoch
    waits_for: Durability


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermarkAdvanced:
    """Everything below ``high_watermark`` is committed."""

    high_watermark: Offset


Effect = (
    PersistElectionState
    | AppendRecords
    | AppendControlRecords
    | FlushLog
    | SendResponse
    | LeaderChanged
    | HighWatermarkAdvanced
)
