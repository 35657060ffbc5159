"""A rate over the last windows of time, as Kafka's quotas measure it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

__all__ = ["SampledRate", "Windows"]


@dataclass(frozen=True, slots=True)
class Windows:
    """How a rate is sampled.

    Attributes:
        window_ms: Length of one window: quota.window.size.seconds.
        count: Windows that are kept: quota.window.num.
    """

    window_ms: int = 1_000
    count: int = 11

    @property
    def full_span_ms(self) -> int:
        """The time that a rate is divided by at least: every window but the current one."""
        return (self.count - 1) * self.window_ms


@dataclass(slots=True)
class _Sample:
    start_ms: int
    value: float
    last_ms: int


class SampledRate:
    """Amounts per second over the last windows (Kafka's ``Rate`` over ``SampledStat``).

    The time that the sum is divided by begins with the oldest sample, and is at least all windows but the current one,
    so that a first burst does not count as a rate of its own. A sample is kept until no amount in it is younger than
    all windows together.
    """

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()

    def record(self, amount: float, now_ms: int) -> None:
        """Count an amount; a negative one takes back what was counted at the same instant."""
        samples = self._samples
        if samples and now_ms - samples[-1].start_ms < self._windows.window_ms:
            sample = samples[-1]
            sample.value += amount
            sample.last_ms = now_ms
        else:
            self._drop(now_ms)
            samples.append(_Sample(now_ms, amount, now_ms))

    def rate(self, now_ms: int) -> float:
        """Amount per second."""
        span_ms = self.span_ms(now_ms)
        return sum(sample.value for sample in self._samples) * 1000 / span_ms

    def span_ms(self, now_ms: int) -> int:
        """The time that the amounts are divided by."""
        self._drop(now_ms)
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        window_ms = self._windows.window_ms
        missing = max(0, self._windows.count - 1 - elapsed_ms // window_ms)
        return max(1, elapsed_ms + missing * window_ms)

    def is_empty(self, now_ms: int) -> bool:
        """Whether nothing counts any more: a new rate would measure the same."""
        self._drop(now_ms)
        return not self._samples

    def _drop(self, now_ms: int) -> None:
        kept_ms = self._windows.count * self._windows.window_ms
        while self._samples and now_ms - self._samples[0].last_ms >= kept_ms:
            self._samples.popleft()
