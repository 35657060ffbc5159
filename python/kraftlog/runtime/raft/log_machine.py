"""What a replicated log is built for: the machine that its values are given to, and what it proposed."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from kraftlog._kraftlog import RecordBatch
    from kraftlog.runtime.raft.checkpoint_load import LoadWork
    from kraftlog.runtime.raft.checkpoints import StateValues
    from kraftlog.storage.snapshot_file import Snapshot
    from kraftlog.types import Epoch, NodeId, Offset, SnapshotId

__all__ = ["LogMachine", "Proposed"]

P = TypeVar("P")


@dataclass(slots=True, eq=False)
class Proposed(Generic[P]):
    """What this replica proposed as leader and has not applied yet.

    Args:
        base_offset: Of its first record.
        last_offset: Of its last record (inclusive); below ``base_offset`` for what has no records and only waits.
        epoch: In which it was proposed.
        timestamp_ms: Append time, Unix ms.
        size_bytes: Encoded size.
        payload: What the machine wants back when it is committed.
    """

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    size_bytes: int
    payload: P


class LogMachine(Protocol[P]):
    """What is replicated. Called on the loop, in the order of offsets; what it raises ends the replica (LSTN-19)."""

    def load_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> LoadWork | None:
        """Replace the state: at the start, and where the leader's log no longer reaches back.

        Returns:
            None once it is replaced. Else what prepares it on another thread: nothing is applied until that is done.
        """

    def apply_proposed(self, proposed: Proposed[P]) -> None:
        """Apply what this replica proposed."""

    def apply_batch(self, batch: RecordBatch) -> Generator[None, None, None] | None:
        """Apply a committed batch as the log has it; control batches too.

        Returns:
            None if it is applied, else the steps that lead to it. The last one applies the whole batch; the machine is
            told nothing else before, and ``load_snapshot`` makes them void.
        """

    def on_applied(self, done: Sequence[Proposed[P]]) -> None:
        """Everything committed so far is applied; ``done`` are this replica's proposals among it."""

    def take_state(self) -> StateValues | None:
        """What a checkpoint of everything applied has to hold; None when none can be made at this moment."""

    def on_control_appended(self, last_offset: Offset, epoch: Epoch) -> None:
        """This replica, as leader, appended control records."""

    def on_leading(self, epoch: Epoch) -> None:
        """This replica leads, and everything from before its epoch is applied (LSTN-12)."""

    def on_leader_changed(self, leader_id: NodeId | None, epoch: Epoch, lost: Sequence[Proposed[P]]) -> None:
        """Another epoch, or its leader became known or unknown.

        Args:
            leader_id: The leader. Where it is this replica, ``on_leading`` follows when it may act.
            epoch: The epoch.
            lost: Proposals of this replica that are not known to be committed: they may still be, or not.
        """

    def on_failure(self, error: BaseException) -> None:
        """The log, its directory or the machine failed: this replica does nothing any more. Called once."""
