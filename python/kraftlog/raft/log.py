"""What the core knows of a log: where it starts and ends, its leader epochs and its snapshots.

``LogState`` is the core's own account, kept in step with the effects it gives out; ``storage.metadata_log.MetadataLog``
fits the protocol it starts from by shape.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from kraftlog.types import Epoch, EpochEndOffset, Offset, SnapshotId

__all__ = ["BOOTSTRAP_SNAPSHOT_ID", "Log", "LogState"]

BOOTSTRAP_SNAPSHOT_ID = SnapshotId(Offset(0), Epoch(0))


class Log(Protocol):
    """Facts about the log of one replica as it was opened. The core only reads them; writing is done by effects."""

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""

    @property
    def log_end_offset(self) -> int:
        """Offset the next record gets (exclusive end)."""

    @property
    def leader_epochs(self) -> Sequence[tuple[int, int]]:
        """Each epoch in the log with its first offset, both rising."""

    @property
    def snapshots(self) -> Sequence[tuple[SnapshotId, int]]:
        """The finished checkpoints with their sizes in bytes, oldest first, 0-0 included."""


class LogState:
    """The log as it will be once every effect given out so far has been carried out.

    Attributes:
        start_offset: First readable offset.
        end_offset: Offset the next record gets (exclusive end).
        flushed_end_offset: Exclusive end of what is known to be durable.
    """

    __slots__ = ("_epochs", "_snapshots", "_starts", "end_offset", "flushed_end_offset", "start_offset")

    def __init__(self, log: Log) -> None:
        """Read what is there; everything found counts as durable."""
        self.start_offset = Offset(log.log_start_offset)
        self.end_offset = Offset(log.log_end_offset)
        self.flushed_end_offset = self.end_offset
        self._epochs = [epoch for epoch, _ in log.leader_epochs]
        self._starts = [start for _, start in log.leader_epochs]
        # Older ones are left-overs: the log starts at the end of the first that counts.
        self._snapshots = {
            snapshot_id: size for snapshot_id, size in log.snapshots if snapshot_id.end_offset >= self.start_offset
        }

    @property
    def last_epoch(self) -> Epoch:
        """Epoch of the last record, or of the newest snapshot where the log is empty; 0 when there is neither."""
        if self._epochs:
            return Epoch(self._epochs[-1])
        latest = self.latest_snapshot_id
        return Epoch(0) if latest is None else latest.epoch

    @property
    def latest_snapshot_id(self) -> SnapshotId | None:
        """The newest checkpoint, 0-0 included."""
        return next(reversed(self._snapshots), None)

    @property
    def earliest_snapshot_id(self) -> SnapshotId | None:
        """The oldest checkpoint, 0-0 included."""
        return next(iter(self._snapshots), None)

    def snapshot_size_bytes(self, snapshot_id: SnapshotId) -> int | None:
        """Size of a checkpoint; None when there is no such one."""
        return self._snapshots.get(snapshot_id)

    def end_offset_for_epoch(self, epoch: Epoch) -> EpochEndOffset:
        """The largest epoch up to ``epoch`` and its exclusive end (``RaftLog.endOffsetForEpoch``).

        An epoch above all others, and any epoch of a log without records, gives the log's last epoch and end.
        """
        found = self._end_offset_in_log(epoch)
        if found is None:
            return EpochEndOffset(self.last_epoch, self.end_offset)
        earliest = self.earliest_snapshot_id
        if earliest is not None and found.end_offset == earliest.end_offset and found.epoch == epoch:
            return EpochEndOffset(earliest.epoch, earliest.end_offset)
        return found

    def _end_offset_in_log(self, epoch: Epoch) -> EpochEndOffset | None:
        epochs = self._epochs
        if not epochs or epoch > epochs[-1]:
            return None
        if epoch == epochs[-1]:
            return EpochEndOffset(epoch, self.end_offset)
        index = bisect_right(epochs, epoch)
        end_offset = Offset(self._starts[index])
        return EpochEndOffset(epoch if index == 0 else Epoch(epochs[index - 1]), end_offset)

    def check_fetch(self, offset: Offset, last_epoch: Epoch) -> EpochEndOffset | SnapshotId | None:
        """Whether a replica whose log ends at ``offset`` with a record of ``last_epoch`` may go on from there.

        Returns:
            None when it may; where to truncate when it diverges; the snapshot to load when the log no longer
            reaches back (``RaftLog.validateOffsetAndEpoch`` and the rule for offset 0, KAFKA-15078).
        """
        epochs = self._epochs
        if epochs and last_epoch == epochs[-1] and self.start_offset < offset <= self.end_offset:
            return None  # so it nearly always is
        latest = self.latest_snapshot_id
        if offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT_ID:
            return latest
        start_offset = self.start_offset
        if start_offset == 0 and offset == 0:
            return None
        earliest = self.earliest_snapshot_id
        if earliest is not None and (
            offset < start_offset
            or (offset == start_offset and last_epoch != earliest.epoch)
            or last_epoch < earliest.epoch
        ):
            return latest
        end = self.end_offset_for_epoch(last_epoch)
        return end if end.epoch != last_epoch or end.end_offset < offset else None

    def truncation_offset(self, diverging: EpochEndOffset) -> Offset:
        """Where to cut so that in the end nothing is kept that the leader has not (FTCH-37).

        Without the leader's epoch in this log that is this log's end of the epoch before, and the next fetch tells the
        rest (``RaftLog.truncateToEndOffset``): the leader's end may lie within a batch that it does not have.
        """
        if diverging.epoch == 0:
            return min(diverging.end_offset, self.end_offset)
        own = self.end_offset_for_epoch(diverging.epoch)
        return own.end_offset if own.epoch != diverging.epoch else min(own.end_offset, diverging.end_offset)

    # Changes

    def append(self, epoch: Epoch, record_count: int) -> None:
        """Note records of ``epoch`` at the end."""
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(self.end_offset)
        self.end_offset = Offset(self.end_offset + record_count)

    def truncate_to(self, end_offset: Offset) -> None:
        """Forget what is at or above ``end_offset``."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = end_offset
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)

    def restart_at(self, snapshot_id: SnapshotId, size_bytes: int) -> None:
        """The log was replaced by a snapshot and starts behind it."""
        self._epochs.clear()
        self._starts.clear()
        self._snapshots = {snapshot_id: size_bytes}
        self.start_offset = self.end_offset = self.flushed_end_offset = snapshot_id.end_offset

    def add_snapshot(self, snapshot_id: SnapshotId, size_bytes: int) -> None:
        """A checkpoint was made."""
        self._snapshots[snapshot_id] = size_bytes
        self._snapshots = dict(sorted(self._snapshots.items()))

    def forget_snapshot(self, snapshot_id: SnapshotId) -> None:
        """A checkpoint is gone, though nobody dropped it."""
        self._snapshots.pop(snapshot_id, None)

    def remove_before(self, snapshot_id: SnapshotId) -> None:
        """Checkpoints older than this one were dropped, and the log starts at its end."""
        self._snapshots = {key: size for key, size in self._snapshots.items() if key >= snapshot_id}
        self.advance_start_offset(snapshot_id.end_offset)

    def advance_start_offset(self, start_offset: Offset) -> None:
        """Records below ``start_offset`` are gone; the epoch in force there keeps counting from it."""
        if start_offset <= self.start_offset:
            return
        self.start_offset = start_offset
        index = bisect_right(self._starts, start_offset) - 1
        if index >= 0:
            del self._starts[:index], self._epochs[:index]
            self._starts[0] = max(self._starts[0], start_offset)
