"""A fetch that waits for more records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from kraftlog.runtime.replica.fetch_reader import read_partition

if TYPE_CHECKING:
    from kraftlog.runtime.replica.fetch_reader import FetchLimits, PartitionRead, PartitionSource
    from kraftlog.runtime.replica.fetch_session import SessionPartition
    from kraftlog.runtime.replica.follower_reads import FollowerReader
    from kraftlog.runtime.replica.partition import Partition

__all__ = ["FetchWait"]


class FetchWait:
    """A long poll: ends when enough can be read, when a partition changes hands, or when the time is over.

    What was read of a partition is kept; only a partition that moved is read again.

    Args:
        replicas: Where the partitions are found.
        wanted: The partitions of the fetch, in order.
        limits: Of the request.
        reads: What the first attempt gave for each of ``wanted``.
        finish: Makes the response of the final reads.
        follower: Reads for a follower, which waits for appends; None for a consumer, which waits for commits.

    Attributes:
        future: Ends with the response.
    """

    __slots__ = (
        "_finish_response",
        "_follower",
        "_is_scheduled",
        "_led",
        "_limits",
        "_loop",
        "_moved",
        "_positions",
        "_reads",
        "_replicas",
        "_size_bytes",
        "_timer",
        "_wanted",
        "future",
    )

    def __init__(
        self,
        replicas: PartitionSource,
        wanted: list[SessionPartition],
        limits: FetchLimits,
        reads: list[PartitionRead],
        finish: Callable[[list[PartitionRead]], Any],
        follower: FollowerReader | None = None,
    ) -> None:
        self._replicas = replicas
        self._loop = asyncio.get_running_loop()
        self._wanted = wanted
        self._limits = limits
        self._reads = reads
        self._finish_response = finish
        self._follower = follower
        self._is_scheduled = False
        self._size_bytes = sum(read.size_bytes for read in reads)
        self._positions: dict[Partition, list[int]] = {}
        self._moved: dict[Partition, None] = {}
        self._led: set[Partition] = set()
        for position, read in enumerate(reads):
            if read.partition is not None:
                self._positions.setdefault(read.partition, []).append(position)
                if read.partition.is_leader:
                    self._led.add(read.partition)
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self._timer = self._loop.call_later(limits.max_wait_ms / 1000, self._time_over)
        # Also when it is cancelled: the client is gone, or the node stops.
        self.future.add_done_callback(self._forget)
        for partition, positions in self._positions.items():
            # It may have moved on another thread since it was read.
            if follower is not None:
                partition.add_append_waiter(self)
                log_end_offset = partition.replica.log_end_offset
                if any(wanted[position].fetch_offset != log_end_offset for position in positions):
                    self.partition_moved(partition)
                continue
            partition.add_waiter(self)
            if any(reads[position].high_watermark != partition.high_watermark for position in positions):
                self.partition_moved(partition)

    def partition_moved(self, partition: Partition) -> None:
        """Read ``partition`` again, once per turn of the loop however often it moves."""
        self._moved[partition] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._look_again)

    def end(self) -> None:
        """Answer with what can be read now, as when the time is over."""
        self._time_over()

    def _look_again(self) -> None:
        self._is_scheduled = False
        if self.future.done():
            return
        if self._read_moved() or self._size_bytes >= self._limits.min_bytes:
            self._finish()

    def _time_over(self) -> None:
        if not self.future.done():
            self._read_moved()
            self._finish()

    def _read_moved(self) -> bool:
        """Read again what moved; True when a partition has an error, a divergence or another replica to tell."""
        is_over = False
        for partition in self._moved:
            limits = self._limits
            if partition in self._led and not partition.is_leader:
                # The consumer hears at once that the leader is another one, as on the data path; its next fetch may
                # be served from here (KIP-392).
                limits = copy(limits)
                limits.needs_leader = True
            for position in self._positions[partition]:
                others_bytes = self._size_bytes - self._reads[position].size_bytes
                wanted = self._wanted[position]
                remaining_bytes = max(0, self._limits.max_bytes - others_bytes)
                is_first = others_bytes == 0
                if self._follower is not None:
                    read = self._follower.read(wanted, remaining_bytes, is_first=is_first)
                else:
                    read = read_partition(self._replicas, wanted, limits, remaining_bytes, is_first=is_first)
                self._reads[position] = read
                self._size_bytes = others_bytes + read.size_bytes
                has_news = read.error_code != 0 or read.diverging_epoch is not None or read.preferred_replica >= 0
                is_over = is_over or has_news
        self._moved.clear()
        return is_over

    def _finish(self) -> None:
        try:
            self.future.set_result(self._finish_response(self._reads))
        except Exception as error:  # noqa: BLE001  the connection it belongs to ends with it
            self.future.set_exception(error)

    def _forget(self, _: asyncio.Future[Any]) -> None:
        self._timer.cancel()
        for partition in self._positions:
            if self._follower is not None:
                partition.remove_append_waiter(self)
            else:
                partition.remove_waiter(self)
