"""``df.write.format("kraftlog").option("path", directory)``: rows to Kafka's segment files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kraftlog._kraftlog import RowWriter
from kraftlog.spark.write_columns import check_segment_columns
from kraftlog.spark.write_commit import abort_job, begin_attempt, check_unused, commit_job, finish_writes, new_job
from kraftlog.spark.write_options import SegmentOptions
from kraftlog.spark.write_plan import WritePlan, WrittenPartition, existing_partitions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["SegmentOptions", "SegmentWriter", "SegmentsWritten"]


@dataclass(frozen=True)
class SegmentsWritten(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed
    """What one task attempt has staged."""

    partitions: tuple[WrittenPartition, ...]


class SegmentWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed
    """Plans on the driver, encodes on the executors, commits on the driver.

    Args:
        schema: Of the rows.
        options: As :class:`SegmentOptions`.
        overwrite: Replace the topics that are written; append otherwise.

    Raises:
        ValueError: A column or an option is wrong.
        LogError: A node runs on the directory.
    """

    def __init__(self, schema: StructType, options: SegmentOptions, *, overwrite: bool) -> None:
        check_segment_columns(schema, options.topic, options.partition)
        self._options = options
        directory = Path(options.path)
        finish_writes(directory)
        check_unused(directory)
        topics = None if options.topic is None else {options.topic}
        self._plan = WritePlan(
            directory=directory,
            job=new_job(),
            overwrite=overwrite,
            topic=options.topic,
            must_be_new=options.must_be_new,
            topic_ids=options.topic_ids,
            existing=existing_partitions(directory, topics),
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SegmentsWritten:
        """Stage the rows of one task attempt; runs on an executor.

        Raises:
            ValueError: Rows that are no records, or not sorted as they have to be; names topic, partition and offset.
        """
        context = TaskContext.get()
        task, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        writer: RowWriter | None = None
        staged: Path | None = None
        for batch in iterator:
            if batch.num_rows == 0:
                continue
            if writer is None:
                staged = begin_attempt(self._plan.directory, self._plan.job, task, attempt)
                writer = self._writer(staged)
            writer.write(batch, time.time_ns() // 1_000_000)
        if writer is None or staged is None:
            return SegmentsWritten(())
        return SegmentsWritten(
            tuple(
                WrittenPartition(
                    topic=written.topic,
                    partition=written.partition,
                    first_offset=written.first_offset,
                    end_offset=written.end_offset,
                    rows=written.rows,
                    size_bytes=written.size_bytes,
                    epochs=tuple(written.leader_epochs),
                    staged=f"{staged.name}/{written.topic}-{written.partition}",
                )
                for written in writer.finish()
            )
        )

    def _writer(self, directory: Path) -> RowWriter:
        options = self._options
        starts = [
            (topic, partition, existing.end_offset, max(existing.leader_epoch, options.leader_epoch or 0))
            for (topic, partition), existing in self._plan.existing.items()
            if not self._plan.overwrite
        ]
        return RowWriter(
            directory,
            config=options.log_config(),
            topic=options.topic,
            partition=options.partition,
            starts=starts,
            leader_epoch=options.leader_epoch or 0,
            compression=options.compression,
            compression_level=options.compression_level,
            timestamp_type=options.timestamp_type,
            batch_bytes=options.batch_bytes,
            batch_rows=options.batch_rows,
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make what the tasks staged part of the directory; runs on the driver.

        Raises:
            LogError: The directory is not as it was, or rows of one partition came from several tasks; nothing of the
                directory was changed then.
        """
        written = [
            partition
            for message in messages
            if isinstance(message, SegmentsWritten)
            for partition in message.partitions
        ]
        commit_job(self._plan, written)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what was staged; runs on the driver when a task failed for good, or the commit did."""
        del messages
        abort_job(self._plan.directory, self._plan.job)
