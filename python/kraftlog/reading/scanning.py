"""A scan: what is read, how, and the streams of Arrow batches that come of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kraftlog._kraftlog import (
    ArrowBatch,
    ArrowStream,
    list_segments,
    log_end_offset,
    plan_splits,
    read_transactions,
    scan_stream,
)
from kraftlog.reading.facts import ScanReport, SkippedRange
from kraftlog.reading.remote_partition import RemotePartition

if TYPE_CHECKING:
    import datafusion
    import duckdb
    import polars as pl

    from kraftlog.reading.arrow_dataset import LogDataset

__all__ = ["Bounds", "Scan", "ScanOptions", "ScanSource", "ending_at", "milliseconds"]

Timestamp: TypeAlias = int | dt.datetime
BinaryType: TypeAlias = Literal["binary", "large_binary", "binary_view"]
TimestampUnit: TypeAlias = Literal["ms", "us"]
IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
OnCorrupt: TypeAlias = Literal["raise", "skip"]
End: TypeAlias = Literal["log_end", "high_watermark"]

SPLIT_BYTES = 64 << 20
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers")


@dataclass(frozen=True, slots=True)
class ScanSource:
    """Offsets of one partition's directory, from ``start_offset`` up to, without, ``end_offset``.

    Args:
        path: The directory, or a :class:`~kraftlog.reading.RemotePartition`.
        topic: Value of the topic column.
        partition: Value of the partition column.
        start_offset: First offset, inclusive.
        end_offset: Exclusive; None for what is there when a pass begins.
        aborted: Aborted transactions of the range as (producer id, first offset, offset of the marker) where a split
            of a read_committed scan knows them; ``end_offset`` is no later than the last stable offset then.
        size_bytes: About how many bytes of the segment the range takes; 0 when nothing was planned.
    """

    path: str | RemotePartition
    topic: str
    partition: int
    start_offset: int
    end_offset: int | None = None
    aborted: tuple[tuple[int, int, int], ...] | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """How to scan; :meth:`kraftlog.Log.scan` explains each."""

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    from_timestamp: int | None = None
    to_timestamp: int | None = None
    isolation_level: IsolationLevel = "read_uncommitted"
    binary_type: BinaryType = "binary"
    timestamp_unit: TimestampUnit = "ms"
    topic_dictionary: bool = False
    empty_headers_null: bool = False
    batch_rows: int = 16384
    batch_bytes: int = 8 << 20
    threads: int = 1
    memory_map: bool = False
    drop_behind: bool = False
    check_crc: bool | None = None
    include_control: bool = False
    on_corrupt: OnCorrupt = "raise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the filter of a query says of offsets and timestamps, for :meth:`Scan.narrowed`; None for nothing.

    Args:
        start_offset: Inclusive.
        end_offset: Exclusive.
        from_timestamp: Inclusive, milliseconds.
        to_timestamp: Exclusive, milliseconds.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    from_timestamp: int | None = None
    to_timestamp: int | None = None

    @property
    def is_beyond(self) -> bool:
        """Whether they leave nothing, since no record has so large or so small a number."""
        firsts = (self.start_offset, self.from_timestamp)
        return any(first is not None and first > _INT64_MAX for first in firsts) or (
            self.to_timestamp is not None and self.to_timestamp < _INT64_MIN
        )

    def within_64_bits(self) -> Bounds:
        """The same bounds without those that every record keeps, or that have no place in 64 bits."""
        start, end = self.start_offset, self.end_offset
        first, last = self.from_timestamp, self.to_timestamp
        return Bounds(
            start_offset=None if start is None else max(start, 0),
            end_offset=None if end is None or end > _INT64_MAX else max(end, 0),
            from_timestamp=None if first is None or first < _INT64_MIN else first,
            to_timestamp=None if last is None or last > _INT64_MAX else last,
        )


class Scan:
    """Records of partitions as Arrow batches: iterate it, or hand it to an Arrow library, as often as you like.

    Each consumer gets a pass of its own, which sees what the files hold when it begins. A scan can be pickled; its
    schema is known without reading anything.

    Args:
        sources: Which offsets of which directories, read one after the other.
        options: How.

    Raises:
        ValueError: A column that does not exist, or a bound below 1.
    """

    __slots__ = ("_stream", "options", "sources")

    def __init__(self, sources: Sequence[ScanSource], options: ScanOptions) -> None:
        self.sources = tuple(sources)
        self.options = options
        self._stream = _open_stream(self.sources, options)

    @property
    def stream(self) -> ArrowStream:
        """The stream of the extension that it iterates."""
        return self._stream

    @property
    def column_names(self) -> list[str]:
        """Names of the columns in order."""
        return self._stream.column_names

    @property
    def size_bytes(self) -> int:
        """About how many bytes of segments a split reads; 0 for a scan that is no split."""
        return sum(source.size_bytes for source in self.sources)

    def report(self) -> ScanReport:
        """Counters of the pass that was begun last, also while it runs."""
        bytes_read, segments, batches, batches_skipped, rows, skipped_count, skipped = self._stream.report()
        return ScanReport(
            bytes_read=bytes_read,
            segments=segments,
            batches=batches,
            batches_skipped=batches_skipped,
            rows=rows,
            skipped_count=skipped_count,
            skipped=tuple(SkippedRange(*one) for one in skipped),
        )

    def splits(self, count: int | None = None, *, split_bytes: int = SPLIT_BYTES) -> tuple[Scan, ...]:
        """Scans that together give each row of this one once, in order: for the workers of a cluster.

        Cuts lie at the batches that ``.index`` names, or at batches found by their headers where there is no index. A
        split holds offsets, so that it stays right when compaction replaces a file before it is read; its end is the
        end of the log now, or the last stable offset now with read_committed.

        Args:
            count: At most so many, of about equal bytes.
            split_bytes: About how many bytes each reads when ``count`` is None; smaller ranges are put together.

        Raises:
            ValueError: ``count`` or ``split_bytes`` is below 1.
        """
        if split_bytes < 1 or (count is not None and count < 1):
            raise ValueError("count and split_bytes are at least 1")
        if count is not None:
            total = sum(size for source in self.sources for _, _, size in list_segments(source.path))
            # Finer than wanted, so that the groups come out about equal.
            split_bytes = max(total // (8 * count), 1)
        ranges = [part for source in self.sources for part in self._parts(source, split_bytes)]
        groups = _even_groups(ranges, count) if count is not None else _full_groups(ranges, split_bytes)
        return tuple(Scan(group, self.options) for group in groups)

    def _parts(self, source: ScanSource, split_bytes: int) -> Iterator[ScanSource]:
        if self.options.isolation_level == "read_committed":
            source = _settled(source)
        log_end = log_end_offset(source.path)
        end_offset = log_end if source.end_offset is None else min(source.end_offset, log_end)
        aborted = source.aborted
        for base_offset, first, end, position, size_bytes in plan_splits(
            source.path, split_bytes=split_bytes, start_offset=source.start_offset, end_offset=end_offset
        ):
            own = None if aborted is None else tuple(one for one in aborted if one[2] >= first and one[1] < end)
            path = source.path
            if isinstance(path, RemotePartition):
                path = path.part(base_offset, position, size_bytes)
            yield replace(source, path=path, start_offset=first, end_offset=end, aborted=own, size_bytes=size_bytes)

    def narrowed(
        self,
        bounds: Bounds | None = None,
        *,
        partitions: Callable[[str, int], bool] | None = None,
        **options: Any,
    ) -> Scan:
        """This scan with less in it: what an engine's query can do without.

        Args:
            bounds: Offsets and timestamps, beside those of the scan.
            partitions: Whether to read a partition, by topic and number; None for all.
            options: Fields of :class:`ScanOptions` to replace, such as ``columns``.

        Raises:
            ValueError: A column that does not exist, or a bound below 1.
        """
        bounds = bounds or Bounds()
        if bounds.is_beyond:
            return Scan((), replace(self.options, **options))
        bounds = bounds.within_64_bits()
        sources = (
            replace(
                ending_at(source, bounds.end_offset, self.options.isolation_level),
                start_offset=_latest(source.start_offset, bounds.start_offset),
            )
            for source in self.sources
            if partitions is None or partitions(source.topic, source.partition)
        )
        kept = [source for source in sources if source.end_offset is None or source.start_offset < source.end_offset]
        options.setdefault("from_timestamp", _latest(self.options.from_timestamp, bounds.from_timestamp))
        options.setdefault("to_timestamp", _earliest(self.options.to_timestamp, bounds.to_timestamp))
        return Scan(kept, replace(self.options, **options))

    def dataset(self, *, splits: int | None = None) -> LogDataset:
        """The scan as a :class:`pyarrow.dataset.Dataset`, to which engines hand down columns and filters.

        Args:
            splits: How many fragments there are at most; one for each core when None.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
        """
        from kraftlog.reading.arrow_dataset import LogDataset

        return LogDataset(self, splits=splits)

    def polars(self, *, threads: int | None = None) -> pl.LazyFrame:
        """The scan as a Polars LazyFrame, which reads what a query needs.

        Columns, the row limit, and what a filter says of offset, timestamp, topic and partition are handed down.

        Args:
            threads: How many decode; those of the scan if more than one, else as many as Polars has, when None.

        Raises:
            ModuleNotFoundError: polars is not installed.
        """
        from kraftlog.reading.polars_frame import lazy_frame

        return lazy_frame(self, threads=threads)

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection, name: str | None = None, *, splits: int | None = None
    ) -> duckdb.DuckDBPyRelation:
        """The scan as a DuckDB relation that DuckDB's own threads read; it holds what is in the logs now.

        Args:
            connection: Where it can be queried.
            name: Of a temporary view to make of it, in place of one with that name.
            splits: How many streams at most; two for each thread of DuckDB, of no less than 4 MiB, when None.

        Raises:
            ModuleNotFoundError: duckdb or pyarrow is not installed.
        """
        from kraftlog.reading.duckdb_relation import relation

        return relation(self, connection, name, splits=splits)

    def datafusion(
        self, context: datafusion.SessionContext, name: str, *, splits: int | None = None
    ) -> datafusion.DataFrame:
        """The scan as a table of a DataFusion context, read by a stream for each partition of a plan.

        Args:
            context: Where it can be queried.
            name: Of the table, in place of one with that name.
            splits: How many streams at most; one for each core when None.

        Raises:
            ModuleNotFoundError: datafusion or pyarrow is not installed.
        """
        from kraftlog.reading.datafusion_table import table

        return table(self, context, name, splits=splits)

    def __iter__(self) -> Iterator[ArrowBatch]:
        return iter(self._stream)

    def __arrow_c_schema__(self) -> Any:
        return self._stream.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._stream.__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[type[Scan], tuple[tuple[ScanSource, ...], ScanOptions]]:
        return type(self), (self.sources, self.options)

    def __repr__(self) -> str:
        return f"<Scan of {len(self.sources)} ranges: {', '.join(self.column_names)}>"


def milliseconds(timestamp: Timestamp | None) -> int | None:
    """Milliseconds since 1970.

    Raises:
        ValueError: A datetime without a time zone, or a number that is no 64-bit integer.
    """
    if not isinstance(timestamp, dt.datetime):
        if timestamp is not None and not -(2**63) <= timestamp < 2**63:
            message = f"timestamp {timestamp} does not fit into 64 bits"
            raise ValueError(message)
        return timestamp
    if timestamp.tzinfo is None:
        message = "a datetime has to have a time zone"
        raise ValueError(message)
    since_epoch = timestamp - dt.datetime.fromtimestamp(0, dt.UTC)
    return since_epoch // dt.timedelta(milliseconds=1)


def _open_stream(sources: Sequence[ScanSource], options: ScanOptions) -> ArrowStream:
    # Named only where it is wanted: an extension that was built before the option will do otherwise.
    further: Any = {"drop_behind": True} if options.drop_behind else {}
    return scan_stream(
        [
            (source.path, source.topic, source.partition, source.start_offset, source.end_offset, source.aborted)
            for source in sources
        ],
        columns=options.columns,
        from_timestamp=options.from_timestamp,
        to_timestamp=options.to_timestamp,
        isolation_level=options.isolation_level,
        binary_type=options.binary_type,
        timestamp_unit=options.timestamp_unit,
        topic_dictionary=options.topic_dictionary,
        empty_headers_null=options.empty_headers_null,
        batch_rows=options.batch_rows,
        batch_bytes=options.batch_bytes,
        threads=options.threads,
        memory_map=options.memory_map,
        **further,
        check_crc=options.check_crc is not False,
        trust_headers=options.check_crc is not True,
        include_control=options.include_control,
        on_corrupt=options.on_corrupt,
    )


def ending_at(source: ScanSource, end_offset: int | None, isolation_level: IsolationLevel) -> ScanSource:
    """The source without what is at ``end_offset`` or later; None for no bound.

    With read_committed, transactions are decided by all that the log holds now up to the end of ``source``: one that is
    open at ``end_offset`` and committed later counts as committed, and only one that has no marker ends the source.
    """
    if end_offset is None or (source.end_offset is not None and source.end_offset <= end_offset):
        return source
    if isolation_level == "read_committed":
        source = _settled(source)
    return replace(source, end_offset=_earliest(source.end_offset, end_offset))


def _settled(source: ScanSource) -> ScanSource:
    """The source up to its last stable offset, with the aborted transactions in it, as the log is now."""
    if source.aborted is not None:
        return source
    last_stable_offset, _, aborted, _ = read_transactions(
        source.path, start_offset=source.start_offset, end_offset=source.end_offset
    )
    end_offset = _earliest(source.end_offset, last_stable_offset)
    return replace(source, end_offset=end_offset, aborted=tuple(aborted))


def _latest(bound: Any, other: int | None) -> Any:
    return bound if other is None else other if bound is None else max(bound, other)


def _earliest(bound: int | None, other: int | None) -> int | None:
    return bound if other is None else other if bound is None else min(bound, other)


def _full_groups(ranges: Sequence[ScanSource], split_bytes: int) -> list[list[ScanSource]]:
    groups: list[list[ScanSource]] = []
    size = 0
    for part in ranges:
        if not groups or size + part.size_bytes > split_bytes:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += part.size_bytes
    return groups


def _even_groups(ranges: Sequence[ScanSource], count: int) -> list[list[ScanSource]]:
    total = max(sum(part.size_bytes for part in ranges), 1)
    groups: list[list[ScanSource]] = [[] for _ in range(count)]
    before = 0
    for part in ranges:
        # A range goes where its middle lies.
        middle = before + part.size_bytes // 2
        groups[min(middle * count // total, count - 1)].append(part)
        before += part.size_bytes
    return [group for group in groups if group]
