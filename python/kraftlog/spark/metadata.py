"""``spark.read.format("kraftlog-metadata")``: the history of a cluster's metadata as tables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kraftlog._kraftlog import ArrowStream, decode_batches, list_segments, scan_stream
from kraftlog.errors import CorruptRecordError, LogError
from kraftlog.spark.data_loss import DataLoss, report_losses
from kraftlog.spark.frame import FrameColumns, frame_options, record_batches
from kraftlog.spark.metadata_rows import MetadataEntry, MetadataHistory, Row
from kraftlog.spark.metadata_tables import METADATA_TABLES, latest_rows
from kraftlog.spark.option_values import given_options, read_choice, read_flag
from kraftlog.spark.options import SELECT_OPTIONS, SourceOptions
from kraftlog.spark.partition_log import OffsetRange, list_partitions
from kraftlog.spark.plan import resolve_offsets
from kraftlog.spark.range_reader import BATCH_BYTES, BATCH_ROWS, stream_range
from kraftlog.vocabulary import CLUSTER_METADATA_DIRECTORY, CLUSTER_METADATA_TOPIC
from kraftlog.wire.messages.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from kraftlog.wire.records import decode_control_record

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["METADATA_OPTIONS", "KraftlogMetadataDataSource", "MetadataPlan", "plan_metadata", "read_metadata"]

_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

# There is one partition, read by one task, as each record is told by those before it. Its high watermark is in no file.
METADATA_OPTIONS = (
    "table",
    "source",
    "latest",
    *frame_options(
        *SELECT_OPTIONS,
        "endOffset",
        "kafka.isolation.level",
        "splitBytes",
        "minPartitions",
        "maxRecordsPerPartition",
        "storageOptions",
        "kraftlog.fs",
    ),
)
_COLUMNS = ["key", "value", "offset", "timestamp", "leader_epoch", "is_control"]

Source = Literal["both", "log", "snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A ``.checkpoint`` file: the state before ``end_offset``, of leader epoch ``epoch``."""

    path: str
    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class MetadataPlan:
    """What is read, in order.

    Args:
        snapshots: Each a state of its own.
        log: What is replayed after them; None for nothing.
        first_offset: Rows before are left out: they are replayed only.
        end_offset: Exclusive end of the rows.
    """

    snapshots: tuple[Snapshot, ...]
    log: OffsetRange | None
    first_offset: int
    end_offset: int


class MetadataPartition(InputPartition):  # type: ignore[misc]  # pyspark is not typed
    """What the task reads."""

    def __init__(self, plan: MetadataPlan) -> None:
        super().__init__(plan)
        self.plan = plan


class KraftlogMetadataDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed
    """What is in ``__cluster_metadata`` and its snapshots, over time.

    The option ``table`` says what: ``records`` (each with its JSON), ``topics``, ``partitions``, ``configs``,
    ``brokers``, ``voters``, ``leader_changes`` or ``features``, each a row for a change with the state after it. With
    ``latest=true`` only the state at the end.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return "kraftlog-metadata"

    def schema(self) -> str:
        """The columns of the table, or those of the option ``columns``."""
        options, table, _, _ = _parse(self.options)
        return FrameColumns(METADATA_TABLES[table].types).ddl(options.columns)

    def reader(self, schema: StructType) -> KraftlogMetadataReader:
        """A reader of the columns of ``schema``, which may be any of the table in any order.

        Raises:
            ValueError: A table or column that does not exist, or a column of another type.
        """
        options, table, source, latest = _parse(self.options)
        columns = FrameColumns(METADATA_TABLES[table].types).check(schema, options.columns)
        return KraftlogMetadataReader(schema, columns, options, table, source, latest=latest)


class KraftlogMetadataReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed
    """Finds the files on the driver, and replays them in one task."""

    def __init__(
        self,
        schema: Any,
        columns: Sequence[str],
        options: SourceOptions,
        table: str,
        source: Source,
        *,
        latest: bool,
    ) -> None:
        self._schema = schema
        self._columns = list(columns)
        self._options = options
        self._table = table
        self._source: Source = source
        self._latest = latest

    def partitions(self) -> Sequence[InputPartition]:
        """One; runs on the driver."""
        return [MetadataPartition(plan_metadata(self._options, self._source, self._table))]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of the task."""
        if isinstance(partition, MetadataPartition):
            rows = read_metadata(partition.plan, self._options, self._table)
            if self._latest:
                rows = latest_rows(METADATA_TABLES[self._table], rows)
            yield from record_batches(rows, self._columns, self._schema)


