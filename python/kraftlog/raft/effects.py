"""What the core wants done. Effects come in order; each says which durability it waits for.

A shell carries them out one after the other: an effect may only be carried out once everything its ``waits_for``
names is on disk. ``PersistElectionState`` is on disk when the store's ``write`` returned, log records are when
``on_flushed`` was told of their offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kraftlog.raft.connections import Destination
from kraftlog.raft.messages import ControlRecord, FetchedBatch, Request, Response
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, SnapshotId

__all__ = [
    "AbandonSnapshot",
    "AppendControlRecords",
    "AppendFetched",
    "AppendRecords",
    "Durability",
    "Effect",
    "Fault",
    "FlushLog",
    "HighWatermarkAdvanced",
    "InstallSnapshot",
    "LeaderChanged",
    "LeadershipConfirmed",
    "Notice",
    "PeerEffect",
    "PersistElectionState",
    "SendRequest",
    "SendResponse",
    "TruncateLog",
    "WriteSnapshotChunk",
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
class AppendFetched:
    """Append batches as the leader wrote them; the log's end must be at the first one's base offset before."""

    batches: Sequence[FetchedBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateLog:
    """Cut the log at ``end_offset`` (exclusive). What was read above it is void."""

    end_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshotChunk:
    """Write a piece of a snapshot that is being fetched; position 0 begins anew."""

    snapshot_id: SnapshotId
    position: int
    payload: object


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshot:
    """The snapshot is complete.

    Make it durable, empty the log so that it starts and ends at the snapshot's end, give it to the state machine, and
    call ``on_snapshot_installed`` before anything else is told to the core.
    """

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonSnapshot:
    """Throw the pieces of this snapshot away."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushLog:
    """Make the log durable up to ``log_end_offset`` (exclusive) and tell ``on_flushed``. A later one covers it."""

    log_end_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """Ask a peer; give the answer to ``handle_response`` with this correlation id, or ``handle_no_response``."""

    destination: Destination
    correlation_id: int
    request: Request
    waits_for: Durability = field(default_factory=Durability)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipConfirmed:
    """No other leader had been elected when this round, or an earlier one, of ``confirm_leadership`` was begun."""

    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What the operator should read in the log; it has no other effect."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What cannot be has happened. After a fatal one the replica does nothing any more and the process should end."""

    reason: str
    is_fatal: bool


PeerEffect = SendRequest | AppendFetched | TruncateLog | WriteSnapshotChunk | InstallSnapshot | AbandonSnapshot
"""What only a replica that has peers wants."""

Effect = (
    PersistElectionState
    | AppendRecords
    | AppendControlRecords
    | AppendFetched
    | TruncateLog
    | FlushLog
    | WriteSnapshotChunk
    | InstallSnapshot
    | AbandonSnapshot
    | SendRequest
    | SendResponse
    | LeaderChanged
    | LeadershipConfirmed
    | HighWatermarkAdvanced
    | Notice
    | Fault
)
