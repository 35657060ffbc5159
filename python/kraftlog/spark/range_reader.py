"""Offset ranges to Arrow batches as Spark accepts them: what a task does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kraftlog._kraftlog import ArrowStream, list_segments, log_end_offset, scan_stream
from kraftlog.errors import CorruptRecordError, LogError, OffsetOutOfRangeError, RemoteLogError
from kraftlog.reading.directory import read_leader_epochs
from kraftlog.spark.columns import SourceColumn, find_column, find_columns
from kraftlog.spark.data_loss import DataLoss, report_losses
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.partition_log import OffsetRange, epoch_at

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "read_range", "stream_range"]

# Rows of an Arrow batch: 1024 cost Spark 45 % more CPU than 4096, from there on it is flat.
BATCH_ROWS = 16384
BATCH_BYTES = 8 << 20


def read_range(
    ranges: Sequence[OffsetRange],
    options: SourceOptions,
    columns: Sequence[str],
    *,
    keys: frozenset[bytes] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of ranges as Arrow batches of the types that Spark wants, in order; none for an empty range.

    Files are read by position, nothing is mapped. A range that the log no longer has, or has other records in, is an
    error, or with ``failOnDataLoss=false`` left out with a count.

    Args:
        ranges: What to read.
        options: How; offsets and paths are those of the ranges.
        columns: Names of columns as the batches shall have them, in any case.
        keys: Only records with one of these keys.

    Raises:
        ValueError: A name that is no column.
        OffsetOutOfRangeError: Offsets were deleted or truncated since they were planned; names partition and offsets.
        CorruptRecordError: Names file, byte position and base offset, and the range; the rows before come first.
        FileNotFoundError: The partition is gone.
    """
    names = list(columns)
    found = find_columns(names)
    if keys is None:
        for range_ in ranges:
            yield from _read_one(range_, options, found, names)
        return
    places = [place for place, column in enumerate(found) if column.name == "key"]
    if not places:
        found, names = (*found, find_column("key")), [*names, "key"]
    for range_ in ranges:
        for batch in _read_one(range_, options, found, names):
            rows = _with_keys(batch, places[0] if places else len(columns), keys)
            if rows.num_rows:
                yield rows if places else rows.select(list(columns))


