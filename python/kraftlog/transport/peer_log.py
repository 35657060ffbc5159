"""Log lines that a peer can provoke, bounded per peer and second."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

__all__ = ["PeerLog"]

LINES_PER_SECOND: Final = 10
HOSTS_MAX: Final = 1_000
_WINDOW_S: Final = 1.0
_OTHERS: Final = "other hosts"


class PeerLog:
    """Writes at most ten lines per host and second, then one line that counts those it left out.

    Hosts beyond the first thousand in one second share one count, so that the memory is bounded as well.

    Args:
        loop: Ends the seconds.
        logger: Where the lines go.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, logger: logging.Logger) -> None:
        self._loop = loop
        self._logger = logger
        self._counts: dict[str, int] = {}

    def warning(self, host: str, text: str, *arguments: object) -> None:
        """Log a warning about a peer.

        Args:
            host: The peer's address without its port.
            text: A format string.
            *arguments: What it formats.
        """
        if host not in self._counts and len(self._counts) >= HOSTS_MAX:
            host = _OTHERS
        count = self._counts.get(host, 0) + 1
        self._counts[host] = count
        if count == 1:
            self._loop.call_later(_WINDOW_S, self._end_window, host)
        if count <= LINES_PER_SECOND:
            self._logger.warning(text, *arguments)

    def _end_window(self, host: str) -> None:
        left_out = self._counts.pop(host) - LINES_PER_SECOND
        if left_out > 0:
            self._logger.warning("%d more warnings about %s within a second were left out", left_out, host)
