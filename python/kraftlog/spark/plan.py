"""Which task reads what: offset ranges of about equal bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraftlog._kraftlog import plan_splits
from kraftlog.reading import partition_directories
from kraftlog.spark.options import SourceOptions

__all__ = ["OffsetRange", "plan_tasks"]

# Ranges this small are put together, so that many small partitions do not become as many tasks.
PACK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from ``start_offset`` up to, but without, ``end_offset``.

    The byte size is what planning saw. A task finds its bytes through the index again, since compaction may swap
    the file in between.
    """

    path: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int


def plan_tasks(options: SourceOptions) -> list[tuple[OffsetRange, ...]]:
    """The ranges that each task reads, together every offset that the logs have now, once.

    Raises:
        FileNotFoundError: A path does not exist, or a topic is in none of them.
    """
    tasks: list[tuple[OffsetRange, ...]] = []
    pending: list[OffsetRange] = []
    for offsets in _ranges(options):
        if pending and sum(one.size_bytes for one in pending) + offsets.size_bytes > min(
            PACK_BYTES, options.split_bytes
        ):
            tasks.append(tuple(pending))
            pending = []
        pending.append(offsets)
    return [*tasks, tuple(pending)] if pending else tasks


def _ranges(options: SourceOptions) -> Iterator[OffsetRange]:
    for log in partition_directories(options.paths, topics=options.topics):
        start_offset, end_offset = log.log_start_offset, log.log_end_offset
        path = str(log.path.resolve())
        for _, first, end, _, size_bytes in plan_splits(
            log.path, split_bytes=options.split_bytes, start_offset=start_offset, end_offset=end_offset
        ):
            yield OffsetRange(path, log.topic, log.partition, first, end, size_bytes)
