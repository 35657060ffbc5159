"""What happened to the groups of a node, as counters that only grow."""

from __future__ import annotations

from dataclasses import astuple, dataclass

__all__ = ["GroupEvents"]


@dataclass(slots=True)
class GroupEvents:
    """Counted when a shard decides, as in Kafka: an append that fails afterwards takes nothing back.

    Attributes:
        offset_commits: Offsets of OffsetCommit and TxnOffsetCommit.
        offset_expirations: Offsets whose retention was over.
        offset_deletions: Offsets of OffsetDelete.
        completed_rebalances: Generations of classic groups whose assignment is stored.
        consumer_rebalances: New epochs of KIP-848 groups, except those of a member that leaves.
        share_rebalances: Likewise of share groups.
    """

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    consumer_rebalances: int = 0
    share_rebalances: int = 0

    def values(self) -> tuple[int, ...]:
        """The counters in the order of the fields."""
        return astuple(self)
