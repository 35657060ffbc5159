"""Run one node as the process: until SIGTERM or SIGINT, then stop it gracefully."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from kraftlog.node.node import Node

__all__ = ["run_node"]


def run_node(node: Node, started: Callable[[Node], None]) -> int:
    """Start the node, report, serve until a signal or until its metadata log fails, stop.

    Args:
        node: Not yet started.
        started: Called once clients can connect.

    Returns:
        The exit code: 1 when the metadata log failed.

    Raises:
        KraftlogError: The node cannot start.
    """

    async def serve() -> int:
        loop = asyncio.get_running_loop()
        stop_requested = asyncio.Event()
        await node.start()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, stop_requested.set)
        started(node)
        ends = [asyncio.ensure_future(event.wait()) for event in (stop_requested, node.metadata.failed)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        await node.stop()
        return 0 if node.metadata.failure is None else 1

    return asyncio.run(serve())
