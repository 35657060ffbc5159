"""Counters with their rates, means with maxima, and times of calls, under Kafka's names for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kraftlog.metrics.recent import RecentRates
from kraftlog.metrics.registry import Reading, Tags
from kraftlog.metrics.sensor import SampledSensor

__all__ = ["RatedCounters", "SpentTimes", "mean_and_maximum"]


class RatedCounters:
    """Counters as ``<name>-total``, and how fast they grow as ``<name>-rate``. One thread counts; any may read.

    Args:
        descriptions: What is counted, by name.
        now_ms: A clock that does not go back.
        counters: Where the counters are, in the order of the names; None to count here.
        window_ms: metrics.sample.window.ms.

    Source: ``org.apache.kafka.common.metrics.stats.Meter``.
    """

    __slots__ = ("_counters", "_descriptions", "_rates", "_totals")

    def __init__(
        self,
        descriptions: Mapping[str, str],
        now_ms: int,
        counters: Callable[[], tuple[int, ...]] | None = None,
        *,
        window_ms: int = 30_000,
    ) -> None:
        self._descriptions = descriptions
        self._totals = dict.fromkeys(descriptions, 0)
        self._counters = counters or self._own_counters
        self._rates = RecentRates(self._counters, now_ms, window_ms=window_ms)

    def _own_counters(self) -> tuple[int, ...]:
        return tuple(self._totals.values())

    def begin_event(self, now_ms: int) -> None:
        """Something is about to happen that moves the counters."""
        self._rates.begin_event(now_ms)

    def add(self, name: str, count: int, now_ms: int) -> None:
        """Count."""
        self._rates.begin_event(now_ms)
        self._totals[name] += count

    def read(self, now_ms: int, tags: Tags = ()) -> list[Reading]:
        """The readings of one moment."""
        readings = []
        for (name, what), total, rate in zip(
            self._descriptions.items(), self._counters(), self._rates.per_second(now_ms), strict=True
        ):
            readings += [
                Reading(f"{name}-rate", rate, f"{what} per second", tags),
                Reading(f"{name}-total", total, what, tags, is_counter=True),
            ]
        return readings


class SpentTimes:
    """How long calls took together, as ``<name>-time-ns-total``.

    Args:
        descriptions: Calls, by name.
        clock_ns: Monotonic clock.
    """

    __slots__ = ("_clock_ns", "_descriptions", "_spent_ns")

    def __init__(self, descriptions: Mapping[str, str], clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._descriptions = descriptions
        self._spent_ns = dict.fromkeys(descriptions, 0)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """The time within the block is that of a call."""
        begun_ns = self._clock_ns()
        try:
            yield
        finally:
            self._spent_ns[name] += self._clock_ns() - begun_ns

    def read(self) -> list[Reading]:
        """The readings of one moment."""
        return [
            Reading(f"{name}-time-ns-total", self._spent_ns[name], f"Time of {what} (ns)", is_counter=True)
            for name, what in self._descriptions.items()
        ]


def mean_and_maximum(
    name: str, sensor: SampledSensor, what: str, now_ms: int, tags: Tags = ()
) -> tuple[Reading, Reading]:
    """The readings ``<name>-avg`` and ``<name>-max`` of what a sensor saw; NaN when that is nothing."""
    return (
        Reading(f"{name}-avg", sensor.average(now_ms), f"Mean {what}", tags),
        Reading(f"{name}-max", sensor.maximum(now_ms), f"Largest {what}", tags),
    )
