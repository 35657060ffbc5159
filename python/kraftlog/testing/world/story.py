"""What happened in a world, as lines that a reader can follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

__all__ = ["Story"]


class Clock(Protocol):
    """When something happens."""

    @property
    def now_ms(self) -> float:
        """Milliseconds since the world began."""
        ...


class Story:
    """Lines of virtual time, machine and what happened there, the oldest first.

        12.345 s  broker-5      loses power
        12.345 s  broker-5      was killed 3 ms after it became leader of orders-0

    Args:
        world: Has the clock.
        most_lines: So many are kept; older ones are forgotten and counted.

    Attributes:
        forgotten_count: Lines that are not kept any more.
    """

    def __init__(self, world: Clock, *, most_lines: int = 2000) -> None:
        self._world = world
        self._lines: deque[str] = deque(maxlen=most_lines)
        self.forgotten_count = 0

    def tell(self, who: str, what: str) -> None:
        """Add a line."""
        self.forgotten_count += len(self._lines) == self._lines.maxlen
        self._lines.append(f"{self._world.now_ms / 1000:10.3f} s  {who:13} {what}")

    def last(self, count: int) -> list[str]:
        """The newest lines."""
        return list(self._lines)[-count:]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __str__(self) -> str:
        return "\n".join(self._lines)
