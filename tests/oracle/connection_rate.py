"""max.connection.creation.rate: how long a new connection waits so that the rate of new connections keeps its limit."""

from __future__ import annotations

from collections import deque

__all__ = ["ConnectionRate"]

_WINDOWS = 11
_WINDOW_S = 1.0


class ConnectionRate:
    """New connections per second, averaged over ten to eleven seconds: Kafka's ``Rate`` with default quota windows.

    While less than ten seconds were measured they count as ten, so that a burst of ten times the rate passes at first.
    """

    def __init__(self) -> None:
        # Start of each window that is still counted, and the connections in it.
        self._windows: deque[tuple[float, int]] = deque()

    def add(self, limit_per_s: int, now_s: float) -> float:
        """Count a new connection.

        Args:
            limit_per_s: max.connection.creation.rate.
            now_s: Monotonic clock.

        Returns:
            Seconds that this connection has to wait; at most one window.
        """
        while self._windows and now_s - self._windows[0][0] >= _WINDOWS * _WINDOW_S:
            self._windows.popleft()
        if self._windows and now_s - self._windows[-1][0] < _WINDOW_S:
            start_s, count = self._windows[-1]
            self._windows[-1] = start_s, count + 1
        else:
            self._windows.append((now_s, 1))
        elapsed_s = now_s - self._windows[0][0]
        missing = max(0, _WINDOWS - 1 - int(elapsed_s / _WINDOW_S))
        elapsed_s += missing * _WINDOW_S
        rate = sum(count for _, count in self._windows) / elapsed_s
        if rate <= limit_per_s:
            return 0.0
        return min((rate - limit_per_s) / limit_per_s * elapsed_s, _WINDOW_S) if limit_per_s else _WINDOW_S

    def take_back(self) -> None:
        """The connection that was counted last does not count."""
        start_s, count = self._windows[-1]
        self._windows[-1] = start_s, count - 1
