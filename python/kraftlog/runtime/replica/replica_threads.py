"""What partitions share: the loop, its inbox, and the threads that make their logs durable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kraftlog import host
from kraftlog.runtime.inbox import Inbox
from kraftlog.runtime.replica.flush_requests import FlushRequests

if TYPE_CHECKING:
    import asyncio

    from kraftlog.storage.log_dir import LogDir

__all__ = ["ReplicaThreads"]


class ReplicaThreads:
    """The inbox of the loop and a flush pool per data directory.

    Args:
        loop: The node's.
        log_dirs: The data directories.
        answer_followers: Whether I/O threads answer the fetches of followers that nothing throttles.
    """

    __slots__ = ("answer_followers", "flush_pools", "flush_requests", "inbox", "loop")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, log_dirs: Iterable[LogDir], *, answer_followers: bool = False
    ) -> None:
        self.answer_followers = answer_followers
        self.loop = loop
        self.inbox = Inbox(loop)
        self.flush_requests = FlushRequests(loop)
        self.flush_pools = {log_dir: host.flush_pool(f"kraftlog-flush-{log_dir.path.name}") for log_dir in log_dirs}

    def stop_flushing(self) -> None:
        """End the flush threads after what is queued; blocks until they have ended."""
        for pool in self.flush_pools.values():
            pool.stop()
