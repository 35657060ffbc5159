"""Flushes that a turn of the event loop asks for, each partition once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kraftlog._kraftlog import Partition

__all__ = ["FlushRequests"]


class FlushRequests:
    """Passes requests on to the flush pools at the end of a turn.

    Not at once: the rest of a wake-up may append to the same partitions, and one fsync then covers all of it.

    Args:
        loop: Where ``request`` is called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wanted: dict[Partition, None] = {}

    def request(self, partition: Partition) -> None:
        """Flush this partition's log soon."""
        if not self._wanted:
            self._loop.call_soon(self._ask)
        self._wanted[partition] = None

    def _ask(self) -> None:
        wanted, self._wanted = self._wanted, {}
        for partition in wanted:
            partition.request_flush()
