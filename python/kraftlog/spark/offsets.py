"""``spark.read.format("kraftlog-offsets")``: committed offsets, groups and transactions as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kraftlog._kraftlog import ArrowStream, read_transactions, scan_stream
from kraftlog.spark.data_loss import DataLoss, report_losses
from kraftlog.spark.frame import FrameColumns, frame_options, record_batches
from kraftlog.spark.offsets_rows import TABLES, CoordinatorRecord, Row, rows_of
from kraftlog.spark.option_values import given_options, read_choice, read_flag
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.partition_log import OffsetRange, PartitionLog, list_partitions
from kraftlog.spark.plan import resolve_offsets, split_ranges
from kraftlog.spark.range_reader import BATCH_BYTES, BATCH_ROWS, stream_range

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OFFSETS_OPTIONS", "KraftlogOffsetsDataSource", "plan_offsets"]

# A partition is read by one task: what a record comes to depends on those after it. What was aborted or is open is told
# by a column.
OFFSETS_OPTIONS = (
    "table",
    "latest",
    *frame_options(
        "subscribePattern", "kafka.isolation.level", "splitBytes", "minPartitions", "maxRecordsPerPartition"
    ),
)
# Small partitions share a task.
_TASK_BYTES = 16 << 20
_COLUMNS = ["key", "value", "offset", "timestamp", "producer_id", "is_transactional"]

Outcome = Literal["committed", "aborted", "open"]


class OffsetsPartition(InputPartition):  # type: ignore[misc]  # pyspark is not typed
    """What one task reads: whole partitions."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class KraftlogOffsetsDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed
    """What is in ``__consumer_offsets``, ``__transaction_state`` and ``__share_group_state``.

    The option ``table`` says what: ``offsets`` (a row for each commit), ``groups``, ``transactions`` or ``records``
    (all with key and value as JSON). With ``latest=true`` only what the records come to: the last of each key.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return "kraftlog-offsets"

    def schema(self) -> str:
        """The columns of the table, or those of the option ``columns``."""
        options, table, _ = _parse(self.options)
        return FrameColumns(TABLES[table].types).ddl(options.columns)

    def reader(self, schema: StructType) -> KraftlogOffsetsReader:
        """A reader of the columns of ``schema``, which may be any of the table in any order.

        Raises:
            ValueError: A table or column that does not exist, a column of another type, or a topic without that table.
        """
        options, table, latest = _parse(self.options)
        columns = FrameColumns(TABLES[table].types).check(schema, options.columns)
        return KraftlogOffsetsReader(schema, columns, options, table, latest=latest)


class KraftlogOffsetsReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed
    """Plans tasks on the driver and decodes records on the executors."""

    def __init__(
        self, schema: Any, columns: Sequence[str], options: SourceOptions, table: str, *, latest: bool
    ) -> None:
        self._schema = schema
        self._columns = list(columns)
        self._options = options
        self._table = table
        self._latest = latest

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task; runs on the driver."""
        return [OffsetsPartition(ranges) for ranges in plan_offsets(self._options, self._table)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of a task. Without any record there is no task, for which Spark asks with None."""
        ranges = partition.ranges if isinstance(partition, OffsetsPartition) else ()
        for range_ in ranges:
            yield from record_batches(self._rows(range_), self._columns, self._schema)

    def _rows(self, one: OffsetRange) -> Iterator[Row]:
        losses: list[DataLoss] = []

        def leave_out(record: CoordinatorRecord, reason: str) -> None:
            losses.append(
                DataLoss(
                    topic=record.topic,
                    partition=record.partition,
                    start_offset=record.offset,
                    end_offset=record.offset + 1,
                    path=one.path,
                    reason=reason,
                )
            )

        records = _records(one, self._options)
        on_bad = None if self._options.fail_on_data_loss else leave_out
        yield from rows_of(TABLES[self._table], records, latest=self._latest, on_bad=on_bad)
        report_losses(self._options, losses)


def plan_offsets(options: SourceOptions, table: str) -> list[tuple[OffsetRange, ...]]:
    """The partitions that each task reads.

    Raises:
        FileNotFoundError: A path does not exist, or there is no partition of the table's topics.
        ValueError, LogError: As :func:`kraftlog.spark.plan.resolve_offsets`.
    """
    partitions = _partitions(options, table)
    offsets = resolve_offsets(options, partitions)
    remotes = {(log.topic, log.partition): log.remote for log in partitions}
    whole: dict[tuple[str, int], OffsetRange] = {}
    for part in split_ranges(options, partitions, offsets):
        name = (part.topic, part.partition)
        before = whole.get(name)
        if before is not None:
            part = replace(  # noqa: PLW2901 - the range so far
                part, start_offset=before.start_offset, size_bytes=before.size_bytes + part.size_bytes
            )
        remote = remotes[name]
        whole[name] = part if remote is None else replace(part, remote=remote.remote)
    tasks: list[list[OffsetRange]] = []
    size = 0
    for segment in whole.values():
        if not tasks or size + segment.size_bytes > _TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(segment)
        size += segment.size_bytes
    return [tuple(task) for task in tasks]


def _parse(given: Mapping[str, str]) -> tuple[SourceOptions, str, bool]:
    options = SourceOptions.parse(given, known=OFFSETS_OPTIONS)
    named = given_options(given)
    table = read_choice(named, "table", tuple(TABLES))
    topics = TABLES[table].topics
    asked = options.topics or tuple(topic for topic, _ in options.assign or ())
    for topic in asked:
        if topic not in topics:
            message = f"option table={table} reads {', '.join(topics)}, not {topic}"
            raise ValueError(message)
    return options, table, read_flag(named, "latest", default=False)


def _partitions(options: SourceOptions, table: str) -> list[PartitionLog]:
    topics = TABLES[table].topics
    if options.topics is not None or options.assign is not None:
        return list_partitions(options)
    if len(topics) == 1:
        return list_partitions(replace(options, topics=topics))
    found: list[PartitionLog] = []
    missing: FileNotFoundError | None = None
    for topic in topics:
        try:
            found += list_partitions(replace(options, topics=(topic,)))
        except FileNotFoundError as error:
            missing = missing or error
    if not found and missing is not None:
        raise missing
    return found


def _records(one: OffsetRange, options: SourceOptions) -> Iterator[CoordinatorRecord]:
    import pyarrow as pa

    outcome = _Outcomes(one)

    def open_at(start_offset: int) -> ArrowStream:
        return scan_stream(
            [(one.place, one.topic, one.partition, start_offset, one.end_offset, None)],
            columns=_COLUMNS,
            timestamp_unit="us",
            batch_rows=BATCH_ROWS,
            batch_bytes=BATCH_BYTES,
            check_crc=True,
            on_corrupt="raise" if options.fail_on_data_loss else "skip",
        )

    for batch in stream_range(one, options, open_at):
        key, value, offset, timestamp, producer, transactional = (
            (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
            for column in batch.columns
        )
        for row in zip(key, value, offset, timestamp, producer, transactional, strict=True):
            yield CoordinatorRecord(
                topic=one.topic,
                partition=one.partition,
                offset=row[2],
                timestamp_us=row[3],
                key=row[0],
                value=row[1],
                transaction=outcome.of(row[4], row[2]) if row[5] else None,
            )


class _Outcomes:
    """What became of the transactions in a range, by what the log says up to its end."""

    def __init__(self, one: OffsetRange) -> None:
        transactions = read_transactions(
            # The scan of the range raises, or reports what it leaves out.
            one.place,
            start_offset=one.start_offset,
            end_offset=one.end_offset,
            on_corrupt="skip",
        )
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, marker_offset in transactions.aborted:
            self._aborted.setdefault(producer_id, []).append((first_offset, marker_offset))
        self._open = {
            producer.producer_id: producer.current_txn_first_offset
            for producer in transactions.producers
            if producer.current_txn_first_offset is not None
        }

    def of(self, producer_id: int, offset: int) -> Outcome:
        start = self._open.get(producer_id)
        if start is not None and offset >= start:
            return "open"
        aborted = any(first <= offset <= marker for first, marker in self._aborted.get(producer_id, ()))
        return "aborted" if aborted else "committed"
