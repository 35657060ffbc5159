"""The state machine in Rust with the face of the one in Python."""

from __future__ import annotations

from typing import Any

from kraftlog._kraftlog import PartitionCore
from kraftlog.partition.assignment import Assignment
from oracle import partition_effects
from oracle.partition_effects import Effect

__all__ = ["NativeReplica"]


class NativeReplica:
    """A ``PartitionCore`` whose effects are those of :mod:`oracle.partition_effects`."""

    def __init__(self, **start: Any) -> None:
        self._core = PartitionCore(**start)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def handle_assignment(self, assignment: Assignment, now_ms: int) -> None:
        """Follow the metadata."""
        self._core.handle_assignment(
            leader_id=assignment.leader_id,
            leader_epoch=assignment.leader_epoch,
            partition_epoch=assignment.partition_epoch,
            replicas=assignment.replicas,
            isr=assignment.isr,
            now_ms=now_ms,
        )

    def take_effects(self) -> list[Effect]:
        """Hand out and forget what is to be done, in order."""
        return [getattr(partition_effects, name)(*fields) for name, *fields in self._core.take_effects()]
