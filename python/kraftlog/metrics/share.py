"""``SharePartitionMetrics`` and ``ShareGroupMetrics``: share partitions on their leaders (KIP-932)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kraftlog.metrics.histogram import Histogram
from kraftlog.metrics.meter import Meter
from kraftlog.metrics.registry import MetricGroup, Metrics, Reading

__all__ = ["InFlight", "SharePartitionMeter", "SharedMetrics"]

_ACKNOWLEDGE_TYPES = {1: "accept", 2: "release", 3: "reject", 4: "renew"}


class SharePartitionMeter:
    """What happens to the records of one share partition; called on the broker's loop."""

    __slots__ = ("_clock_ns", "batch_sizes", "lock_timeouts")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self.lock_timeouts = Meter(clock_ns() / 1e9)
        self.batch_sizes = Histogram()

    def on_lock_timeout(self, record_count: int) -> None:
        """The locks of so many records ended, and the member that had them has not acknowledged them."""
        self.lock_timeouts.mark(record_count, self._clock_ns() / 1e9)

    def on_acquired(self, record_count: int) -> None:
        """So many records were handed out together, for the first time."""
        self.batch_sizes.record(record_count, self._clock_ns() / 1e9)


class InFlight(NamedTuple):
    """One share partition at one moment.

    Attributes:
        group, topic, partition: Its name.
        record_count: Offsets of its window.
        batch_count: Batches that they were handed out in.
        meter: Its own.
    """

    group: str
    topic: str
    partition: int
    record_count: int
    batch_count: int
    meter: SharePartitionMeter


class SharedMetrics:
    """The metrics of the share partitions of a broker.

    Args:
        metrics: Where they are read, from ``register`` until ``close``.
        clock_ns: Monotonic clock.
    """

    def __init__(self, metrics: Metrics, *, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._in_flight: Callable[[], Iterable[InFlight]] = tuple
        self._clock_ns = clock_ns
        self._load_ms = Histogram()
        self._acknowledged = {kind: Meter(clock_ns() / 1e9) for kind in _ACKNOWLEDGE_TYPES}
        self._metrics = metrics
        self._groups = (
            MetricGroup("kafka.server", "SharePartitionMetrics", self._read_partitions),
            MetricGroup("kafka.server", "ShareGroupMetrics", self._read_groups),
        )

    def register(self, in_flight: Callable[[], Iterable[InFlight]]) -> None:
        """Offer the metrics; ``in_flight`` gives the share partitions, on the thread of a reader."""
        self._in_flight = in_flight
        for group in self._groups:
            self._metrics.register(group)

    def close(self) -> None:
        """The broker is gone."""
        for group in self._groups:
            self._metrics.unregister(group)

    def make_meter(self) -> SharePartitionMeter:
        """The meter of a share partition that begins."""
        return SharePartitionMeter(self._clock_ns)

    def on_loaded(self, duration_ms: float) -> None:
        """The state of a share partition was read from its coordinator."""
        self._load_ms.record(duration_ms, self._clock_ns() / 1e9)

    def on_acknowledged(self, kind: int, record_count: int) -> None:
        """A member acknowledged so many records with this type, which may be a gap."""
        meter = self._acknowledged.get(kind)
        if meter is not None:
            meter.mark(record_count, self._clock_ns() / 1e9)

    def _read_partitions(self) -> list[Reading]:
        now_s = self._clock_ns() / 1e9
        readings: list[tuple[int, Reading]] = []
        for place in self._in_flight():
            tags = (("group", place.group), ("topic", place.topic), ("partition", str(place.partition)))
            timeouts, sizes = place.meter.lock_timeouts.value(now_s), place.meter.batch_sizes.value()
            readings += enumerate(
                (
                    Reading("InFlightMessageCount", place.record_count, "Offsets of the window in flight", tags),
                    Reading("InFlightBatchCount", place.batch_count, "Batches in flight", tags),
                    Reading("AcquisitionLockTimeoutPerSec", timeouts, "Records whose locks ended", tags),
                    Reading("InFlightBatchMessageCount", sizes, "Records handed out together", tags),
                )
            )
        # All samples of one name follow each other, as scrapers want it.
        readings.sort(key=lambda numbered: numbered[0])
        return [reading for _, reading in readings]

    def _read_groups(self) -> list[Reading]:
        now_s = self._clock_ns() / 1e9
        readings = [
            Reading(
                "RecordAcknowledgementsPerSec",
                self._acknowledged[kind].value(now_s),
                "Records that members acknowledged",
                (("ackType", name),),
            )
            for kind, name in _ACKNOWLEDGE_TYPES.items()
        ]
        description = "Time until the state of a share partition was read (ms)"
        return [*readings, Reading("PartitionLoadTimeMs", self._load_ms.value(), description)]
