"""Batches of a producer: those that wait for more records, those that wait for the cluster, and those delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from kraftlog._kraftlog import EncodedBatch
from kraftlog.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["BatchDelivery", "Headers", "OpenBatch", "ProducerBatch", "record_bytes"]

RECORD_OVERHEAD_BYTES = 32
TIMESTAMP_END = 2**63
Headers: TypeAlias = Sequence[tuple[str, "Buffer | None"]]


@dataclass(frozen=True, slots=True)
class BatchDelivery:
    """A batch that the cluster has, as ``acks`` says.

    Attributes:
        topic: Name.
        partition: Number.
        base_offset: Offset of its first record; -1 when the broker had it already and no longer knows where, and with
            acks=0.
        record_count: Its records, whose offsets follow each other.
        log_append_time: Milliseconds where the topic has LogAppendTime; None else.
    """

    topic: str
    partition: int
    base_offset: int
    record_count: int
    log_append_time: int | None = None


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """Encoded records that wait for the cluster."""

    name: TopicPartition
    data: EncodedBatch
    record_count: int
    delivery: asyncio.Future[BatchDelivery]
    deadline_s: float
    is_sealed: bool = False
    is_under_way: bool = False


@dataclass(slots=True, eq=False)
class OpenBatch:
    """Records that wait for more."""

    delivery: asyncio.Future[BatchDelivery]
    due_s: float
    records: list[tuple[int, Any, Any, Any]] = field(default_factory=list)
    size_bytes: int = 0


def _byte_count(data: Buffer | None, what: str) -> int:
    if data is None:
        return 0
    if isinstance(data, bytes):
        return len(data)
    try:
        return memoryview(data).nbytes
    except TypeError:
        message = f"{what} must be bytes or None, not {type(data).__name__}; text has to be encoded"
        raise TypeError(message) from None


def record_bytes(value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | None) -> int:
    """About how many bytes a record takes, of fields that can be encoded: a batch fails with all of its records.

    Raises:
        TypeError: A field has another type.
        ValueError: The timestamp is negative or takes more than 64 bits, or the name of a header is not UTF-8.
    """
    size = RECORD_OVERHEAD_BYTES + _byte_count(value, "the value") + _byte_count(key, "the key")
    for name, found in headers:
        if not isinstance(name, str):
            message = f"the name of a header must be str, not {type(name).__name__}"
            raise TypeError(message)
        size += len(name.encode()) + _byte_count(found, f"header {name}")
    if timestamp is not None:
        if not isinstance(timestamp, int):
            message = f"the timestamp must be milliseconds as int, not {type(timestamp).__name__}"
            raise TypeError(message)
        if not 0 <= timestamp < TIMESTAMP_END:
            message = f"timestamp {timestamp} is out of range"
            raise ValueError(message)
    return size
