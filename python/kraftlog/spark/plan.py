"""Which task reads what: offset ranges of about equal bytes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

from kraftlog._kraftlog import plan_splits, scan_stream
from kraftlog.errors import CorruptRecordError, OffsetOutOfRangeError
from kraftlog.reading import Log
from kraftlog.spark.data_loss import DataLoss, report_losses
from kraftlog.spark.options import EARLIEST, LATEST, OffsetLimit, SourceOptions
from kraftlog.spark.partition_log import OffsetRange, PartitionLog, epoch_at, list_partitions
from kraftlog.spark.range_reader import read_range

__all__ = [
    "Narrowing",
    "OffsetRange",
    "PartitionLog",
    "check_partitions",
    "list_partitions",
    "pack_ranges",
    "plan_tasks",
    "raise_to",
    "read_range",
    "resolve_offsets",
    "split_ranges",
]

# Ranges this small are put together, so that many small partitions do not become as many tasks.
PACK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """Less than the options ask for: what filters of a query leave.

    Args:
        topic_tests: All have to hold for the name of a topic.
        partition_tests: All have to hold for the number of a partition.
        start_offset: Inclusive; None for no bound.
        end_offset: Exclusive; None for no bound.
        keys: Only records with one of these keys; None for all.
    """

    topic_tests: tuple[Callable[[str], bool], ...] = ()
    partition_tests: tuple[Callable[[int], bool], ...] = ()
    start_offset: int | None = None
    end_offset: int | None = None
    keys: frozenset[bytes] | None = None

    def apply(self, offsets: Mapping[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """The offsets that are left of each partition, without those where none is."""
        left = {}
        for (topic, partition), (start, end) in offsets.items():
            if all(test(topic) for test in self.topic_tests) and all(test(partition) for test in self.partition_tests):
                first = start if self.start_offset is None else max(start, self.start_offset)
                last = end if self.end_offset is None else min(end, self.end_offset)
                if first < last:
                    left[topic, partition] = (first, last)
        return left


def plan_tasks(options: SourceOptions, narrowing: Narrowing | None = None) -> list[tuple[OffsetRange, ...]]:
    """The ranges that each task reads, together every offset that the options ask for, once.

    Args:
        options: Which partitions and offsets.
        narrowing: What filters leave of them; all of it without one.

    Raises:
        FileNotFoundError, ValueError, LogError: As :func:`list_partitions` and :func:`resolve_offsets`.
    """
    partitions = list_partitions(options)
    offsets = resolve_offsets(options, partitions)
    if narrowing is not None:
        offsets = narrowing.apply(offsets)
    return pack_ranges(options, split_ranges(options, partitions, offsets))


def resolve_offsets(
    options: SourceOptions, partitions: Sequence[PartitionLog]
) -> dict[tuple[str, int], tuple[int, int]]:
    """First offset and exclusive end of each partition, within what its log has.

    Raises:
        OffsetOutOfRangeError: With ``failOnDataLoss``: an offset before the log start offset or after what can be
            read; names the option, the partition and the offsets.
        ValueError: An option names partitions that are not selected, or not all that are; a start time after all
            records; a start after its end.
    """
    for limit in (options.starting, options.ending):
        check_partitions(limit, {(log.topic, log.partition) for log in partitions})
    losses: list[DataLoss] = []
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    for log in partitions:
        latest = log.latest_offset(options)
        start = _offset_at(options.starting, log, latest, options)
        end = _offset_at(options.ending, log, latest, options)
        if start > end and start <= latest and end >= log.log_start_offset:
            message = (
                f"option {options.starting.option} starts {log} at offset {start}, "
                f"after the end {end} by {options.ending.option}"
            )
            raise ValueError(message)
        start = _within(options.starting, log, start, latest, options, losses)
        end = _within(options.ending, log, end, latest, options, losses)
        offsets[log.topic, log.partition] = (start, max(start, end))
    report_losses(options, losses)
    return offsets


def split_ranges(
    options: SourceOptions,
    partitions: Sequence[PartitionLog],
    offsets: Mapping[tuple[str, int], tuple[int, int]],
) -> list[OffsetRange]:
    """The offsets of the partitions in ranges of about ``splitBytes``, cut at batches that ``.index`` names.

    ``maxRecordsPerPartition`` bounds the offsets of a range, and with ``minPartitions`` there are that many ranges,
    unless there are fewer offsets. Partitions without offsets to read have none.

    Raises:
        FileNotFoundError: A partition is gone.
        LogError: As :attr:`kraftlog.Log.leader_epochs`.
    """
    logs = [(log, *offsets.get((log.topic, log.partition), (0, 0))) for log in partitions]
    logs = [(log, start, end) for log, start, end in logs if start < end]
    split_bytes = options.split_bytes
    if options.min_partitions is not None:
        total = sum(log.log.size_bytes for log, _, _ in logs)
        split_bytes = max(min(split_bytes, total // options.min_partitions), 1)
    ranges = [piece for log, start, end in logs for piece in _cut(log, start, end, split_bytes)]
    most = options.max_records_per_partition
    parts = [1 if most is None else -(-_count(range_) // most) for range_ in ranges]
    raise_to(options.min_partitions or 0, [_count(range_) for range_ in ranges], parts)
    return [piece for range_, count in zip(ranges, parts, strict=True) for piece in _even_pieces(range_, count)]


def pack_ranges(options: SourceOptions, ranges: Sequence[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
    """Ranges put together into tasks: small ones share one, as far as the options allow."""
    tasks: list[list[OffsetRange]] = []
    size = count = 0
    for range_ in ranges:
        most = options.max_records_per_partition
        is_full = size + range_.size_bytes > min(PACK_BYTES, options.split_bytes)
        if not tasks or is_full or (most is not None and count + _count(range_) > most):
            tasks.append([])
            size = count = 0
        tasks[-1].append(range_)
        size += range_.size_bytes
        count += _count(range_)
    if len(tasks) < (options.min_partitions or 0):
        return [(range_,) for range_ in ranges]
    return [tuple(task) for task in tasks]


def check_partitions(limit: OffsetLimit, there: AbstractSet[tuple[str, int]]) -> None:
    """Raise unless an option that names partitions names those that are selected.

    Raises:
        ValueError: Names what is missing and what is too much.
    """
    if limit.by_partition is None:
        return
    wanted = set(limit.by_partition)
    if wanted != there:
        parts = [
            f"{what} {', '.join(f'{topic}-{partition}' for topic, partition in sorted(names))}"
            for what, names in (("lacks", there - wanted), ("names unselected", wanted - there))
            if names
        ]
        message = f"option {limit.option} has to name exactly the selected partitions: it {' and '.join(parts)}"
        raise ValueError(message)


def _offset_at(limit: OffsetLimit, log: PartitionLog, latest: int, options: SourceOptions) -> int:
    """The offset that an option means for a partition, which need not be one that the log has."""
    if limit.kind == "earliest":
        return log.log_start_offset
    if limit.kind == "latest":
        return latest
    value = (limit.by_partition or {}).get((log.topic, log.partition), 0)
    if limit.kind == "offsets":
        return {EARLIEST: log.log_start_offset, LATEST: latest}.get(value, value)
    timestamp = value if limit.timestamp is None else limit.timestamp
    found = _first_at(limit, log, timestamp, options)
    # A broker answers with what a consumer can get only.
    if found is not None and found < latest:
        return found
    if limit.option.startswith("starting") and options.timestamp_strategy == "error":
        message = (
            f"option {limit.option}: {log} has no record at {timestamp} ms or later before offset {latest}; "
            "startingOffsetsByTimestampStrategy=latest starts at its end"
        )
        raise ValueError(message)
    return latest


def _first_at(limit: OffsetLimit, log: PartitionLog, timestamp: int, options: SourceOptions) -> int | None:
    """Offset of the first record that is as late; where loss is allowed, damage is stepped over."""
    import pyarrow as pa

    stream = scan_stream(
        [(log.place, None, None, log.log_start_offset, None, None)],
        columns=["offset"],
        from_timestamp=timestamp,
        batch_rows=1,
        on_corrupt="raise" if options.fail_on_data_loss else "skip",
    )
    try:
        for rows in stream:
            return int(pa.record_batch(rows)["offset"][0].as_py())
    except CorruptRecordError as error:
        message = f"option {limit.option}: {log}: {error}"
        raise CorruptRecordError(message) from error
    return None


def _within(
    limit: OffsetLimit, log: PartitionLog, offset: int, latest: int, options: SourceOptions, losses: list[DataLoss]
) -> int:
    """The offset, if the log can be read there; else the nearest one where loss of data is allowed."""
    first = log.log_start_offset
    if first <= offset <= latest:
        return offset
    if offset < first:
        reason = f"before the log start offset {first}"
    else:
        reason = f"after {latest}, where what can be read ends{_why_so_early(log, latest, options)}"
    message = f"option {limit.option}: offset {offset} of {log} ({log.path}) is {reason}"
    if options.fail_on_data_loss:
        message += "; failOnDataLoss=false reads what is there"
        raise OffsetOutOfRangeError(message)
    low, high = (offset, first) if offset < first else (latest, offset)
    losses.append(
        DataLoss(
            topic=log.topic, partition=log.partition, start_offset=low, end_offset=high, path=log.path, reason=message
        )
    )
    return first if offset < first else latest


def _why_so_early(log: PartitionLog, latest: int, options: SourceOptions) -> str:
    if latest >= log.log_end_offset:
        return ""
    if log.last_stable_offset is not None and latest == log.last_stable_offset:
        return " with read_committed (the last stable offset)"
    return f" at the high watermark (endOffset=logEnd reads up to {log.log_end_offset})" if options.end == "hw" else ""


def _cut(log: PartitionLog, start: int, end: int, split_bytes: int) -> Iterator[OffsetRange]:
    cuts = plan_splits(log.place, split_bytes=split_bytes, start_offset=start, end_offset=end)
    if not cuts:
        return
    # Segments may have been deleted since the offsets were resolved; who reads finds out and says so.
    epochs = log.log.leader_epochs
    for number, cut in enumerate(cuts):
        first, last = cut.start_offset if number else start, cut.end_offset
        aborted = log.aborted
        if aborted is not None:
            aborted = tuple(transaction for transaction in aborted if transaction[2] >= first and transaction[1] < last)
        yield OffsetRange(
            log.path,
            log.topic,
            log.partition,
            first,
            last,
            cut.size_bytes,
            aborted,
            epoch_at(epochs, last - 1),
            None
            if log.remote is None
            else log.remote.remote.part(cut.segment_base_offset, cut.position, cut.size_bytes),
        )


def _count(one: OffsetRange) -> int:
    return one.end_offset - one.start_offset


def raise_to(least: int, counts: Sequence[int], parts: list[int]) -> None:
    """Gives the ranges with the most offsets a part more parts, until there are ``least`` or one for each offset."""
    heap = [
        (-count / part, number) for number, (count, part) in enumerate(zip(counts, parts, strict=True)) if part < count
    ]
    heapq.heapify(heap)
    missing = least - sum(parts)
    while missing > 0 and heap:
        _, number = heapq.heappop(heap)
        parts[number] += 1
        missing -= 1
        if parts[number] < counts[number]:
            heapq.heappush(heap, (-counts[number] / parts[number], number))


def _even_pieces(one: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    if parts == 1:
        yield one
        return
    count = _count(one)
    # A piece is found by the index, not from the start of the whole range on; objects elsewhere do not change.
    remote = None if one.remote is None else one.remote.without_hint()
    epochs = () if remote is not None else Log(Path(one.path), one.topic, one.partition).leader_epochs
    for part in range(parts):
        first, end = one.start_offset + count * part // parts, one.start_offset + count * (part + 1) // parts
        last_epoch = one.last_epoch if end == one.end_offset else epoch_at(epochs, end - 1)
        yield replace(
            one,
            start_offset=first,
            end_offset=end,
            size_bytes=one.size_bytes // parts,
            last_epoch=last_epoch,
            remote=remote,
        )
