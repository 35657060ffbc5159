"""Everything that was ever committed in a run: one sequence of batches per partition, the same on all replicas."""

from __future__ import annotations

from collections.abc import Hashable

from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.followed_log import ScannedBatch

__all__ = ["CommittedBatches"]


class CommittedBatches:
    """Compares what replicas say is committed with what any replica said before (RINV-14, RINV-15).

    Attributes:
        batch_count: Batches compared.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, dict[int, ScannedBatch]] = {}
        self._end_offsets: dict[Hashable, int] = {}
        # What consumers got of offsets that no replica was seen to have committed yet.
        self._served: dict[Hashable, dict[int, ScannedBatch]] = {}
        self.batch_count = 0

    def forget(self, key: Hashable) -> None:
        """Another history of a partition begins."""
        for kept in (self._known, self._end_offsets, self._served):
            kept.pop(key, None)

    def has(self, key: Hashable, batch: ScannedBatch) -> bool:
        """Whether some replica said that this batch is committed."""
        return self._known.get(key, {}).get(batch.base_offset) == batch

    def check(self, key: Hashable, name: str, batch: ScannedBatch) -> None:
        """A replica says that a batch is committed.

        Args:
            key: Of the partition.
            name: For messages: which replica of what.
            batch: Of its log.

        Raises:
            InvariantViolationError: Another replica had another batch there.
        """
        self.batch_count += 1
        known = self._known.setdefault(key, {})
        found = known.get(batch.base_offset)
        if found is None:
            end_offset = self._end_offsets.get(key, 0)
            if batch.base_offset < end_offset and known and batch.base_offset >= min(known):
                reason = f"{name}: a batch begins at offset {batch.base_offset}, where none began before"
                raise InvariantViolationError("RINV-14", reason)
            self._compare_served(key, name, batch)
            known[batch.base_offset] = batch
            self._end_offsets[key] = max(end_offset, batch.end_offset)
        elif found != batch:
            what = "the same epoch" if found.leader_epoch == batch.leader_epoch else "another epoch"
            reason = (
                f"{name}: the batch at offset {batch.base_offset} (epoch {batch.leader_epoch}) differs from the one"
                f" that was committed there before (epoch {found.leader_epoch}, {what})"
            )
            raise InvariantViolationError("RINV-15" if what == "the same epoch" else "RINV-14", reason)

    def check_served(self, key: Hashable, name: str, batch: ScannedBatch) -> None:
        """A consumer gets a batch: it is the one that is committed there, or will be.

        The batch before it may have come from a disk whose bytes are not looked at.

        Args:
            key: Of the partition.
            name: For messages: which replica of what.
            batch: That was sent.

        Raises:
            InvariantViolationError: A replica had another batch there, or a consumer got another one.
        """
        if batch.base_offset < self._end_offsets.get(key, 0):
            self.check(key, name, batch)
            return
        self._compare_served(key, name, batch)
        self._served.setdefault(key, {})[batch.base_offset] = batch

    def _compare_served(self, key: Hashable, name: str, batch: ScannedBatch) -> None:
        served = self._served.get(key, {}).pop(batch.base_offset, batch)
        if served != batch:
            reason = (
                f"{name}: the batch at offset {batch.base_offset} (epoch {batch.leader_epoch}) differs from the one"
                f" that a consumer got (epoch {served.leader_epoch})"
            )
            raise InvariantViolationError("RINV-11", reason)
