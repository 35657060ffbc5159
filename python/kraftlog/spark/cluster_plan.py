"""Which task reads what of a live cluster, and the rows of a task."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlog.client import AsyncConsumer
from kraftlog.errors import OffsetOutOfRangeError
from kraftlog.live.cluster_pass import ClusterPass
from kraftlog.reading.scan_options import ScanOptions, ScanSource
from kraftlog.spark.cluster_options import ClusterOptions
from kraftlog.spark.columns import find_columns
from kraftlog.spark.options import EARLIEST, LATEST, OffsetLimit, SourceOptions
from kraftlog.spark.plan import check_partitions, raise_to
from kraftlog.spark.range_reader import BATCH_BYTES, BATCH_ROWS
from kraftlog.types import TopicPartition
from kraftlog.vocabulary import SYSTEM_TOPICS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ClusterRange", "Survey", "lose", "plan_batch", "read_cluster_ranges", "split", "survey"]

logger = logging.getLogger("kraftlog.spark")

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ClusterRange:
    """Offsets of one partition, from ``start_offset`` up to, without, ``end_offset``."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets [{self.start_offset}, {self.end_offset})"


@dataclass(frozen=True, slots=True)
class Survey:
    """What the cluster has at one moment, by topic and partition.

    Args:
        earliest: First offset that can be read.
        latest: The high watermark; with read_committed the last stable offset.
        limits: Where ``starting`` and ``ending`` of the options are, as far as they were asked for.
    """

    earliest: Mapping[Key, int]
    latest: Mapping[Key, int]
    limits: Mapping[str, Mapping[Key, int]]


def survey(options: ClusterOptions, *wanted: OffsetLimit) -> Survey:
    """Ask the cluster.

    Raises:
        KafkaError: A topic does not exist or may not be read.
        TimeoutError: No broker answered.
        ValueError: A limit names other partitions than are selected, or has no record as late.
    """
    source = options.source
    with ClusterPass(options.settings, ScanOptions(isolation_level=source.isolation_level)) as running:
        names = _names(running, source)
        earliest = running.call(lambda consumer: consumer.beginning_offsets(names))
        latest = running.call(lambda consumer: consumer.end_offsets(names))
        limits = {}
        for limit in wanted:
            check_partitions(limit, {(name.topic, name.partition) for name in names})
            limits[limit.option] = _offsets(running, limit, names, earliest, latest, source)
    return Survey(_by_key(earliest), _by_key(latest), limits)


def _by_key(offsets: Mapping[TopicPartition, int]) -> dict[Key, int]:
    return {
        (name.topic, name.partition): offset for name, offset in sorted(offsets.items(), key=lambda item: _key(item[0]))
    }


def _key(name: TopicPartition) -> Key:
    return name.topic, name.partition


def _names(running: ClusterPass, source: SourceOptions) -> list[TopicPartition]:
    if source.assign is not None:
        return [TopicPartition(*name) for name in source.assign]
    topics: Sequence[str] = source.topics or ()
    if source.topic_pattern is not None:
        pattern = re.compile(source.topic_pattern)
        listed = running.call(lambda consumer: consumer.list_topics())
        topics = [topic for topic in listed if topic not in SYSTEM_TOPICS and pattern.fullmatch(topic)]
    found: list[TopicPartition] = []
    for topic in topics:

        async def ask(consumer: AsyncConsumer, topic: str = topic) -> list[TopicPartition]:
            return await consumer.partitions_for(topic)

        found += running.call(ask)
    return found


def _offsets(
    running: ClusterPass,
    limit: OffsetLimit,
    names: Sequence[TopicPartition],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    source: SourceOptions,
) -> dict[Key, int]:
    """The offset that an option means for each partition, which need not be one that the cluster has."""
    if limit.kind in {"earliest", "latest"}:
        return _by_key(earliest if limit.kind == "earliest" else latest)
    given = limit.by_partition or {}
    if limit.kind == "offsets":
        special = {EARLIEST: earliest, LATEST: latest}
        return {
            _key(name): special[given[_key(name)]][name] if given[_key(name)] < 0 else given[_key(name)]
            for name in names
        }
    times = {name: given[_key(name)] if limit.timestamp is None else limit.timestamp for name in names}
    answers = running.call(lambda consumer: consumer.offsets_for_times(dict(times.items())))
    found = {}
    for name in names:
        answer = answers[name]
        if answer is not None and answer.offset < latest[name]:
            found[_key(name)] = answer.offset
            continue
        if limit.option.startswith("starting") and source.timestamp_strategy == "error":
            message = (
                f"option {limit.option}: {name.topic}-{name.partition} has no record at {times[name]} ms or later; "
                "startingOffsetsByTimestampStrategy=latest starts at its end"
            )
            raise ValueError(message)
        found[_key(name)] = latest[name]
    return found


