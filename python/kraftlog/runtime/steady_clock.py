"""The time of coordinators: a wall clock whose corrections neither end nor prolong what they wait for."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["SteadyClock"]

# A correction of the wall clock is caught up with by this share of the time that passes.
_SLEW = 10


class SteadyClock:
    """Shows the wall clock, but never jumps: it goes faster or slower by a tenth until it shows the same again.

    A session that began before the wall clock was set by an hour would end at once, or an hour late. Kafka measures
    sessions by a monotonic clock and stamps commits by the wall clock; here both have this one.

    Args:
        wall_ms: Milliseconds since 1970; it may be set at any time.
        monotonic_ns: A clock that never goes back, nanoseconds.
    """

    __slots__ = ("_monotonic_ns", "_seen_ns", "_shown_ns", "_wall_ms")

    def __init__(self, wall_ms: Callable[[], int], monotonic_ns: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ns = monotonic_ns
        self._seen_ns = monotonic_ns()
        self._shown_ns = wall_ms() * 1_000_000

    def now_ms(self) -> int:
        """Milliseconds since 1970, never less than before."""
        now_ns = self._monotonic_ns()
        passed_ns = now_ns - self._seen_ns
        self._seen_ns = now_ns
        shown_ns = self._shown_ns + passed_ns
        most_ns = passed_ns // _SLEW
        self._shown_ns = shown_ns + max(-most_ns, min(most_ns, self._wall_ms() * 1_000_000 - shown_ns))
        return self._shown_ns // 1_000_000
