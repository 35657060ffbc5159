"""How many replicas have what is committed when replicas of a partition are given up (docs/behaviours, RINV-33)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from kraftlog.testing.world.node_machine import NodeMachine

__all__ = ["LATE_FETCH_MS", "MoveChecker"]

_Key: TypeAlias = tuple[Any, int]

LATE_FETCH_MS: Final = 2_000.0
"""The last fetch of a process may come so long after its end, and raise the high watermark by what its disk had."""


class MoveChecker:
    """Counts the logs that reach up to the high watermark before and after a change of replicas.

    A move that ends leaves as many as there were among the replicas from which it began, or all of its target. One that
    is given up leaves one at least: its new replicas may have been in sync, and go.

    Args:
        nodes: Of the cluster, by node id.
        high_watermarks: The highest that any replica of a partition showed.
        raised_ms: When that was.
        looked: Gets how often the rule had something to look at.

    Source: ``PartitionReassignmentReplicas.maybeCompleteReassignment`` of Kafka 4.3.1.
    """

    def __init__(
        self,
        nodes: Mapping[int, NodeMachine],
        high_watermarks: Mapping[_Key, int],
        raised_ms: Mapping[_Key, float],
        looked: Counter[str],
    ) -> None:
        self._nodes = nodes
        self._high_watermarks = high_watermarks
        self._raised_ms = raised_ms
        self._looked = looked
        # Which process each replica had when the newest state of a partition became known.
        self._processes: dict[_Key, dict[int, int]] = {}

    def problem(self, topic_id: Any, index: int, was: Any, now: Any) -> str | None:
        """What is wrong with a new state of a partition; None if nothing is.

        Args:
            topic_id: Of the topic.
            index: Of the partition.
            was: Its metadata before this one change; None if it is not known.
            now: Its metadata.
        """
        key = (topic_id, index)
        before = self._processes.get(key, {})
        self._processes[key] = {replica: self._nodes[replica].start_count for replica in now.replicas}
        high_watermark = self._high_watermarks.get(key, 0)
        if was is None or set(was.replicas) <= set(now.replicas) or not high_watermark:
            return None
        if not now.isr and not now.elr:
            return None  # it waits for an unclean election: every replica may have lost what it had
        self._looked["RINV-33"] += 1
        # Who ended after it had joined may have lost what it had: that is not the move's doing.
        kept = {
            replica
            for replica in now.replicas
            if self._may_have_lost(replica, key, before) or self._has(replica, key, high_watermark) is not False
        }
        dropped = set(was.replicas) - set(now.replicas)
        if dropped <= set(was.adding_replicas):
            return None if kept else f"a move is given up, and no replica is left that has offset {high_watermark - 1}"
        began_with = set(was.replicas) - set(was.adding_replicas)
        held = {replica for replica in began_with if replica in kept or self._has(replica, key, high_watermark) is True}
        if len(kept) < min(len(held), len(now.replicas)):
            return f"a move ends, {sorted(kept)} have offset {high_watermark - 1}, {sorted(held)} had it"
        return None

    def _may_have_lost(self, replica: int, key: _Key, processes: Mapping[int, int]) -> bool:
        machine = self._nodes[replica]
        is_ended = not machine.is_running or machine.start_count != processes.get(replica)
        is_new = machine.disk_since_ms > 0.0 and machine.disk_since_ms > self._raised_ms.get(key, 0.0) - LATE_FETCH_MS
        return is_ended or is_new or machine.is_disk_failing or machine.has_bad_disk

    def _has(self, replica: int, key: _Key, high_watermark: int) -> bool | None:
        """Whether its log reaches up to there; None if it has not been opened, or is in a directory that failed."""
        machine = self._nodes[replica]
        found = None if machine.node is None or not machine.is_running else machine.node.partitions.get(*key)
        return None if found is None else bool(found.replica.log_end_offset >= high_watermark)