def plan_metadata(options: SourceOptions, source: Source, table: str = "records") -> MetadataPlan:
    """The files of the metadata partition that are read.

    With ``both``, the log and before it the oldest snapshot that the log goes on from: a log that starts at 0 needs
    none but that of a new cluster, whose voters are in no record of the log. Nothing is told twice.

    Args:
        options: The path and the bounds on offsets.
        source: ``log``, ``snapshot`` (all of them, each a whole state) or ``both``.
        table: A table that is a replay needs a log from its start.

    Raises:
        FileNotFoundError: There is no metadata at the path.
        LogError: The log does not reach back to the start, and no snapshot is early enough.
        ValueError, OffsetOutOfRangeError: As :func:`kraftlog.spark.plan.resolve_offsets`.
    """
    path = Path(options.paths[0])
    directory = _directory(path)
    snapshots = _snapshots(directory)
    log, first_offset, end_offset = _log_range(options, directory)
    if log is None and not snapshots:
        message = f"{directory} has neither segments nor snapshots of metadata"
        raise FileNotFoundError(message)
    if source == "snapshot":
        return MetadataPlan(tuple(snapshots), None, first_offset, end_offset)
    if source == "log":
        if log is not None and log.start_offset > 0 and table != "records":
            message = (
                f"{directory}: the log starts at offset {log.start_offset}, and table={table} needs what was before; "
                "source=both begins with a snapshot"
            )
            raise LogError(message)
        return MetadataPlan((), log, first_offset, end_offset)
    if log is None:
        return MetadataPlan(tuple(snapshots[-1:]), None, first_offset, end_offset)
    start = log.start_offset
    base = next((snapshot for snapshot in snapshots if snapshot.end_offset >= start), None)
    if start == 0 and (base is None or base.end_offset > 0):
        return MetadataPlan((), log, first_offset, end_offset)
    if base is None:
        message = f"{directory}: the log starts at offset {start}, and no snapshot covers the records before it"
        raise LogError(message)
    rest = replace(log, start_offset=base.end_offset) if base.end_offset < log.end_offset else None
    return MetadataPlan((base,), rest, first_offset, end_offset)


def read_metadata(plan: MetadataPlan, options: SourceOptions, table: str) -> Iterator[Row]:
    """The rows of a table in the order of the records.

    Raises:
        CorruptRecordError: Bytes or records that are damaged; names file and position or offset.
    """
    losses: list[DataLoss] = []

    def leave_out(entry: MetadataEntry, reason: str) -> None:
        losses.append(
            DataLoss(
                topic=CLUSTER_METADATA_TOPIC,
                partition=0,
                start_offset=entry.offset,
                end_offset=entry.offset + 1,
                path=entry.file,
                reason=reason,
            )
        )

    on_bad = None if options.fail_on_data_loss else leave_out
    history = MetadataHistory(replays=table != "records", on_bad=on_bad)
    for snapshot in plan.snapshots:
        history.restart()
        yield from _rows(history, _snapshot_entries(snapshot), plan, table)
    if plan.log is not None:
        yield from _rows(history, _log_entries(plan.log, options), plan, table)
    report_losses(options, losses)


def _rows(history: MetadataHistory, entries: Iterable[MetadataEntry], plan: MetadataPlan, table: str) -> Iterator[Row]:
    for name, row in history.changes(entries):
        if name == table and plan.first_offset <= row["offset"] < plan.end_offset:
            yield row


def _parse(given: Mapping[str, str]) -> tuple[SourceOptions, str, Source, bool]:
    options = SourceOptions.parse(given, known=METADATA_OPTIONS)
    named = given_options(given)
    if len(options.paths) > 1:
        message = f"options path and paths: the metadata of one node is read, not of {', '.join(options.paths)}"
        raise ValueError(message)
    if options.paths and "://" in options.paths[0]:
        message = f"options path and paths: metadata is read from local directories, not from {options.paths[0]}"
        raise ValueError(message)
    table = read_choice(named, "table", tuple(METADATA_TABLES))
    source = read_choice(named, "source", ("both", "log", "snapshot"))
    latest = read_flag(named, "latest", default=False)
    if latest and not METADATA_TABLES[table].identity:
        message = f"option latest is for tables that have a state, not for table={table}"
        raise ValueError(message)
    if latest and source == "snapshot":
        raise ValueError("option latest needs the log, or the newest snapshot and the log: source is both or log")
    return options, table, "log" if source == "log" else "snapshot" if source == "snapshot" else "both", latest


