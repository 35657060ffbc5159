"""Batches of a producer: those that wait for more records, those that wait for the cluster, and those delivered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from kraftlog._kraftlog import EncodedBatch
from kraftlog.types import TopicPartition

__all__ = ["BatchDelivery", "OpenBatch", "ProducerBatch"]


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
