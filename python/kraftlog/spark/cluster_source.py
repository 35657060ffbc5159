"""Readers of ``format("kraftlog")`` with ``kafka.bootstrap.servers``: batches, and micro-batches of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kraftlog.spark.cluster_options import ClusterOptions
from kraftlog.spark.cluster_plan import (
    ClusterRange,
    Survey,
    lose,
    plan_batch,
    read_cluster_ranges,
    split,
    survey,
)
from kraftlog.spark.stream import HAS_LIMITS, KraftlogStreamReader, StreamPartition, UnlimitedStreamReader
from kraftlog.spark.stream_limits import spread
from kraftlog.spark.stream_offsets import PartitionKey, Position, StreamOffset
from kraftlog.spark.stream_tail import BatchLimit

if HAS_LIMITS:
    from kraftlog.spark.stream import LimitedStreamReader as _StreamReader
else:
    _StreamReader = UnlimitedStreamReader  # type: ignore[misc]

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ClusterReader", "ClusterStreamReader", "ClusterTail"]


class ClusterPartition(InputPartition):  # type: ignore[misc]  # pyspark is not typed
    """What one task reads."""

    def __init__(self, offsets: ClusterRange) -> None:
        super().__init__(offsets)
        self.offsets = offsets


class ClusterReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed
    """Plans tasks on the driver; each executor fetches from the cluster itself."""

    def __init__(self, options: ClusterOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task; runs on the driver."""
        return [ClusterPartition(offsets) for offsets in plan_batch(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of a task. An empty topic has no task, for which Spark asks with None."""
        ranges = [partition.offsets] if isinstance(partition, ClusterPartition) else []
        yield from read_cluster_ranges(self._options, self._columns, ranges)


class ClusterTail:
    """The growing end of the partitions of a cluster, for a streaming query.

    Args:
        options: Which partitions, and how much of them a batch takes.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._target: Mapping[PartitionKey, int] | None = None
        self._available: StreamOffset | None = None
        self._batch_s = time.monotonic()

    def initial(self) -> StreamOffset:
        """Where a new query begins.

        Raises:
            OffsetOutOfRangeError: With ``failOnDataLoss``: the cluster does not have that offset.
        """
        source = self._options.source
        found = survey(self._options, source.starting)
        positions = {}
        for key, offset in found.limits[source.starting.option].items():
            first, latest = found.earliest[key], found.latest[key]
            if not first <= offset <= latest:
                lose(source, f"option {source.starting.option}: offset {offset} of {key[0]}-{key[1]} is not there")
            positions[key] = Position(min(max(offset, first), latest))
        return StreamOffset(positions, is_initial=True)

    def latest(self, start: StreamOffset, limit: BatchLimit) -> StreamOffset:
        """The end of a batch that begins at ``start``; ``start`` itself when there is nothing to read.

        Raises:
            OffsetOutOfRangeError: With ``failOnDataLoss``: the cluster no longer has what was read or comes next.
        """
        found = survey(self._options)
        self._available = StreamOffset({key: Position(end) for key, end in found.latest.items()})
        begins = {key: self._begin(key, found, start.positions.get(key)) for key in found.latest}
        for key in start.positions.keys() - found.latest.keys():
            lose(self._options.source, f"partition {key[0]}-{key[1]} is gone from the cluster")
        ends = {
            key: min(end, (self._target or {}).get(key, 0)) if self._target is not None else end
            for key, end in found.latest.items()
        }
        lags = {key: max(ends[key] - begins[key], 0) for key in begins}
        if self._is_delayed(sum(lags.values()), limit):
            lags = dict.fromkeys(lags, 0)
        shares = lags if limit.most is None else spread(limit.most, lags)
        # A partition that is gone keeps its place; one that is new has a place from its first records on.
        positions = dict(start.positions)
        for key, share in shares.items():
            if share or key in positions:
                positions[key] = Position(begins[key] + share)
        if start.is_initial:
            return StreamOffset(positions, batch_start=start.positions)
        return start if positions == start.positions else StreamOffset(positions)

    def _begin(self, key: PartitionKey, found: Survey, position: Position | None) -> int:
        first, latest = found.earliest[key], found.latest[key]
        name = f"{key[0]}-{key[1]}"
        if position is None:
            if first > 0:
                lose(self._options.source, f"new partition {name} begins at offset {first}: records before are gone")
            return first
        if position.offset < first:
            lose(self._options.source, f"{name} was read up to {position.offset}, and begins at {first} now")
            return first
        if position.offset > latest:
            lose(self._options.source, f"{name} was read up to {position.offset}, and ends at {latest} now")
            return latest
        return position.offset

    def _is_delayed(self, count: int, limit: BatchLimit) -> bool:
        now = time.monotonic()
        delay_s = self._options.source.max_trigger_delay_ms / 1000
        if limit.least is not None and count < limit.least and now - self._batch_s < delay_s:
            return True
        if count:
            self._batch_s = now
        return False

    def available(self) -> StreamOffset:
        """What there was to read when :meth:`latest` looked last; looks now before that."""
        if self._available is not None:
            return self._available
        return StreamOffset({key: Position(end) for key, end in survey(self._options).latest.items()})

    def fix_target(self) -> None:
        """What is there now is the end of the query (``Trigger.AvailableNow``)."""
        self._target = survey(self._options).latest

    def plan(self, start: StreamOffset, end: StreamOffset) -> list[tuple[ClusterRange, ...]]:
        """What each task of a batch reads."""
        begins = end.starting_at(start)
        ranges = [
            ClusterRange(*key, begins[key].offset if key in begins else 0, position.offset)
            for key, position in sorted(end.positions.items())
        ]
        return [(offsets,) for offsets in split(self._options.source, ranges)]


class ClusterStreamReader(_StreamReader):
    """Micro-batches of a cluster; limits need PySpark 4.2, as those of directories."""

    def __init__(self, options: ClusterOptions, columns: Sequence[str]) -> None:
        KraftlogStreamReader.__init__(self, options.source, columns)
        self._cluster = options
        self._tail: Any = ClusterTail(options)
        self._newest: StreamOffset | None = None

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of a task."""
        ranges: Sequence[Any] = partition.ranges if isinstance(partition, StreamPartition) else ()
        yield from read_cluster_ranges(self._cluster, self._columns, ranges)