def lose(options: SourceOptions, message: str) -> None:
    """Records that were asked for are not there: an error, or with ``failOnDataLoss=false`` a warning.

    Raises:
        OffsetOutOfRangeError: Loss of data is an error.
    """
    if options.fail_on_data_loss:
        message += "; failOnDataLoss=false reads what is there"
        raise OffsetOutOfRangeError(message)
    logger.warning("failOnDataLoss=false: %s", message)


def plan_batch(options: ClusterOptions) -> list[ClusterRange]:
    """The ranges of a batch query, one per task.

    Raises:
        OffsetOutOfRangeError: With ``failOnDataLoss``: an offset that the cluster does not have.
        KafkaError, TimeoutError, ValueError: As :func:`survey`.
    """
    source = options.source
    found = survey(options, source.starting, source.ending)
    ranges = []
    for key, first in found.earliest.items():
        latest = found.latest[key]
        bounds = []
        for limit in (source.starting, source.ending):
            offset = found.limits[limit.option][key]
            if not first <= offset <= latest:
                reason = f"before the log start offset {first}" if offset < first else f"after {latest}"
                lose(source, f"option {limit.option}: offset {offset} of {key[0]}-{key[1]} is {reason}")
            bounds.append(min(max(offset, first), latest))
        ranges.append(ClusterRange(*key, *bounds))
    return split(source, ranges)


def split(options: SourceOptions, ranges: Sequence[ClusterRange]) -> list[ClusterRange]:
    """The ranges that have offsets, cut by ``maxRecordsPerPartition`` and ``minPartitions``."""
    full = [found for found in ranges if found.start_offset < found.end_offset]
    counts = [found.end_offset - found.start_offset for found in full]
    most = options.max_records_per_partition
    parts = [1 if most is None else -(-count // most) for count in counts]
    raise_to(options.min_partitions or 0, counts, parts)
    return [
        ClusterRange(
            found.topic,
            found.partition,
            found.start_offset + count * number // part,
            found.start_offset + count * (number + 1) // part,
        )
        for found, count, part in zip(full, counts, parts, strict=True)
        for number in range(part)
    ]


def read_cluster_ranges(
    options: ClusterOptions, columns: Sequence[str], ranges: Sequence[ClusterRange]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task as Arrow batches of the types that Spark wants.

    Raises:
        OffsetOutOfRangeError: The cluster no longer has the range, with ``failOnDataLoss``.
        LogTruncationError: It lost the range while it was read.
        CorruptRecordError: A batch cannot be read.
        KafkaError, TimeoutError: The cluster refuses or does not answer.
    """
    import pyarrow as pa

    if not ranges:
        return
    source = options.source
    names = [column.scan_name for column in find_columns(columns)]
    scan_options = ScanOptions(
        columns=tuple(names),
        from_timestamp=source.from_timestamp,
        to_timestamp=source.to_timestamp,
        isolation_level=source.isolation_level,
        timestamp_unit="us",
        empty_headers_null=True,
        batch_rows=BATCH_ROWS,
        batch_bytes=BATCH_BYTES,
        check_crc=source.verify_crc,
    )
    with ClusterPass(options.settings, scan_options) as running:
        for wanted in ranges:
            found = _there(running, wanted, source)
            if found.start_offset >= found.end_offset:
                continue
            place = ScanSource(
                options.settings["bootstrap.servers"],
                found.topic,
                found.partition,
                found.start_offset,
                found.end_offset,
            )
            for batch in running.batches([place]):
                rows = pa.record_batch(batch)
                yield rows if list(columns) == names else rows.rename_columns(list(columns))


def _there(running: ClusterPass, wanted: ClusterRange, source: SourceOptions) -> ClusterRange:
    """The part of a range that the cluster has: a fetch behind its end would wait for records that never come."""
    names = [TopicPartition(wanted.topic, wanted.partition)]
    first = _only(running, lambda consumer: consumer.beginning_offsets, names)
    latest = _only(running, lambda consumer: consumer.end_offsets, names)
    if wanted.start_offset < first:
        lose(source, f"{wanted}: the cluster begins at {first} now: records were deleted since the query was planned")
    if wanted.end_offset > latest:
        lose(source, f"{wanted}: the cluster ends at {latest} now: it was truncated since the query was planned")
    start = max(wanted.start_offset, first)
    return ClusterRange(wanted.topic, wanted.partition, start, min(wanted.end_offset, latest))


def _only(
    running: ClusterPass, method: Callable[[AsyncConsumer], Callable[..., object]], names: list[TopicPartition]
) -> int:
    async def ask(consumer: AsyncConsumer) -> Mapping[TopicPartition, int]:
        return await method(consumer)(names)  # type: ignore[no-any-return, misc]

    return running.call(ask)[names[0]]
