"""Batches of a producer: open, waiting for the cluster, and delivered; and what became of their records."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kraftlog._kraftlog import EncodedBatch
from kraftlog.types import TopicPartition

__all__ = ["BatchDelivery", "OpenBatch", "ProducerBatch", "RecordDelivery", "batch_future"]


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


class RecordDelivery(NamedTuple):
    """A record that the cluster has, as ``acks`` says.

    Attributes:
        topic: Name.
        partition: Number.
        offset: In the partition; -1 where :class:`BatchDelivery` has no base offset.
        log_append_time: Milliseconds where the topic has LogAppendTime; None else.
    """

    topic: str
    partition: int
    offset: int
    log_append_time: int | None = None


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """Encoded records that wait for the cluster, from one loop time to another at most."""

    name: TopicPartition
    data: EncodedBatch
    record_count: int
    delivery: asyncio.Future[BatchDelivery]
    deadline_s: float
    enqueued_s: float
    is_sealed: bool = False
    is_under_way: bool = False


@dataclass(slots=True, eq=False)
class OpenBatch:
    """Records that wait for more.

    Attributes:
        delivery: Of the batch; nobody outside the producer has it, so that nobody cancels it.
        due_s: Loop time at which it is sent though it is not full.
        records: Timestamp, key, value and headers of each.
        indexes: Of the records that callers wait for.
        futures: What they wait for, in the same order.
        size_bytes: Of the records, roughly.
    """

    delivery: asyncio.Future[BatchDelivery]
    due_s: float
    records: list[tuple[int, Any, Any, Any]] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    futures: list[asyncio.Future[RecordDelivery]] = field(default_factory=list)
    size_bytes: int = 0

    def last_record_future(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[RecordDelivery]:
        """What becomes of the record that was added last."""
        if not self.futures:
            self.delivery.add_done_callback(self._tell)
        future: asyncio.Future[RecordDelivery] = loop.create_future()
        self.indexes.append(len(self.records) - 1)
        self.futures.append(future)
        return future

    def _tell(self, delivery: asyncio.Future[BatchDelivery]) -> None:
        error = delivery.exception()
        if error is not None:
            for future in self.futures:
                if not future.done():  # else its caller cancelled it
                    _fail(future, error)
            return
        found = delivery.result()
        topic, partition, base_offset, when = found.topic, found.partition, found.base_offset, found.log_append_time
        for index, future in zip(self.indexes, self.futures, strict=True):
            if not future.done():
                offset = base_offset + index if base_offset >= 0 else -1
                future.set_result(RecordDelivery(topic, partition, offset, when))


def batch_future(delivery: asyncio.Future[BatchDelivery]) -> asyncio.Future[BatchDelivery]:
    """What becomes of a batch, for a caller who may cancel it."""
    future: asyncio.Future[BatchDelivery] = delivery.get_loop().create_future()

    def tell(_: object) -> None:
        if future.done():
            return
        error = delivery.exception()
        if error is None:
            future.set_result(delivery.result())
        else:
            _fail(future, error)

    delivery.add_done_callback(tell)
    return future


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    future.set_exception(error)
    future.exception()  # the producer's next flush raises it: no report of the event loop is needed
