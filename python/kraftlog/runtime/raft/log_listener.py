"""The listener of a replicated log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kraftlog.storage.snapshot_file import Snapshot
    from kraftlog.types import Epoch, NodeId, Offset, SnapshotId

__all__ = ["LogListener"]


class LogListener(Protocol):
    """Is told what becomes of the log. Called on the loop, never while the core is being told something."""

    def on_appended(self, base_offset: Offset, last_offset: Offset, epoch: Epoch, size_bytes: int) -> None:
        """This replica, as leader, appended a batch of control records."""

    def on_committed(self, high_watermark: Offset) -> None:
        """Everything below is committed."""

    def on_confirmed(self, confirmed_round: int) -> None:
        """This replica still led when this round of ``confirm_leadership`` was begun."""

    def on_leader_changed(self, leader_id: NodeId | None, epoch: Epoch) -> None:
        """Another epoch, or its leader became known or unknown."""

    def on_values_appended(self, base_offset: Offset, timestamp_ms: int) -> None:
        """This replica, as leader, appended proposed values from ``base_offset`` on, with this timestamp (Unix ms)."""

    def on_snapshot_loaded(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """The log was replaced by a snapshot: everything known before is void."""

    def on_failure(self, error: BaseException) -> None:
        """The log or the store failed: this replica does nothing any more."""
