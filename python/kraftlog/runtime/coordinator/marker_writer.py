"""Writes the markers that end transactions on partitions of this node (WriteTxnMarkers)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kraftlog._kraftlog import encode_batch
from kraftlog.coordinator.effects import TransactionEnd
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.runtime.coordinator.shard_registry import PartitionLookup
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC
from kraftlog.wire.messages.control_records import EndTxnMarker
from kraftlog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kraftlog.wire.records import encode_control_record

__all__ = ["GroupShards", "MarkerWriter"]

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
_TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_PartitionResult = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult

_ENTRIES_PER_TURN = 64


class MarkedShard(Protocol):
    """A shard whose records wait for the markers on its partition."""

    def append_marker(self, batch: bytes, end: TransactionEnd, *, transaction_version: int) -> asyncio.Future[int]:
        """Append the marker; a future of its offset."""
        ...


class GroupShards(Protocol):
    """The group coordinator."""

    def runner_of(self, index: int) -> MarkedShard | None:
        """The loaded shard of that partition, if this node coordinates it."""
        ...


class MarkerWriter:
    """Appends markers, and tells the group coordinator of those on ``__consumer_offsets``.

    Args:
        partitions: Finds the partitions of this node.
        groups: The group coordinator.
        now_ms: Wall clock.
    """

    def __init__(self, partitions: PartitionLookup, groups: GroupShards, now_ms: Callable[[], int]) -> None:
        self._partitions = partitions
        self._groups = groups
        self._now_ms = now_ms

    async def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Write every marker of a request; the answer comes once each is committed or refused.

        Between parts of a long request the loop serves others.
        """
        turns = _Turns()
        # Taken out one by one: to free hundred thousands of futures at once takes too long.
        started: deque[asyncio.Future[int] | int] = deque()
        for marker in request.markers:
            await turns.count()
            for topic in marker.topics:
                await turns.count()
                for index in topic.partition_indexes:
                    await turns.count()
                    started.append(self._start(marker, topic.name, index))
        results = []
        for marker in request.markers:
            await turns.count()
            topics = []
            for topic in marker.topics:
                await turns.count()
                partitions = []
                for index in topic.partition_indexes:
                    await turns.count()
                    code = started.popleft()
                    if isinstance(code, asyncio.Future):
                        if not code.done():
                            await asyncio.wait([code])
                        code = _error_of(code)
                    partitions.append(_PartitionResult(partition_index=index, error_code=code))
                topics.append(_TopicResult(name=topic.name, partitions=partitions))
            results.append(_MarkerResult(producer_id=marker.producer_id, topics=topics))
        return WriteTxnMarkersResponse(markers=results)

    def _start(self, marker: _Marker, topic: str, index: int) -> asyncio.Future[int] | int:
        """Append a marker: the error code, or the future of its offset."""
        try:
            return self._append(marker, topic, index)
        except KafkaError as error:
            return error.code

    def _append(self, marker: _Marker, topic: str, index: int) -> asyncio.Future[int]:
        partition = self._partitions.get_by_name(topic, index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        batch = self._batch(marker)
        if topic != CONSUMER_OFFSETS_TOPIC:
            return partition.append_coordinator(batch, transaction_version=marker.transaction_version)
        runner = self._groups.runner_of(index)
        if runner is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        end = TransactionEnd(marker.producer_id, marker.transaction_result)
        return runner.append_marker(batch, end, transaction_version=marker.transaction_version)

    def _batch(self, marker: _Marker) -> bytes:
        message = EndTxnMarker(coordinator_epoch=marker.coordinator_epoch)
        key, value = encode_control_record(message, kind=int(marker.transaction_result))
        return encode_batch(
            [(self._now_ms(), key, value, ())],
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transactional=True,
            control=True,
        )


def _error_of(future: asyncio.Future[int]) -> int:
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) if future.cancelled() else future.exception()
    if error is None:
        return int(ErrorCode.NONE)
    if isinstance(error, KafkaError):
        return error.code
    return int(ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, KraftlogError) else ErrorCode.UNKNOWN_SERVER_ERROR)


class _Turns:
    """Lets the loop serve others now and then."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    async def count(self) -> None:
        """One more entry was handled."""
        self._count += 1
        if self._count % _ENTRIES_PER_TURN == 0:
            await asyncio.sleep(0)
