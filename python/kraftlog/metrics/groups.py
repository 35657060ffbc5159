"""``GroupMetadataManager``, ``group-coordinator-metrics``, ``share-coordinator-metrics``: coordinators of a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kraftlog.metrics.registry import MetricGroup, Metrics, Reading

__all__ = ["GroupCounts", "GroupMetrics", "ShardCounts"]


@dataclass(slots=True)
class GroupCounts:
    """The groups that a broker coordinates.

    Attributes:
        classic, consumer, share: How many are in each state, by Kafka's name of the state.
        offsets: Committed offsets.
    """

    classic: Counter[str] = field(default_factory=Counter)
    consumer: Counter[str] = field(default_factory=Counter)
    share: Counter[str] = field(default_factory=Counter)
    offsets: int = 0


@dataclass(frozen=True, slots=True)
class ShardCounts:
    """The partitions of a coordinator's topic that a broker leads: being loaded, and loaded."""

    loading: int
    active: int


class GroupMetrics:
    """The metrics of the coordinators of groups.

    Args:
        metrics: Where they are registered, until ``close``.
        counts: Counts the groups; called on the thread of a reader.
        shards: Counts the shards of the group coordinator; likewise.
        share_shards: Counts the shards of the share coordinator; likewise.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        counts: Callable[[], GroupCounts],
        shards: Callable[[], ShardCounts],
        share_shards: Callable[[], ShardCounts],
    ) -> None:
        self._counts = counts
        self._metrics = metrics
        self._groups = (
            MetricGroup("kafka.coordinator.group", "GroupMetadataManager", self._read_classic),
            MetricGroup("kafka.server", "group-coordinator-metrics", lambda: self._read_groups(shards())),
            MetricGroup("kafka.server", "share-coordinator-metrics", lambda: _read_shards(share_shards())),
        )
        for group in self._groups:
            metrics.register(group)

    def close(self) -> None:
        """The broker is gone."""
        for group in self._groups:
            self._metrics.unregister(group)

    def _read_classic(self) -> list[Reading]:
        counts = self._counts()
        states = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
        return [
            Reading("NumOffsets", counts.offsets, "Committed offsets of all groups"),
            Reading("NumGroups", counts.classic.total(), "Classic groups"),
            *(
                Reading(f"NumGroups{state}", counts.classic[state], f"Classic groups in state {state}")
                for state in states
            ),
        ]

    def _read_groups(self, shards: ShardCounts) -> list[Reading]:
        counts = self._counts()
        by_protocol = {"classic": counts.classic, "consumer": counts.consumer, "share": counts.share}
        readings = [
            Reading("group-count", of_protocol.total(), "Groups of a protocol", (("protocol", protocol),))
            for protocol, of_protocol in by_protocol.items()
        ]
        for name, of_state, states in (
            ("consumer-group-count", counts.consumer, ("Empty", "Assigning", "Reconciling", "Stable", "Dead")),
            ("share-group-count", counts.share, ("Empty", "Stable", "Dead")),
        ):
            readings += [
                Reading(name, of_state[state], "Groups in a state", (("state", state.lower()),)) for state in states
            ]
        return readings + _read_shards(shards)


def _read_shards(shards: ShardCounts) -> list[Reading]:
    return [
        Reading("num-partitions", count, "Partitions of the coordinator led here", (("state", state),))
        for state, count in (("loading", shards.loading), ("active", shards.active))
    ]
