"""``transaction-coordinator-metrics``, ``TransactionMarkerChannelManager`` and ``AddPartitionsToTxnManager``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from kraftlog.metrics.histogram import Histogram
from kraftlog.metrics.meter import Meter
from kraftlog.metrics.registry import MetricGroup, Metrics, Reading
from kraftlog.metrics.sensor import SampledSensor

__all__ = ["MarkerCounts", "TransactionMetrics"]


class MarkerCounts(NamedTuple):
    """Ended transactions of a coordinator that wait.

    Attributes:
        without_leader: Markers of partitions that have no leader now.
        unwritten_ends: Transactions whose markers are written, but not the record that they are complete.
    """

    without_leader: int = 0
    unwritten_ends: int = 0


class TransactionMetrics:
    """The metrics of one broker's transaction coordinator, and of its questions to coordinators.

    Marks are made on the broker's loop; readers may be on any thread.

    Args:
        metrics: Where they are registered, until ``close``.
        markers: Counts what waits; called on the thread of a reader.
        clock_ns: Monotonic clock.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        markers: Callable[[], MarkerCounts],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._markers = markers
        self._clock_ns = clock_ns
        self._loads = SampledSensor()
        self._verification_ms = Histogram()
        self._failures = Meter(clock_ns() / 1e9)
        self._metrics = metrics
        self._groups = (
            MetricGroup("kafka.server", "transaction-coordinator-metrics", self._read_loads),
            MetricGroup("kafka.coordinator.transaction", "TransactionMarkerChannelManager", self._read_markers),
            MetricGroup("kafka.server", "AddPartitionsToTxnManager", self._read_verifications),
        )
        for group in self._groups:
            metrics.register(group)

    def close(self) -> None:
        """The broker is gone."""
        for group in self._groups:
            self._metrics.unregister(group)

    def on_loaded(self, duration_ms: float) -> None:
        """A partition of ``__transaction_state`` was loaded."""
        self._loads.record(duration_ms, self._clock_ns() // 1_000_000)

    def on_verified(self, duration_ms: float, failure_count: int) -> None:
        """A coordinator answered a question; ``failure_count`` of the partitions were refused."""
        now_s = self._clock_ns() / 1e9
        self._verification_ms.record(duration_ms, now_s)
        if failure_count:
            self._failures.mark(failure_count, now_s)

    # Reading

    def _read_loads(self) -> list[Reading]:
        now_ms = self._clock_ns() // 1_000_000
        return [
            Reading("partition-load-time-max", self._loads.maximum(now_ms), "Longest load of a partition (ms)"),
            Reading("partition-load-time-avg", self._loads.average(now_ms), "Mean time of a partition's load (ms)"),
        ]

    def _read_markers(self) -> list[Reading]:
        counts = self._markers()
        return [
            Reading("UnknownDestinationQueueSize", counts.without_leader, "Markers of partitions without a leader"),
            Reading(
                "LogAppendRetryQueueSize",
                counts.unwritten_ends,
                "Transactions with all markers whose completion has to be written again",
            ),
        ]

    def _read_verifications(self) -> list[Reading]:
        now_s = self._clock_ns() / 1e9
        return [
            Reading("VerificationTimeMs", self._verification_ms.value(), "Time until a coordinator answered (ms)"),
            Reading("VerificationFailureRate", self._failures.value(now_s), "Partitions that coordinators refused"),
        ]
