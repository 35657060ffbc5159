"""Run one node as the process: until SIGTERM or SIGINT, then stop it gracefully."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from kraftlog.server.node import Node

__all__ = ["run_node"]


def run_node(node: Node, started: Callable[[Node], None]) -> int:
    """Start the node, report, serve until a signal, stop.

    Args:
        node: Not yet started.
        started: Called once clients can connect.

    Raises:
        KraftlogError: The node cannot start.
    """

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        stop_requested = asyncio.Event()
        await node.start()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, stop_requested.set)
        started(node)
        await stop_requested.wait()
        await node.stop()

    asyncio.run(serve())
    return 0
