"""A token bucket, as Kafka's quota of changes at the controller has it (KIP-599)."""

from __future__ import annotations

from kraftlog.quota.sampled_rate import Windows

__all__ = ["TokenBucket"]


class TokenBucket:
    """Tokens that come at a rate; may be overdrawn.

    It is full at first, and holds what comes in all windows of the quota. The rate is given with each call, as it
    changes with the quota.
    """

    __slots__ = ("_last_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows, rate: float, now_ms: int) -> None:
        self._windows = windows
        self._last_ms = now_ms
        self._tokens = self._most(rate)

    def take(self, count: float, rate: float, now_ms: int) -> None:
        """Take tokens, whether they are there or not."""
        self._refill(rate, now_ms)
        self._tokens -= count

    def wait_ms(self, rate: float, now_ms: int) -> int:
        """How long the bucket takes until it is not overdrawn; 0 if it is not, else at least 1."""
        self._refill(rate, now_ms)
        return 0 if self._tokens >= 0 else max(1, int(-self._tokens / rate * 1000 + 0.5))

    def is_full(self, rate: float, now_ms: int) -> bool:
        """Whether a new bucket would be the same."""
        self._refill(rate, now_ms)
        return self._tokens >= self._most(rate)

    def _most(self, rate: float) -> float:
        return self._windows.count * self._windows.window_ms / 1000 * rate

    def _refill(self, rate: float, now_ms: int) -> None:
        self._tokens = min(self._most(rate), self._tokens + rate * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms
