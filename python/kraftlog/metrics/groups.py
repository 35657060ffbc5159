"""``GroupMetadataManager``, ``group-coordinator-metrics``, ``share-coordinator-metrics``: coordinators of a broker.

Source: ``GroupCoordinatorMetrics`` and ``ShareCoordinatorMetrics`` of Kafka 4.3.1.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kraftlog.metrics.coordinator import CoordinatorMetrics, ShardCounts
from kraftlog.metrics.registry import MetricGroup, Metrics, Reading
from kraftlog.metrics.sensor import SampledSensor

__all__ = ["GroupCounts", "GroupMetrics", "ShardCounts", "ShareStateMetrics"]

# In the order in which ``events`` of GroupMetrics gives them.
_EVENTS = (
    ("offset-commit", "committed offsets"),
    ("offset-expiration", "expired offsets"),
    ("offset-deletion", "offsets deleted by request"),
    ("group-completed-rebalance", "completed rebalances of classic groups"),
    ("consumer-group-rebalance", "rebalances of consumer groups"),
    ("share-group-rebalance", "rebalances of share groups"),
)


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


class ShareStateMetrics:
    """Writes of the states of share partitions, and what was deleted of their log; called on the broker's loop.

    Args:
        clock_ns: Monotonic clock.
    """

    __slots__ = ("_clock_ns", "_latency_ms", "_pruned", "write_count")

    def __init__(self, *, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._latency_ms = SampledSensor()
        self._pruned: dict[int, int] = {}
        self.write_count = 0

    def on_write(self, duration_ms: int | None) -> None:
        """A state was written; None when that was part of a read."""
        self.write_count += 1
        if duration_ms is not None:
            self._latency_ms.record(duration_ms, self._clock_ns() // 1_000_000)

    def on_pruned(self, partition: int, offset: int) -> None:
        """The records of a partition below ``offset`` were deleted."""
        self._pruned[partition] = offset

    def read(self, topic: str) -> list[Reading]:
        """The readings of one moment."""
        now_ms = self._clock_ns() // 1_000_000
        readings = [
            Reading("write-total", self.write_count, "Writes of states of share partitions", is_counter=True),
            Reading("write-latency-avg", self._latency_ms.average(now_ms), "Mean time of a write (ms)"),
            Reading("write-latency-max", self._latency_ms.maximum(now_ms), "Longest time of a write (ms)"),
        ]
        return readings + [
            Reading(
                "last-pruned-offset",
                offset,
                "Offset below which the records were deleted last",
                (("topic", topic), ("partition", str(partition))),
            )
            for partition, offset in tuple(self._pruned.items())
        ]


class GroupMetrics:
    """The metrics of the coordinators of groups.

    Args:
        metrics: Where they are read, from ``register`` until ``close``.
        events: Counters of commits, expirations and deletions of offsets, and of rebalances of classic, consumer and
            share groups; called on the thread of a reader.
        share_topic: Topic of the share coordinator.
        clock_ns: Monotonic clock.

    Attributes:
        runtime: For the runners of the group coordinator.
        share_runtime: For those of the share coordinator.
        share_states: For the share coordinator.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        events: Callable[[], tuple[int, ...]],
        share_topic: str,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._counts: Callable[[], GroupCounts] = GroupCounts
        self._shards: Callable[[], ShardCounts] = ShardCounts
        self._share_shards: Callable[[], ShardCounts] = ShardCounts
        self._events = events
        self._share_topic = share_topic
        self.share_states = ShareStateMetrics(clock_ns=clock_ns)
        self.runtime = CoordinatorMetrics(events, clock_ns=clock_ns)
        self.share_runtime = CoordinatorMetrics(lambda: (self.share_states.write_count,), clock_ns=clock_ns)
        self._metrics = metrics
        self._groups = (
            MetricGroup("kafka.coordinator.group", "GroupMetadataManager", self._read_classic),
            MetricGroup("kafka.server", "group-coordinator-metrics", self._read_groups),
            MetricGroup("kafka.server", "share-coordinator-metrics", self._read_share_states),
        )

    def register(
        self,
        *,
        counts: Callable[[], GroupCounts],
        shards: Callable[[], ShardCounts],
        share_shards: Callable[[], ShardCounts],
    ) -> None:
        """Offer the metrics. The arguments count the groups, and the shards of both; on the thread of a reader."""
        self._counts, self._shards, self._share_shards = counts, shards, share_shards
        for group in self._groups:
            self._metrics.register(group)

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

    def _read_groups(self) -> list[Reading]:
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
        rates = self.runtime.counter_rates()
        for (name, what), rate, total in zip(_EVENTS, rates, self._events(), strict=True):
            readings += [
                Reading(f"{name}-rate", rate, f"Number of {what} per second"),
                Reading(f"{name}-count", total, f"Number of {what}", is_counter=True),
            ]
        return readings + self.runtime.read(self._shards())

    def _read_share_states(self) -> list[Reading]:
        (rate,) = self.share_runtime.counter_rates()
        return [
            Reading("write-rate", rate, "Writes of states of share partitions per second"),
            *self.share_states.read(self._share_topic),
            *self.share_runtime.read(self._share_shards()),
        ]
