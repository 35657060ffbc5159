"""Run one node as the process: until SIGTERM or SIGINT, then stop it gracefully."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
from collections.abc import Callable

from kraftlog.node.frozen_heap import FrozenHeap
from kraftlog.node.full_collections import FullCollections
from kraftlog.node.node import Node

__all__ = ["raise_descriptor_limit", "run_node"]

logger = logging.getLogger(__name__)


def raise_descriptor_limit() -> None:
    """Let this process open as many files and sockets as it may: the soft limit becomes the hard one."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == hard_limit:
        logger.debug("the limit of open files is %d", soft_limit)
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    except (OSError, ValueError) as error:
        logger.warning("the limit of open files stays at %d of %d: %s", soft_limit, hard_limit, error)
        return
    logger.info("raised the limit of open files from %d to %d", soft_limit, hard_limit)


def run_node(node: Node, started: Callable[[Node], None]) -> int:
    """Start the node, report, serve until a signal or until its metadata log fails, stop.

    Raises the soft limit of open files first, and takes what lives as long as the node from the garbage collector.

    Args:
        node: Not yet started.
        started: Called once clients can connect.

    Returns:
        The exit code: 1 when the metadata log failed.

    Raises:
        KraftlogError: The node cannot start.
    """
    raise_descriptor_limit()

    async def serve() -> int:
        loop = asyncio.get_running_loop()
        stop_requested = asyncio.Event()
        await node.start()
        heap = FrozenHeap(node.partitions if node.config.is_broker else ())
        heap.begin()
        if node.config.is_broker:
            node.partitions.add_listener(heap.follow)
        collections = FullCollections(loop)
        collections.begin(node.schedulers)
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, stop_requested.set)
        started(node)
        ends = [asyncio.ensure_future(event.wait()) for event in (stop_requested, node.metadata.failed)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        await node.stop()
        collections.end()
        heap.end()
        return 0 if node.metadata.failure is None else 1

    return asyncio.run(serve())
