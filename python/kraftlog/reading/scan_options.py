"""What a scan reads, and how."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kraftlog.reading.remote_partition import RemotePartition

__all__ = [
    "DEFAULT_COLUMNS",
    "BinaryType",
    "End",
    "IsolationLevel",
    "OnCorrupt",
    "ScanOptions",
    "ScanSource",
    "Timestamp",
    "TimestampUnit",
    "milliseconds",
]

Timestamp: TypeAlias = int | dt.datetime
BinaryType: TypeAlias = Literal["binary", "large_binary", "binary_view"]
TimestampUnit: TypeAlias = Literal["ms", "us"]
IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
OnCorrupt: TypeAlias = Literal["raise", "skip"]
End: TypeAlias = Literal["log_end", "high_watermark"]

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
    check_crc: bool = True
    include_control: bool = False
    on_corrupt: OnCorrupt = "raise"


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
        message = "a datetime must have a time zone"
        raise ValueError(message)
    since_epoch = timestamp - dt.datetime.fromtimestamp(0, dt.UTC)
    return since_epoch // dt.timedelta(milliseconds=1)
