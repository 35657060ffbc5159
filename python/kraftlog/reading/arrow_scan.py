"""The streams of Arrow batches that a scan consists of, its splits, and what a query can leave out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from kraftlog._kraftlog import (
    ArrowBatch,
    ArrowStream,
    list_segments,
    log_end_offset,
    plan_splits,
    read_transactions,
    scan_stream,
)
from kraftlog.errors import CorruptRecordError
from kraftlog.reading.bounds import Bounds
from kraftlog.reading.facts import ScanReport, SkippedRange
from kraftlog.reading.remote_partition import RemotePartition
from kraftlog.reading.scan_options import OnCorrupt, ScanOptions, ScanSource

__all__ = ["ArrowScan", "ending_at"]

SPLIT_BYTES = 64 << 20


class ArrowScan:
    """Records of partitions as Arrow batches; the base of :class:`~kraftlog.Scan`, and all that query engines need.

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
        self._stream = self._open()

    def _open(self) -> ArrowStream:
        return _open_stream(self.sources, self.options)

    def replaced(self, sources: Sequence[ScanSource], options: ScanOptions) -> Self:
        """A scan of the same place with other ranges or options."""
        return type(self)(sources, options)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all segments of the partitions, whatever part of them is read."""
        return sum(size for source in self.sources for _, _, size in list_segments(source.path))

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
            skipped=tuple(SkippedRange(*fields) for fields in skipped),
        )

    def splits(self, count: int | None = None, *, split_bytes: int = SPLIT_BYTES) -> tuple[Self, ...]:
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
            raise ValueError("count and split_bytes must be at least 1")
        if count is not None:
            # Finer than wanted, so that the groups come out about equal.
            split_bytes = max(self.stored_bytes // (8 * count), 1)
        ranges = [part for source in self.sources for part in self._parts(source, split_bytes)]
        groups = _even_groups(ranges, count) if count is not None else _full_groups(ranges, split_bytes)
        return tuple(self.replaced(group, self.options) for group in groups)

    def _parts(self, source: ScanSource, split_bytes: int) -> Iterator[ScanSource]:
        if self.options.isolation_level == "read_committed":
            source = _settled(source, self.options.on_corrupt)
        try:
            log_end = log_end_offset(source.path)
        except CorruptRecordError:
            if self.options.on_corrupt == "raise":
                raise
            # The last split meets the damage, leaves it out and reports it.
            end_offset = source.end_offset
        else:
            end_offset = _earliest(source.end_offset, log_end)
        aborted = source.aborted
        for split in plan_splits(
            source.path, split_bytes=split_bytes, start_offset=source.start_offset, end_offset=end_offset
        ):
            first, end = split.start_offset, split.end_offset
            own = (
                None
                if aborted is None
                else tuple(transaction for transaction in aborted if transaction[2] >= first and transaction[1] < end)
            )
            path = source.path
            if isinstance(path, RemotePartition):
                path = path.part(split.segment_base_offset, split.position, split.size_bytes)
            yield replace(
                source, path=path, start_offset=first, end_offset=end, aborted=own, size_bytes=split.size_bytes
            )

    def narrowed(
        self,
        bounds: Bounds | None = None,
        *,
        partitions: Callable[[str, int], bool] | None = None,
        **options: Any,
    ) -> Self:
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
            return self.replaced((), replace(self.options, **options))
        bounds = bounds.within_64_bits()
        sources = (
            replace(
                self._ending_at(source, bounds.end_offset),
                start_offset=_latest(source.start_offset, bounds.start_offset),
            )
            for source in self.sources
            if partitions is None or partitions(source.topic, source.partition)
        )
        kept = [source for source in sources if source.end_offset is None or source.start_offset < source.end_offset]
        options.setdefault("from_timestamp", _latest(self.options.from_timestamp, bounds.from_timestamp))
        options.setdefault("to_timestamp", _earliest(self.options.to_timestamp, bounds.to_timestamp))
        return self.replaced(kept, replace(self.options, **options))

    def _ending_at(self, source: ScanSource, end_offset: int | None) -> ScanSource:
        return ending_at(source, end_offset, self.options)

    def __iter__(self) -> Iterator[ArrowBatch]:
        return iter(self._stream)

    def __arrow_c_schema__(self) -> Any:
        return self._stream.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._stream.__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sources, self.options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.sources)} ranges: {', '.join(self.column_names)}>"


def _open_stream(sources: Sequence[ScanSource], options: ScanOptions) -> ArrowStream:
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
        drop_behind=options.drop_behind,
        check_crc=options.check_crc,
        include_control=options.include_control,
        on_corrupt=options.on_corrupt,
    )


def ending_at(source: ScanSource, end_offset: int | None, options: ScanOptions) -> ScanSource:
    """The source without what is at ``end_offset`` or later; None for no bound.

    With read_committed, transactions are decided by all that the log holds now up to the end of ``source``: one that is
    open at ``end_offset`` and committed later counts as committed, and only one that has no marker ends the source.
    """
    if end_offset is None or (source.end_offset is not None and source.end_offset <= end_offset):
        return source
    if options.isolation_level == "read_committed":
        source = _settled(source, options.on_corrupt)
    return replace(source, end_offset=_earliest(source.end_offset, end_offset))


def _settled(source: ScanSource, on_corrupt: OnCorrupt) -> ScanSource:
    """The source up to its last stable offset, with the aborted transactions in it, as the log is now."""
    if source.aborted is not None:
        return source
    transactions = read_transactions(
        source.path, start_offset=source.start_offset, end_offset=source.end_offset, on_corrupt=on_corrupt
    )
    end_offset = _earliest(source.end_offset, transactions.last_stable_offset)
    return replace(source, end_offset=end_offset, aborted=tuple(transactions.aborted))


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
