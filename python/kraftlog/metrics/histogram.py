"""Distributions of times: the newest values count most, as in Kafka's histograms."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass

__all__ = ["QUANTILES", "Histogram", "HistogramValue"]

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_RESERVOIR_SIZE = 1028
_DECAY_PER_S = 0.015


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramValue:
    """A distribution at one moment.

    Args:
        count: Values since the start.
        total: Their sum.
        minimum, maximum: Of all values; 0 when there is none.
        quantiles: Each of ``QUANTILES`` with its value, of about the last five minutes; 0 when there is none.
    """

    count: int
    total: float
    minimum: float
    maximum: float
    quantiles: tuple[tuple[float, float], ...]

    @property
    def mean(self) -> float:
        """Of all values; 0 when there is none."""
        return self.total / self.count if self.count else 0.0


class Histogram:
    """Keeps a random choice of values in which a value of five minutes ago is nearly a hundred times less likely.

    ``record`` is called by one thread; ``value`` by any.
    """

    __slots__ = ("_chosen", "_rng", "_totals")

    def __init__(self, *, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        # Forward decay: the largest keys stay, where a key is the logarithm of (weight by chance).
        self._chosen: list[tuple[float, float]] = []
        self._totals: tuple[int, float, float, float] = (0, 0.0, math.inf, -math.inf)

    def record(self, value: float, now_s: float) -> None:
        """Note one value at ``now_s``, a clock that does not go back."""
        count, total, minimum, maximum = self._totals
        self._totals = (count + 1, total + value, min(minimum, value), max(maximum, value))
        key = now_s * _DECAY_PER_S - math.log(1.0 - self._rng.random())
        if len(self._chosen) < _RESERVOIR_SIZE:
            heapq.heappush(self._chosen, (key, value))
        else:
            heapq.heappushpop(self._chosen, (key, value))

    def value(self) -> HistogramValue:
        """The distribution now."""
        count, total, minimum, maximum = self._totals
        values = sorted(value for _, value in self._chosen[:])
        return HistogramValue(
            count=count,
            total=total,
            minimum=minimum if count else 0.0,
            maximum=maximum if count else 0.0,
            quantiles=tuple((quantile, _quantile(values, quantile)) for quantile in QUANTILES),
        )


def _quantile(values: list[float], quantile: float) -> float:
    """The value at a quantile of sorted values, between two neighbours in proportion."""
    if not values:
        return 0.0
    position = quantile * (len(values) + 1)
    index = int(position)
    if index < 1:
        return values[0]
    if index >= len(values):
        return values[-1]
    return values[index - 1] + (position - index) * (values[index] - values[index - 1])