def _with_keys(batch: pa.RecordBatch, place: int, keys: frozenset[bytes]) -> pa.RecordBatch:
    """The rows whose column at ``place`` is one of the keys."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return batch.filter(pc.is_in(batch.column(place), value_set=pa.array(sorted(keys), pa.binary())))


def _read_one(
    one: OffsetRange, options: SourceOptions, columns: Sequence[SourceColumn], names: list[str]
) -> Iterator[pa.RecordBatch]:
    scan_names = [column.scan_name for column in columns]

    def open_at(start_offset: int) -> ArrowStream:
        return _open(one, start_offset, options, scan_names)

    for batch in stream_range(one, options, open_at):
        yield batch if names == scan_names else batch.rename_columns(names)


def stream_range(
    one: OffsetRange, options: SourceOptions, open_at: Callable[[int], ArrowStream]
) -> Iterator[pa.RecordBatch]:
    """What a stream gives of a range, with the errors and the loss of data of :func:`read_range`.

    Args:
        one: The range.
        options: ``fail_on_data_loss`` and ``data_loss_report``.
        open_at: Opens a stream of the range from an offset on; with ``fail_on_data_loss`` false it steps over damage.
    """
    import pyarrow as pa

    at: int | None = one.start_offset
    losses: list[DataLoss] = []
    unlisted = 0
    while at is not None:
        start_offset, at = at, None
        stream = open_at(start_offset)
        try:
            for rows in stream:
                yield pa.record_batch(rows)
        except OffsetOutOfRangeError as error:
            at = _go_on(one, start_offset, error, options, losses)
        except FileNotFoundError as error:
            if options.fail_on_data_loss:
                message = f"{_name(one)} is gone: {error}"
                raise FileNotFoundError(message) from error
            losses.append(_loss(one, start_offset, one.end_offset, f"the partition is gone: {error}"))
            report_losses(options, losses)
            return
        except CorruptRecordError as error:
            message = f"{_name(one)}: {error}"
            raise CorruptRecordError(message) from error
        except RemoteLogError as error:
            message = f"{_name(one)}: {error}"
            raise RemoteLogError(message) from error
        skipped = stream.report()
        unlisted += skipped[5] - len(skipped[6])
        losses += [
            DataLoss(
                topic=one.topic,
                partition=one.partition,
                start_offset=one.start_offset,
                end_offset=one.end_offset,
                path=path,
                position=position,
                end_position=end_position,
                base_offset=base_offset,
                reason=reason,
            )
            for path, position, end_position, base_offset, reason in skipped[6]
        ]
    _check_end(one, options, losses)
    report_losses(options, losses, total=len(losses) + unlisted)


def _open(one: OffsetRange, start_offset: int, options: SourceOptions, columns: list[str]) -> ArrowStream:
    # Named only where it is wanted: an extension that was built before the option will do otherwise.
    further: Any = {"drop_behind": True} if options.drop_behind else {}
    return scan_stream(
        [(one.place, one.topic, one.partition, start_offset, one.end_offset, one.aborted)],
        columns=columns,
        isolation_level=options.isolation_level,
        timestamp_unit="us",
        empty_headers_null=True,
        batch_rows=BATCH_ROWS,
        batch_bytes=BATCH_BYTES,
        check_crc=options.verify_crc,
        include_control=options.control_records,
        **further,
        from_timestamp=options.from_timestamp,
        to_timestamp=options.to_timestamp,
        on_corrupt="raise" if options.fail_on_data_loss else "skip",
    )


def _go_on(
    one: OffsetRange, start_offset: int, error: LogError, options: SourceOptions, losses: list[DataLoss]
) -> int | None:
    """Where to go on after records were deleted under the scan; None at the end of the range."""
    segments = list_segments(one.place)
    first = segments[0][0] if segments else one.end_offset
    if options.fail_on_data_loss or first <= start_offset:
        message = f"{_name(one)}: records were deleted since the query was planned: {error}"
        raise OffsetOutOfRangeError(message) from error
    losses.append(_loss(one, start_offset, min(first, one.end_offset), f"deleted since the query was planned: {error}"))
    return first if first < one.end_offset else None


def _check_end(one: OffsetRange, options: SourceOptions, losses: list[DataLoss]) -> None:
    """The log still has the end of the range, and the same records there; it may have been cut meanwhile.

    Raises:
        OffsetOutOfRangeError: It has not, and loss of data is an error.
    """
    reason = _end_missing(one, options)
    if reason is None:
        return
    if options.fail_on_data_loss:
        message = f"{_name(one)}: {reason}"
        raise OffsetOutOfRangeError(message)
    losses.append(_loss(one, one.start_offset, one.end_offset, reason))


def _end_missing(one: OffsetRange, options: SourceOptions) -> str | None:
    if one.remote is not None:
        return None  # an object that is not what was listed was an error above
    try:
        segments = list_segments(one.path)
    except FileNotFoundError:
        return None  # deleted after its rows were read: the files were open
    if not segments or segments[-1][0] < one.end_offset:
        try:
            log_end = log_end_offset(one.path)
        except CorruptRecordError:
            # Damage at the end of the log: that of the range itself has been met above.
            log_end = one.end_offset
        if log_end < one.end_offset:
            return f"the log was truncated to offset {log_end} since the query was planned"
    if one.last_epoch is not None:
        epoch = epoch_at(read_leader_epochs(Path(one.path)), one.end_offset - 1)
        if epoch is not None and epoch != one.last_epoch:
            return (
                f"offset {one.end_offset - 1} is of leader epoch {epoch} now, of {one.last_epoch} when the query was "
                "planned: the log was truncated and has other records there"
            )
    return None


def _loss(one: OffsetRange, start_offset: int, end_offset: int, reason: str) -> DataLoss:
    return DataLoss(
        topic=one.topic,
        partition=one.partition,
        start_offset=start_offset,
        end_offset=end_offset,
        path=one.path,
        reason=reason,
    )


def _name(one: OffsetRange) -> str:
    return f"{one.topic}-{one.partition} offsets [{one.start_offset}, {one.end_offset}) of {one.path}"
