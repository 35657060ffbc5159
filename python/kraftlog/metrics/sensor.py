"""Rates, means and maxima over the last sample windows, as Kafka's ``SampledStat``."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["SampledSensor"]


class _Sample(NamedTuple):
    start_ms: int
    last_event_ms: int
    event_count: int
    total: float
    largest: float


class SampledSensor:
    """Values of the last ``sample_count`` windows of ``window_ms`` each.

    ``record`` is called by one thread; it replaces what readers on other threads see as a whole.

    Args:
        sample_count: metrics.num.samples.
        window_ms: metrics.sample.window.ms.
    """

    __slots__ = ("_sample_count", "_samples", "_window_ms")

    def __init__(self, *, sample_count: int = 2, window_ms: int = 30_000) -> None:
        self._sample_count = sample_count
        self._window_ms = window_ms
        self._samples: tuple[_Sample, ...] = ()

    def record(self, value: float, now_ms: int) -> None:
        """Note one value at ``now_ms``, a clock that does not go back."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window_ms:
            newest = _Sample(now_ms, now_ms, 1, value, value)
            # One more than asked for: the oldest may still reach into the time that counts.
            self._samples = (*samples[-self._sample_count :], newest)
            return
        start_ms, _, count, total, largest = samples[-1]
        newest = _Sample(start_ms, now_ms, count + 1, total + value, max(largest, value))
        self._samples = (*samples[:-1], newest)

    def _live(self, now_ms: int) -> list[_Sample]:
        expiry_ms = self._sample_count * self._window_ms
        return [sample for sample in self._samples if now_ms - sample.last_event_ms < expiry_ms]

    def rate(self, now_ms: int) -> float:
        """The total of the windows by the seconds they cover; at least all windows but one count as elapsed."""
        live = self._live(now_ms)
        if not live:
            return 0.0
        elapsed_ms = now_ms - live[0].start_ms
        missing_windows = self._sample_count - 1 - elapsed_ms // self._window_ms
        if missing_windows > 0:
            elapsed_ms += missing_windows * self._window_ms
        return sum(window.total for window in live) / max(elapsed_ms, 1) * 1000

    def average(self, now_ms: int) -> float:
        """The mean of all values, NaN when there is none."""
        live = self._live(now_ms)
        count = sum(window.event_count for window in live)
        return sum(window.total for window in live) / count if count else math.nan

    def maximum(self, now_ms: int) -> float:
        """The largest value, NaN when there is none."""
        return max((window.largest for window in self._live(now_ms)), default=math.nan)
