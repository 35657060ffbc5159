"""What the runtime of one coordinator does: loads, requests, batches and how long they take.

Source: ``CoordinatorRuntimeMetricsImpl`` of Kafka 4.3.1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from kraftlog.metrics.recent import RecentLatencies, RecentRates
from kraftlog.metrics.registry import Reading
from kraftlog.metrics.sensor import SampledSensor

__all__ = ["CoordinatorMetrics", "ShardCounts", "no_counters"]


class ShardCounts(NamedTuple):
    """The partitions of a coordinator's topic that a broker leads: being loaded, loaded, and those it cannot load."""

    loading: int = 0
    active: int = 0
    failed: int = 0


def no_counters() -> tuple[int, ...]:
    """The coordinator counts nothing but what its runtime does."""
    return ()


class CoordinatorMetrics:
    """Measures one coordinator of a broker; the shards' runners call it on the broker's loop.

    Args:
        counters: Counters of the coordinator itself, whose rates are wanted.
        clock_ns: Monotonic clock.

    Attributes:
        clock_ns: The same.
    """

    __slots__ = (
        "_busy_ns",
        "_counters",
        "_flush",
        "_flush_count",
        "_linger",
        "_loads",
        "_processing",
        "_purgatory",
        "_rates",
        "clock_ns",
    )

    def __init__(
        self,
        counters: Callable[[], tuple[int, ...]] = no_counters,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.clock_ns = clock_ns
        self._counters = counters
        self._busy_ns = 0
        self._flush_count = 0
        self._loads = SampledSensor()
        self._processing = RecentLatencies()
        self._purgatory = RecentLatencies()
        self._linger = RecentLatencies()
        self._flush = RecentLatencies()
        self._rates = RecentRates(self._read_counters, clock_ns() // 1_000_000)

    def _read_counters(self) -> tuple[int, ...]:
        return (self._busy_ns, self._flush_count, *self._counters())

    # Events

    def on_loaded(self, duration_ms: float) -> None:
        """A partition was loaded."""
        self._loads.record(duration_ms, self.clock_ns() // 1_000_000)

    def begin(self) -> int:
        """A runner begins to work; returns the time, for ``end`` and ``on_processed``."""
        now_ns = self.clock_ns()
        if self._rates.begin_event(now_ns // 1_000_000):
            for latencies in (self._processing, self._purgatory, self._linger, self._flush):
                latencies.rotate()
        return now_ns

    def end(self, begun_ns: int) -> None:
        """It has ended."""
        self._busy_ns += self.clock_ns() - begun_ns

    def on_processed(self, begun_ns: int) -> None:
        """It has ended, and was a request."""
        duration_ns = self.clock_ns() - begun_ns
        self._busy_ns += duration_ns
        self._processing.record(duration_ns)

    def on_flushed(self, *, lingered_ns: int, duration_ns: int) -> None:
        """A batch was written; its first record had waited for ``lingered_ns``."""
        self._flush_count += 1
        self._linger.record(lingered_ns)
        self._flush.record(duration_ns)

    def on_committed(self, event_count: int, since_ns: int) -> None:
        """The batch of so many appends was committed, or failed; it was written at ``since_ns``."""
        self._purgatory.record(self.clock_ns() - since_ns, event_count)

    # Reading

    def counter_rates(self) -> tuple[float, ...]:
        """The coordinator's own counters per second."""
        return self._rates.per_second(self.clock_ns() // 1_000_000)[2:]

    def read(self, shards: ShardCounts) -> list[Reading]:
        """The readings of one moment."""
        now_ms = self.clock_ns() // 1_000_000
        busy_ns_per_s, flushes_per_s = self._rates.per_second(now_ms)[:2]
        readings = [
            Reading("num-partitions", count, "Partitions of the coordinator led here", (("state", state),))
            for state, count in shards._asdict().items()
        ]
        readings += [
            Reading("partition-load-time-max", self._loads.maximum(now_ms), "Longest load of a partition (ms)"),
            Reading("partition-load-time-avg", self._loads.average(now_ms), "Mean time of a partition's load (ms)"),
            Reading(
                "thread-idle-ratio-avg",
                min(1.0, max(0.0, 1.0 - busy_ns_per_s / 1e9)),
                "Share of the time in which the loop does nothing for this coordinator",
            ),
            Reading("batch-flush-rate", flushes_per_s, "Batches written per second"),
        ]
        is_quiet = self._rates.is_quiet(now_ms)
        for name, latencies, description in (
            ("event-processing-time-ms", self._processing, "Time that a request took, waiting left out"),
            ("event-purgatory-time-ms", self._purgatory, "Time from the write of a request's records to their commit"),
            ("batch-linger-time-ms", self._linger, "Time that the first record of a batch waited for its write"),
            ("batch-flush-time-ms", self._flush, "Time that the write of a batch to the log took"),
        ):
            value = (RecentLatencies() if is_quiet else latencies).value()
            readings += [
                Reading(f"{name}-{suffix}", found, f"{description} (ms)")
                for suffix, found in zip(("max", "p50", "p95", "p99", "p999"), value, strict=True)
            ]
        return readings
