"""How much of the time a loop waits."""

from __future__ import annotations

__all__ = ["IdleRatio"]

_WINDOW_NS = 30_000_000_000


class IdleRatio:
    """Share of the time without work, over the current window of 30 seconds and the one before.

    Kafka's ``TimeRatio`` begins anew with every reading, so that two readers spoil each other's values; here reading
    changes nothing.

    Args:
        start_ns: Clock at which the time begins to count.
    """

    __slots__ = ("_windows",)

    def __init__(self, start_ns: int) -> None:
        self._windows: tuple[tuple[int, int], ...] = ((start_ns, 0),)

    def record_busy(self, start_ns: int, end_ns: int) -> None:
        """There was work from ``start_ns`` to ``end_ns``, after everything noted before."""
        windows = self._windows
        begin_ns, busy_ns = windows[-1]
        if end_ns - begin_ns >= _WINDOW_NS:
            self._windows = (windows[-1], (start_ns, end_ns - start_ns))
        else:
            self._windows = (*windows[:-1], (begin_ns, busy_ns + end_ns - start_ns))

    def value(self, now_ns: int) -> float:
        """The ratio from 0 to 1; 1 when there was no work."""
        live = [(begin_ns, busy_ns) for begin_ns, busy_ns in self._windows if now_ns - begin_ns < 2 * _WINDOW_NS]
        if not live or now_ns <= live[0][0]:
            return 1.0
        busy_ns = sum(busy for _, busy in live)
        return min(1.0, max(0.0, 1.0 - busy_ns / (now_ns - live[0][0])))
