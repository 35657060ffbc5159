"""``kraftlog.read``: what a live cluster holds between two bounds, as a scan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeAlias, cast

from kraftlog._kraftlog import ArrowBatch, ArrowStream, batch_stream
from kraftlog.config_input import ConfigInput, config_properties
from kraftlog.errors import OffsetOutOfRangeError
from kraftlog.live.cluster_pass import EARLIEST, ClusterPass
from kraftlog.reading import Scan, ScanReport
from kraftlog.reading.scan_options import (
    DEFAULT_COLUMNS,
    BinaryType,
    IsolationLevel,
    ScanOptions,
    ScanSource,
    Timestamp,
    TimestampUnit,
    milliseconds,
)
from kraftlog.types import TopicPartition
from kraftlog.vocabulary import SYSTEM_TOPICS

__all__ = ["ClusterOffsets", "ClusterScan", "read"]

ClusterOffsets: TypeAlias = int | Mapping[int, int] | Mapping[tuple[str, int], int]

# Brokers do not name the bytes of a range of offsets; only the number of splits depends on it.
RECORD_BYTES_ESTIMATE = 256


class ClusterScan(Scan):
    """Records of a live cluster as Arrow batches: iterate it, or hand it to an Arrow library, as often as you like.

    Each pass has connections of its own and ends where the cluster ended when the pass began, or at ``to_offset``. A
    scan can be pickled, with its settings: passwords too.

    Args:
        sources: Which offsets of which partitions, read one after the other.
        options: How. One thread decodes each pass; ``splits`` reads side by side.
        settings: Kafka's dotted keys of a consumer.

    Raises:
        ValueError: A column that does not exist, or a bound below 1.
    """

    __slots__ = ("_counts", "settings")

    def __init__(self, sources: Sequence[ScanSource], options: ScanOptions, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self._counts = [0, 0]
        super().__init__(sources, options)

    def _open(self) -> ArrowStream:
        options = self.options
        return batch_stream(
            self._pass,
            columns=options.columns,
            binary_type=options.binary_type,
            timestamp_unit=options.timestamp_unit,
            topic_dictionary=options.topic_dictionary,
            empty_headers_null=options.empty_headers_null,
        )

    def _pass(
        self, binary_type: BinaryType | None, timestamp_unit: TimestampUnit | None, topic_dictionary: bool | None
    ) -> Iterator[ArrowBatch]:
        """A pass whose rows have the types that a reader of the Arrow interface asks for."""
        wanted = {"binary_type": binary_type, "timestamp_unit": timestamp_unit, "topic_dictionary": topic_dictionary}
        given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        return self._batches(replace(self.options, **given))

    def _batches(self, options: ScanOptions) -> Iterator[ArrowBatch]:
        counts = self._counts = [0, 0]
        if not self.sources:
            return
        with ClusterPass(self.settings, options) as running:
            for batch in running.batches(running.bounded(self.sources)):
                counts[0] += 1
                counts[1] += len(batch)
                yield batch

    def __iter__(self) -> Iterator[ArrowBatch]:
        return self._batches(self.options)

    def replaced(self, sources: Sequence[ScanSource], options: ScanOptions) -> Self:
        """A scan of the same cluster with other ranges or options."""
        return type(self)(sources, options, self.settings)

    def report(self) -> ScanReport:
        """Arrow batches and rows of the pass that was begun last, also while it runs; a cluster names no files."""
        batches, rows = self._counts
        return ScanReport(
            bytes_read=0, segments=0, batches=batches, batches_skipped=0, rows=rows, skipped_count=0, skipped=()
        )

    @property
    def stored_bytes(self) -> int:
        """An estimate by the number of offsets."""
        return sum(_count(source) for source in self._resolved()) * RECORD_BYTES_ESTIMATE

    def splits(self, count: int | None = None, *, split_bytes: int = 64 << 20) -> tuple[Self, ...]:
        """Scans that together give each row of this one once, in order: ranges of about as many offsets.

        The ranges are those between the offsets that the cluster has now.

        Args:
            count: At most so many.
            split_bytes: About how many bytes each reads when ``count`` is None, at 256 bytes per offset.

        Raises:
            ValueError: ``count`` or ``split_bytes`` is below 1.
        """
        if split_bytes < 1 or (count is not None and count < 1):
            raise ValueError("count and split_bytes must be at least 1")
        sources = self._resolved()
        total = sum(map(_count, sources))
        if not total:
            return ()
        width = max(split_bytes // RECORD_BYTES_ESTIMATE, 1) if count is None else -(-total // count)
        groups: list[list[ScanSource]] = [[]]
        room = width
        for source in sources:
            start = source.start_offset
            end_offset = start + _count(source)
            while start < end_offset:
                if not room:
                    groups.append([])
                    room = width
                end = min(end_offset, start + room)
                size = (end - start) * RECORD_BYTES_ESTIMATE
                groups[-1].append(replace(source, start_offset=start, end_offset=end, size_bytes=size))
                room -= end - start
                start = end
        return tuple(self.replaced(group, self.options) for group in groups)

    def _resolved(self) -> list[ScanSource]:
        if not self.sources:
            return []
        with ClusterPass(self.settings, self.options) as running:
            return running.bounded(self.sources)

    def _ending_at(self, source: ScanSource, end_offset: int | None) -> ScanSource:
        # With read_committed the leader names the aborted transactions with each answer, and each pass ends at the
        # last stable offset at the latest: no source has to know them before.
        if end_offset is None or (source.end_offset is not None and source.end_offset <= end_offset):
            return source
        return replace(source, end_offset=end_offset)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sources, self.options, self.settings)


def _count(source: ScanSource) -> int:
    return max((source.end_offset or 0) - source.start_offset, 0)


def read(
    bootstrap_servers: str,
    topics: str | Sequence[str] | None = None,
    *,
    partitions: Sequence[int | tuple[str, int]] | None = None,
    from_offset: ClusterOffsets | None = None,
    to_offset: ClusterOffsets | None = None,
    from_timestamp: Timestamp | None = None,
    to_timestamp: Timestamp | None = None,
    columns: Sequence[str] | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    binary_type: BinaryType = "binary",
    timestamp_unit: TimestampUnit = "ms",
    topic_dictionary: bool = False,
    batch_rows: int = 16384,
    batch_bytes: int = 8 << 20,
    check_crc: bool = True,
    config: Mapping[str, ConfigInput] | None = None,
) -> ClusterScan:
    """What a live cluster holds between two bounds, with the interface of :func:`kraftlog.scan`.

    Args:
        bootstrap_servers: Addresses, host:port separated by commas.
        topics: Only these topics; all but the internal ones when None.
        partitions: Only these: numbers, which hold for each topic, or pairs of topic and number.
        from_offset: First offset, inclusive: one for all partitions, where one that starts later is read from its
            start; or a mapping from number, or pair of topic and number, to an offset that has to be there.
        to_offset: End offset, exclusive, in the same forms; each pass ends at the high watermark at the latest, with
            read_committed at the last stable offset.
        from_timestamp: Least record timestamp, inclusive: milliseconds since 1970 UTC, or a datetime with a time zone.
        to_timestamp: End of record timestamps, exclusive, in the same units.
        columns: Names of the columns, in order; those of :func:`kraftlog.scan` when None.
        isolation_level: ``read_committed`` leaves out aborted transactions and all from the first open one on.
        binary_type: Arrow type of key and value: ``binary``, ``large_binary`` or ``binary_view``.
        timestamp_unit: Unit of the timestamp column: ``ms`` or ``us``.
        topic_dictionary: Whether the topic is a dictionary column.
        batch_rows: Most rows of an Arrow batch, at least 1.
        batch_bytes: Most bytes of keys, values and headers in an Arrow batch; a larger record gets its own batch.
        check_crc: Whether the checksum of every batch is verified.
        config: More of Kafka's keys of a consumer, such as ``security.protocol`` or ``client.rack``.

    Raises:
        ClientConfigError: A setting is unknown or has no such value.
        KafkaError: A topic does not exist or may not be read.
        OffsetOutOfRangeError: A mapping names an offset that the partition does not have.
        TimeoutError: No broker answered.
        ValueError: A partition that does not exist, or a mapping that names one that is not read.
    """
    settings = {**config_properties(config, {}), "bootstrap.servers": bootstrap_servers}
    options = ScanOptions(
        columns=DEFAULT_COLUMNS if columns is None else tuple([columns] if isinstance(columns, str) else columns),
        from_timestamp=milliseconds(from_timestamp),
        to_timestamp=milliseconds(to_timestamp),
        isolation_level=isolation_level,
        binary_type=binary_type,
        timestamp_unit=timestamp_unit,
        topic_dictionary=topic_dictionary,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        check_crc=check_crc,
    )
    wanted = [topics] if isinstance(topics, str) else topics
    with ClusterPass(settings, options) as running:
        names = _chosen(_names(running, wanted), partitions)
        for offsets in (from_offset, to_offset):
            _check_names(offsets, names)
        starts = running.call(lambda consumer: consumer.beginning_offsets(names)) if from_offset is not None else {}
        ends = running.call(lambda consumer: consumer.end_offsets(names)) if isinstance(from_offset, Mapping) else {}
    sources = []
    for name in names:
        start = _offset_of(from_offset, name)
        if start is not None:
            if isinstance(from_offset, Mapping) and not starts[name] <= start <= ends[name]:
                message = f"{name}: from_offset {start} is not between {starts[name]} and {ends[name]}"
                raise OffsetOutOfRangeError(message)
            start = max(start, starts[name])
        sources.append(
            ScanSource(
                bootstrap_servers,
                name.topic,
                name.partition,
                EARLIEST if start is None else start,
                _offset_of(to_offset, name),
            )
        )
    return ClusterScan(sources, options, settings)


def _names(running: ClusterPass, topics: Sequence[str] | None) -> list[TopicPartition]:
    if topics is not None:
        found = [
            running.call(lambda consumer, topic=topic: consumer.partitions_for(topic))  # type: ignore[misc]
            for topic in sorted(set(topics))
        ]
        return [name for names in found for name in names]
    listed = running.call(lambda consumer: consumer.list_topics())
    return [
        TopicPartition(topic, number)
        for topic, numbers in sorted(listed.items())
        if topic not in SYSTEM_TOPICS
        for number in numbers
    ]


def _chosen(
    names: Sequence[TopicPartition], partitions: Sequence[int | tuple[str, int]] | None
) -> list[TopicPartition]:
    if partitions is None:
        return list(names)
    wanted = set(partitions)
    chosen = [name for name in names if name.partition in wanted or (name.topic, name.partition) in wanted]
    missing = wanted - {name.partition for name in chosen} - {(name.topic, name.partition) for name in chosen}
    if missing:
        message = f"no partition {', '.join(sorted(map(str, missing)))} among those of the topics"
        raise ValueError(message)
    return chosen


def _check_names(offsets: ClusterOffsets | None, names: Sequence[TopicPartition]) -> None:
    if not isinstance(offsets, Mapping):
        return
    known: set[int | tuple[str, int]] = {name.partition for name in names}
    known |= {(name.topic, name.partition) for name in names}
    unknown = set(offsets) - known
    if unknown:
        message = f"offsets are given for {', '.join(sorted(map(str, unknown)))}, which is not read"
        raise ValueError(message)


def _offset_of(offsets: ClusterOffsets | None, name: TopicPartition) -> int | None:
    if not isinstance(offsets, Mapping):
        return offsets
    by_name = cast("Mapping[int | tuple[str, int], int]", offsets)
    return by_name.get((name.topic, name.partition), by_name.get(name.partition))
