"""Events per second, as moving averages that forget."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Meter", "MeterValue"]

_TICK_S = 5
_MINUTES = (1, 5, 15)
_ALPHAS = tuple(1 - math.exp(-_TICK_S / 60 / minutes) for minutes in _MINUTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterValue:
    """A meter at one moment; rates are events per second.

    Args:
        count: Events since the start.
        one_minute_rate, five_minute_rate, fifteen_minute_rate: Moving averages, renewed every five seconds.
    """

    count: int
    one_minute_rate: float
    five_minute_rate: float
    fifteen_minute_rate: float


class Meter:
    """Counts events. ``mark`` is called by one thread; ``value`` by any."""

    __slots__ = ("_state",)

    def __init__(self, now_s: float) -> None:
        # Count, events since the last tick, time of that tick, whether it was the first, rates.
        self._state: tuple[int, int, float, bool, tuple[float, ...]] = (0, 0, now_s, True, (0.0, 0.0, 0.0))

    def mark(self, event_count: int, now_s: float) -> None:
        """Note ``event_count`` events at ``now_s``, a clock that does not go back."""
        count, uncounted, tick_s, is_first, rates = self._ticked(now_s)
        self._state = (count + event_count, uncounted + event_count, tick_s, is_first, rates)

    def value(self, now_s: float) -> MeterValue:
        """The meter as of ``now_s``."""
        count, _, _, _, rates = self._ticked(now_s)
        return MeterValue(
            count=count, one_minute_rate=rates[0], five_minute_rate=rates[1], fifteen_minute_rate=rates[2]
        )

    def _ticked(self, now_s: float) -> tuple[int, int, float, bool, tuple[float, ...]]:
        count, uncounted, tick_s, is_first, rates = self._state
        ticks = int((now_s - tick_s) // _TICK_S)
        if ticks < 1:
            return self._state
        instant = uncounted / _TICK_S
        if is_first:
            rates = (instant,) * len(_ALPHAS)
        else:
            rates = tuple(rate + alpha * (instant - rate) for rate, alpha in zip(rates, _ALPHAS, strict=True))
        # Nothing happened in the ticks after the first.
        rates = tuple(rate * (1 - alpha) ** (ticks - 1) for rate, alpha in zip(rates, _ALPHAS, strict=True))
        return count, 0, tick_s + ticks * _TICK_S, False, rates
