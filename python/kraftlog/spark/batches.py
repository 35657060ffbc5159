"""``spark.read.format("kraftlog-batches")``: a row for each record batch, from headers alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kraftlog._kraftlog import ArrowStream, scan_batches_stream
from kraftlog.spark.frame import FrameColumns, frame_options
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.partition_log import OffsetRange, list_partitions
from kraftlog.spark.plan import resolve_offsets, split_ranges
from kraftlog.spark.range_reader import BATCH_ROWS, stream_range

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCHES_OPTIONS", "BATCH_COLUMNS", "KraftlogBatchesDataSource", "plan_batches"]

# A batch is in a transaction or not, decided or not: its header does not tell, and the format gives them all.
BATCHES_OPTIONS = frame_options("kafka.isolation.level")
# Bytes of segments whose headers one task reads, and which small partitions share: a task takes longer to start than
# to step over the headers of less.
HEADERS_SPLIT_BYTES = 1 << 30

BATCH_COLUMNS = FrameColumns(
    {
        "topic": "string",
        "partition": "int",
        "baseOffset": "bigint",
        "lastOffset": "bigint",
        "recordCount": "int",
        "sizeInBytes": "int",
        "magic": "tinyint",
        "compression": "string",
        "timestampType": "int",
        "baseTimestamp": "timestamp",
        "maxTimestamp": "timestamp",
        "producerId": "bigint",
        "producerEpoch": "smallint",
        "baseSequence": "int",
        "isTransactional": "boolean",
        "isControl": "boolean",
        "hasDeleteHorizon": "boolean",
        "partitionLeaderEpoch": "int",
        "crc": "bigint",
        "crcOk": "boolean",
        "file": "string",
        "position": "bigint",
    },
    further=("crcOk",),
)


@dataclass(frozen=True, slots=True)
class BatchRange:
    """A range of offsets; all but the first of a partition leave out a batch that begins before them."""

    range: OffsetRange
    is_first: bool


class BatchesPartition(InputPartition):  # type: ignore[misc]  # pyspark is not typed
    """What one task reads."""

    def __init__(self, ranges: tuple[BatchRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class KraftlogBatchesDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed
    """A row for each record batch that has an offset in the range asked for: sizes, producers, codecs, times."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return "kraftlog-batches"

    def schema(self) -> str:
        """All columns but ``crcOk``, or those of the option ``columns``."""
        return BATCH_COLUMNS.ddl(SourceOptions.parse(self.options, known=BATCHES_OPTIONS).columns)

    def reader(self, schema: StructType) -> KraftlogBatchesReader:
        """A reader of the columns of ``schema``, which may be any column of the format in any order.

        Raises:
            ValueError: A column that does not exist, one of another type, or other columns than the option names.
        """
        options = SourceOptions.parse(self.options, known=BATCHES_OPTIONS)
        columns = BATCH_COLUMNS.check(schema, options.columns)
        if "crcOk" not in columns and "splitbytes" not in map(str.lower, self.options):
            options = replace(options, split_bytes=HEADERS_SPLIT_BYTES)
        return KraftlogBatchesReader(schema, columns, options)


class KraftlogBatchesReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed
    """Plans tasks on the driver and walks over headers on the executors."""

    def __init__(self, schema: Any, columns: Sequence[str], options: SourceOptions) -> None:
        self._arrow_schema = None if isinstance(schema, StructType) else schema
        self._names = list(schema.names)
        self._columns = list(columns)
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task; runs on the driver."""
        return [BatchesPartition(ranges) for ranges in plan_batches(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of a task. An empty log has no task, for which Spark asks with None."""
        for range_ in partition.ranges if isinstance(partition, BatchesPartition) else ():
            for batch in _read(range_, self._options, self._columns):
                rows = batch if self._names == self._columns else batch.rename_columns(self._names)
                yield rows if self._arrow_schema is None or not self._names else rows.cast(self._arrow_schema)


def plan_batches(options: SourceOptions) -> list[tuple[BatchRange, ...]]:
    """The ranges that each task reads: together each batch once.

    Raises:
        FileNotFoundError, ValueError, LogError: As :func:`list_partitions` and :func:`resolve_offsets`.
    """
    partitions = list_partitions(options)
    offsets = resolve_offsets(options, partitions)
    tasks: list[list[BatchRange]] = []
    size = 0
    for range_ in split_ranges(options, partitions, offsets):
        is_first = range_.start_offset == offsets[range_.topic, range_.partition][0]
        # Those who ask for a number of tasks, or for small ones, get them.
        is_asked = options.min_partitions is not None or options.max_records_per_partition is not None
        if not tasks or is_asked or size + range_.size_bytes > options.split_bytes:
            tasks.append([])
            size = 0
        tasks[-1].append(BatchRange(range_, is_first))
        size += range_.size_bytes
    return [tuple(task) for task in tasks]


def _read(one: BatchRange, options: SourceOptions, columns: list[str]) -> Iterator[pa.RecordBatch]:
    place = one.range

    def open_at(start_offset: int) -> ArrowStream:
        return scan_batches_stream(
            [(place.place, place.topic, place.partition, start_offset, place.end_offset, None)],
            columns=columns,
            timestamp_unit="us",
            check_crc="crcOk" in columns,
            # Where records before were deleted, the log may go on within a batch.
            begin_in_range=not one.is_first and start_offset == place.start_offset,
            on_corrupt="raise" if options.fail_on_data_loss else "skip",
            batch_rows=BATCH_ROWS,
        )

    return stream_range(place, options, open_at)