def _directory(path: Path) -> Path:
    if not path.is_dir():
        message = f"no directory {path}"
        raise FileNotFoundError(message)
    below = path / CLUSTER_METADATA_DIRECTORY
    if below.is_dir():
        return below
    if path.resolve().name == CLUSTER_METADATA_DIRECTORY:
        return path
    message = f"no {CLUSTER_METADATA_DIRECTORY} in {path}"
    raise FileNotFoundError(message)


def _snapshots(directory: Path) -> list[Snapshot]:
    found = [
        Snapshot(os.path.abspath(entry), int(name[1]), int(name[2]))
        for entry in directory.iterdir()
        if (name := _CHECKPOINT.fullmatch(entry.name))
    ]
    return sorted(found, key=lambda one: (one.end_offset, one.epoch))


def _log_range(options: SourceOptions, directory: Path) -> tuple[OffsetRange | None, int, int]:
    """All of the log, and the offsets whose rows are wanted."""
    everything = (-1, 2**63 - 1)
    if not list_segments(directory):
        return None, *everything
    partitions = list_partitions(replace(options, topics=(CLUSTER_METADATA_TOPIC,), end="logEnd"))
    (one,) = partitions
    start, end = resolve_offsets(options, partitions)[one.topic, one.partition]
    is_bounded = options.starting.kind != "earliest"
    whole = OffsetRange(one.path, one.topic, one.partition, one.log_start_offset, end)
    if one.log_start_offset >= end:
        return None, *everything
    return whole, start if is_bounded else -1, end if options.ending.kind != "latest" else everything[1]


def _snapshot_entries(snapshot: Snapshot) -> Iterator[MetadataEntry]:
    timestamp_us: int | None = None
    is_whole = False
    try:
        data = Path(snapshot.path).read_bytes()
        batch = decode_batches(data, columns=["key", "value", "is_control"], include_control=True)
    except CorruptRecordError as error:
        message = f"{snapshot.path}: {error}"
        raise CorruptRecordError(message) from error
    for key, value, is_control in _values(batch):
        if is_control:
            _, control = decode_control_record(key or b"", value or b"")
            if isinstance(control, SnapshotHeaderRecord):
                timestamp_us = control.last_contained_log_timestamp * 1000
            is_whole = isinstance(control, SnapshotFooterRecord)
        yield MetadataEntry(
            offset=snapshot.end_offset - 1,
            epoch=snapshot.epoch,
            timestamp_us=timestamp_us,
            source="snapshot",
            file=snapshot.path,
            is_control=is_control,
            key=key,
            value=value,
        )
    if not is_whole:
        message = f"{snapshot.path}: the snapshot has no footer at its end"
        raise CorruptRecordError(message)


def _log_entries(log: OffsetRange, options: SourceOptions) -> Iterator[MetadataEntry]:
    def open_at(start_offset: int) -> ArrowStream:
        return scan_stream(
            [(log.path, log.topic, log.partition, start_offset, log.end_offset, None)],
            columns=_COLUMNS,
            timestamp_unit="us",
            batch_rows=BATCH_ROWS,
            batch_bytes=BATCH_BYTES,
            check_crc=True,
            include_control=True,
            on_corrupt="raise" if options.fail_on_data_loss else "skip",
        )

    for batch in stream_range(log, options, open_at):
        for key, value, offset, timestamp_us, epoch, is_control in _values(batch):
            yield MetadataEntry(
                offset=offset,
                epoch=epoch,
                timestamp_us=timestamp_us,
                source="log",
                file=log.path,
                is_control=is_control,
                key=key,
                value=value,
            )


def _values(batch: Any) -> Iterator[tuple[Any, ...]]:
    import pyarrow as pa

    rows = pa.record_batch(batch)
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns]
    return zip(*(column.to_pylist() for column in columns), strict=True)
