"""``spark.readStream.format("kraftlog")``: micro-batches of growing log directories."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kraftlog.errors import LogError, LogTruncatedError
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.plan import read_range
from kraftlog.spark.stream_offsets import StreamOffset
from kraftlog.spark.stream_survey import SurveyedLog
from kraftlog.spark.stream_tail import BatchLimit, MarkedRange, Tail

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1
    HAS_LIMITS = False
else:
    HAS_LIMITS = True

__all__ = ["HAS_LIMITS", "KraftlogStreamReader", "StreamPartition", "stream_reader"]


class StreamPartition(InputPartition):  # type: ignore[misc]  # pyspark is not typed
    """What one task of a micro-batch reads."""

    def __init__(self, ranges: tuple[MarkedRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class KraftlogStreamReader(DataSourceStreamReader):  # type: ignore[misc]  # pyspark is not typed
    """Offsets and plans on the driver, rows on the executors, where nothing is known but what a partition says.

    Args:
        options: Of the source.
        columns: Names of the columns that the rows have.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)
        self._tail = Tail(options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins. Asked again until the first batch is committed, whose end says where it began."""
        return self._tail.initial().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What the tasks of a batch read; none when nothing moved."""
        tasks = self._tail.plan(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return [StreamPartition(ranges) for ranges in tasks]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of a task.

        The log is compared with the plan before and after: a log that is truncated meanwhile makes the task fail,
        whose rows Spark then throws away.

        Raises:
            LogTruncatedError: The log no longer has the batch.
            LogError, OSError: As :func:`~kraftlog.spark.plan.read_range`.
        """
        for range_ in partition.ranges if isinstance(partition, StreamPartition) else ():
            _check(range_, self._options)
            try:
                yield from read_range([range_.offsets], self._options, self._columns)
            except (LogError, OSError):
                _check(range_, self._options)  # a truncation explains what was met
                raise
            _check(range_, self._options)


class UnlimitedStreamReader(KraftlogStreamReader):
    """For PySpark 4.1, which does not say where a batch begins when it asks for its end, and knows no limits.

    When a query goes on, 4.1 asks for a plan that begins and ends at its last offset; what was answered since is kept.
    As a lower bound it spares an empty batch, and a plan is checked by what Spark says in any case.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._newest: StreamOffset | None = None

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The end of what is there."""
        start = self._tail.initial() if self._newest is None else self._newest
        self._newest = self._tail.latest(start, BatchLimit())
        return self._newest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What the tasks of a batch read; none when nothing moved."""
        self._newest = StreamOffset.from_json(end)
        return super().partitions(start, end)


if HAS_LIMITS:

    class LimitedStreamReader(KraftlogStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
        """For PySpark 4.2 and later: batches with limits, an end for ``Trigger.AvailableNow``, lag in the progress."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            """The limit of the options. There is one object for both, so that the least is looked up in the options."""
            if self._options.max_offsets_per_trigger is not None:
                return ReadMaxRows(self._options.max_offsets_per_trigger)
            if self._options.min_offsets_per_trigger is not None:
                return ReadMinRows(self._options.min_offsets_per_trigger)
            return ReadAllAvailable()

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
            """The end of a batch that begins at ``start``, which is given back when there is nothing to read."""
            return self._tail.latest(StreamOffset.from_json(start), self._batch_limit(limit)).to_json()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """What is there now is the end of the query."""
            self._tail.fix_target()

        def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
            """What is there beyond all limits, for the query's progress; see ``kraftlog.spark.stream_lag``."""
            return self._tail.available().to_json()

        def _batch_limit(self, limit: ReadLimit) -> BatchLimit:
            if isinstance(limit, ReadAllAvailable):
                return BatchLimit()
            if isinstance(limit, ReadMaxRows):
                return BatchLimit(most=limit.max_rows, least=self._options.min_offsets_per_trigger)
            if isinstance(limit, ReadMinRows):
                return BatchLimit(least=limit.min_rows)
            message = f"a limit of {type(limit).__name__} is asked for; there are offsets only, no files and no bytes"
            raise ValueError(message)


def stream_reader(options: SourceOptions, columns: Sequence[str]) -> KraftlogStreamReader:
    """The reader for this PySpark.

    Raises:
        ValueError: A limit is given to PySpark 4.1, which does not know limits.
    """
    if HAS_LIMITS:
        return LimitedStreamReader(options, columns)
    if options.trigger_options_given():
        import pyspark

        message = (
            "options maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay need PySpark 4.2 or later;"
            f" PySpark {pyspark.__version__} does not tell a source where a batch begins"
        )
        raise ValueError(message)
    return UnlimitedStreamReader(options, columns)


def _check(one: MarkedRange, options: SourceOptions) -> None:
    """That the log has the end of the batch still.

    Raises:
        LogTruncatedError: It has not.
    """
    offsets = one.offsets
    if not os.path.isdir(offsets.path):
        return  # the read says that it is gone
    log = SurveyedLog(offsets.path, offsets.topic, offsets.partition, None, 0)
    topic_id = log.topic_id()
    if None not in {one.end.topic_id, topic_id} and one.end.topic_id != topic_id:
        message = f"{log.name} belongs to a topic with id {topic_id} now, planned was one with id {one.end.topic_id}"
        raise LogTruncatedError(message)
    log_end = log.log_end_offset(options)
    log.check(one.end, log_end_offset=log_end, history=log.history())
