"""Quotas of a rate: bytes produced or fetched, time of processing."""

from __future__ import annotations

from typing import Final

from kraftlog.quota.limits import Match, QuotaLimits
from kraftlog.quota.sampled_rate import SampledRate, Windows

__all__ = ["THROTTLE_MS_MAX", "RateQuota"]

THROTTLE_MS_MAX: Final = 2**31 - 1
"""The field of the protocol is an int32."""

_SWEEP_AT_LEAST: Final = 1024


class RateQuota:
    """What clients used of one key, and how long each has to wait.

    Clients that share a quota share a rate. Rates that nothing counts in any more are dropped.

    Args:
        windows: How rates are sampled.
        throttle_ms_max: No client waits longer at once.

    Attributes:
        limits: In force; may be replaced at any time.

    Source: Kafka's ``ClientQuotaManager`` and ``QuotaUtils``.
    """

    def __init__(self, windows: Windows, *, throttle_ms_max: int = THROTTLE_MS_MAX) -> None:
        self.limits = QuotaLimits({})
        self._windows = windows
        self._throttle_ms_max = throttle_ms_max
        self._rates: dict[tuple[str, str], SampledRate] = {}
        self._sweep_at = _SWEEP_AT_LEAST

    def __len__(self) -> int:
        """Rates in memory."""
        return len(self._rates)

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count what a client used.

        Returns:
            Milliseconds that the client has to wait, so that the rate is back at the limit; 0 if it is not above.
        """
        match = self.limits.find(user, client_id)
        if match is None:
            return 0
        rate = self._rate_of(match, now_ms)
        rate.record(amount, now_ms)
        excess = rate.rate(now_ms) - match.limit
        if excess <= 0:
            return 0
        return int(min(excess / match.limit * rate.span_ms(now_ms) + 0.5, self._throttle_ms_max))

    def take_back(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """The client did not get what was counted at ``now_ms``."""
        match = self.limits.find(user, client_id)
        if match is not None:
            self._rate_of(match, now_ms).record(-amount, now_ms)

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """The amount above which a client has to wait even if it used nothing before; None if there is none."""
        match = self.limits.find(user, client_id)
        return None if match is None else match.limit * self._windows.full_span_ms / 1000

    def _rate_of(self, match: Match, now_ms: int) -> SampledRate:
        rate = self._rates.get(match.sharing)
        if rate is None:
            if len(self._rates) >= self._sweep_at:
                self._rates = {key: kept for key, kept in self._rates.items() if not kept.is_empty(now_ms)}
                self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._rates))
            rate = self._rates[match.sharing] = SampledRate(self._windows)
        return rate
