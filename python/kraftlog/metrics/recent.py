"""Times and counts of the last windows, for events that are too frequent to cost more than some additions.

Nothing is allocated per event. The writer replaces what a reader sees once per window; within a window it adds to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["LatencyQuantiles", "RecentLatencies", "RecentRates"]

_STEPS_BITS = 5
_STEPS = 1 << _STEPS_BITS
_LARGEST_US = (1 << 32) - 1
_BUCKETS = (32 - _STEPS_BITS + 1) * _STEPS
# Behind the buckets: the largest value of the window.
_WINDOW_SIZE = _BUCKETS + 1
_QUANTILES = (0.5, 0.95, 0.99, 0.999)


class LatencyQuantiles(NamedTuple):
    """Times of the last windows in milliseconds; all 0 when there is none. Quantiles are exact to 2 %."""

    maximum: float
    p50: float
    p95: float
    p99: float
    p999: float


class RecentLatencies:
    """A histogram of the current window and the one before it.

    A bucket is a thirty-second of a power of two of microseconds. ``record`` and ``rotate`` are called by one thread,
    ``value`` by any.
    """

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows = ([0] * _WINDOW_SIZE, [0] * _WINDOW_SIZE)

    def record(self, duration_ns: int, count: int = 1) -> None:
        """Note ``count`` events that took ``duration_ns`` each."""
        window = self._windows[0]
        value_us = duration_ns // 1000
        if 0 <= value_us < _STEPS << 1:
            window[value_us] += count
        else:
            window[_bucket(value_us)] += count
        window[-1] = max(window[-1], duration_ns)

    def rotate(self) -> None:
        """A new window begins; what is older than the last one is forgotten."""
        self._windows = ([0] * _WINDOW_SIZE, self._windows[0])

    def value(self) -> LatencyQuantiles:
        """The distribution now."""
        current, previous = self._windows
        counts = [new + old for new, old in zip(current[:_BUCKETS], previous, strict=False)]
        maximum_ms = max(current[-1], previous[-1]) / 1e6
        total = sum(counts)
        found: list[float] = []
        seen = 0
        bucket = -1
        for quantile in _QUANTILES:
            while total and seen < quantile * total:
                bucket += 1
                seen += counts[bucket]
            found.append(min(_middle_us(bucket) / 1000, maximum_ms) if total else 0.0)
        return LatencyQuantiles(maximum_ms, *found)


def _bucket(value_us: int) -> int:
    value_us = max(0, min(value_us, _LARGEST_US))
    shift = max(0, value_us.bit_length() - _STEPS_BITS - 1)
    return (shift << _STEPS_BITS) + (value_us >> shift)


def _middle_us(bucket: int) -> float:
    shift = max(0, (bucket >> _STEPS_BITS) - 1)
    first = (bucket - (shift << _STEPS_BITS)) << shift
    return first + ((1 << shift) - 1) / 2


class _Mark(NamedTuple):
    start_ms: int
    last_event_ms: int
    counters: tuple[int, ...]


class RecentRates:
    """How fast counters grow, computed as Kafka's ``Rate``: from the start of the oldest window that still counts.

    Args:
        read: The counters, which only grow.
        now_ms: Clock that does not go back.
        sample_count: metrics.num.samples.
        window_ms: metrics.sample.window.ms.
    """

    __slots__ = ("_end_ms", "_last_event_ms", "_marks", "_read", "_sample_count", "_window_ms")

    def __init__(
        self, read: Callable[[], tuple[int, ...]], now_ms: int, *, sample_count: int = 2, window_ms: int = 30_000
    ) -> None:
        self._read = read
        self._sample_count = sample_count
        self._window_ms = window_ms
        self._last_event_ms = now_ms
        self._end_ms = now_ms + window_ms
        self._marks: tuple[_Mark, ...] = (_Mark(now_ms, now_ms, read()),)

    def begin_event(self, now_ms: int) -> bool:
        """Something is about to happen that may move the counters; returns whether a window ended before it."""
        if now_ms < self._end_ms:
            self._last_event_ms = now_ms
            return False
        # One more than asked for: the oldest may still reach into the time that counts.
        closed = self._marks[-1]._replace(last_event_ms=self._last_event_ms)
        kept = (*self._marks[:-1], closed)[-self._sample_count :]
        self._marks = (*kept, _Mark(now_ms, now_ms, self._read()))
        self._last_event_ms = now_ms
        self._end_ms = now_ms + self._window_ms
        return True

    def is_quiet(self, now_ms: int) -> bool:
        """Whether nothing happened for as long as all windows."""
        return now_ms - self._last_event_ms >= self._sample_count * self._window_ms

    def per_second(self, now_ms: int) -> tuple[float, ...]:
        """The growth of each counter per second; at least all windows but one count as elapsed."""
        counters = self._read()
        marks = self._marks
        expiry_ms = self._sample_count * self._window_ms
        live = [mark for mark in marks[:-1] if now_ms - mark.last_event_ms < expiry_ms]
        if not self.is_quiet(now_ms):
            live.append(marks[-1])
        if not live:
            return (0.0,) * len(counters)
        elapsed_ms = now_ms - live[0].start_ms
        missing_windows = self._sample_count - 1 - elapsed_ms // self._window_ms
        if missing_windows > 0:
            elapsed_ms += missing_windows * self._window_ms
        return tuple(
            (now - then) / max(elapsed_ms, 1) * 1000 for now, then in zip(counters, live[0].counters, strict=True)
        )
