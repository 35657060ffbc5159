"""What the metadata says about a partition."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NO_LEADER", "Assignment"]

NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Who leads a partition, who replicates it, and who is in sync."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
