"""Sends the markers of decided transactions to the leaders of their partitions, for as long as that takes.

Source: ``kafka.coordinator.transaction.TransactionMarkerChannelManager`` and its completion handler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraftlog.coordinator.transaction.markers import MarkersDue
from kraftlog.coordinator.transaction.transaction_shard import TransactionShard
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.ordered_set import OrderedSet
from kraftlog.runtime.coordinator.shard_registry import CommittedMetadata, TaskGroup
from kraftlog.runtime.coordinator.shard_runner import ShardRunner
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from kraftlog.controller import MetadataImage

__all__ = ["BrokerRequests", "MarkerSender"]

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.1
# Someone newer owns the transaction: its markers are not this coordinator's any more.
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class BrokerRequests(Protocol):
    """The way to other brokers."""

    def request(self, broker_id: int, message: WriteTxnMarkersRequest) -> Coroutine[Any, Any, Any]:
        """Ask a broker; KafkaError if there is no answer."""
        ...


class _Decided:
    """A transaction whose markers are on their way."""

    __slots__ = ("coordinator_epoch", "due", "is_abandoned", "missing", "runner")

    def __init__(self, runner: ShardRunner[TransactionShard], due: MarkersDue) -> None:
        self.runner = runner
        self.due = due
        self.coordinator_epoch = runner.leader_epoch
        self.missing = set(due.partitions)
        self.is_abandoned = False

    @property
    def is_wanted(self) -> bool:
        """Whether this node still coordinates the transaction."""
        return not self.is_abandoned and self.runner.is_loaded

    def to_marker(self, partitions: Iterable[TopicPartition]) -> WriteTxnMarkersRequest.WritableTxnMarker:
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        return WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=self.due.producer_id,
            producer_epoch=self.due.producer_epoch,
            transaction_result=self.due.is_commit,
            topics=[
                WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=sorted(indexes))
                for name, indexes in topics.items()
            ],
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.due.transaction_version,
        )


_Batch = dict[_Decided, OrderedSet[TopicPartition]]


class MarkerSender:
    """One queue per broker; what queues up while a request is on its way goes out in the next one.

    Args:
        node_id: Of this broker, whose partitions are written without a request.
        write_here: Writes markers on this node.
        links: The way to the others.
        metadata: Knows the leaders.
        tasks: Run the queues.
    """

    def __init__(
        self,
        node_id: int,
        write_here: Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]],
        links: BrokerRequests,
        metadata: CommittedMetadata,
        tasks: TaskGroup,
    ) -> None:
        self._node_id = node_id
        self._write_here = write_here
        self._links = links
        self._metadata = metadata
        self._tasks = tasks
        self._queues: dict[int, _Batch] = {}
        self._without_leader_count = 0
        self._running: set[int] = set()

    def send(self, runner: ShardRunner[TransactionShard], due: MarkersDue) -> None:
        """Write the markers of a transaction, and tell its shard once all are written."""
        decided = _Decided(runner, due)
        self._route(decided, sorted(due.partitions))
        self._finish_if_done(decided)

    @property
    def without_leader_count(self) -> int:
        """Markers of partitions that have no leader now; any thread may read it."""
        return self._without_leader_count

    def _route(self, decided: _Decided, partitions: Iterable[TopicPartition]) -> None:
        image = self._metadata.image
        waiting: list[TopicPartition] = []
        for partition in partitions:
            leader_id = _leader_of(image, partition)
            if leader_id is None:
                # The topic was deleted: nobody reads the transaction there.
                decided.missing.discard(partition)
            elif leader_id < 0:
                waiting.append(partition)
            else:
                self._queues.setdefault(leader_id, {}).setdefault(decided, OrderedSet()).add(partition)
                if leader_id not in self._running:
                    self._running.add(leader_id)
                    self._tasks.spawn(self._drain(leader_id))
        if waiting:
            self._without_leader_count += len(waiting)
            asyncio.get_running_loop().call_later(_RETRY_S, self._look_for_leaders, decided, tuple(waiting))

    def _look_for_leaders(self, decided: _Decided, partitions: tuple[TopicPartition, ...]) -> None:
        self._without_leader_count -= len(partitions)
        self._reroute(decided, partitions)

    def _retry(self, decided: _Decided, partitions: Iterable[TopicPartition]) -> None:
        asyncio.get_running_loop().call_later(_RETRY_S, self._reroute, decided, tuple(partitions))

    def _reroute(self, decided: _Decided, partitions: Iterable[TopicPartition]) -> None:
        if decided.is_wanted:
            self._route(decided, partitions)
            self._finish_if_done(decided)

    async def _drain(self, broker_id: int) -> None:
        try:
            while queued := self._queues.pop(broker_id, None):
                batch = {decided: found for decided, found in queued.items() if decided.is_wanted}
                if batch:
                    await self._send_batch(broker_id, batch)
        finally:
            self._running.discard(broker_id)

    async def _send_batch(self, broker_id: int, batch: _Batch) -> None:
        request = WriteTxnMarkersRequest(markers=[decided.to_marker(found) for decided, found in batch.items()])
        try:
            if broker_id == self._node_id:
                response = await self._write_here(request)
            else:
                response = await self._links.request(broker_id, request)
        except KafkaError as error:
            logger.debug("broker %d did not take markers: %s", broker_id, error)
            for decided, found in batch.items():
                self._retry(decided, found)
            return
        for decided, result in zip(batch, response.markers, strict=True):
            self._take_result(decided, result)

    def _take_result(self, decided: _Decided, result: WriteTxnMarkersResponse.WritableTxnMarkerResult) -> None:
        failed: list[TopicPartition] = []
        for topic in result.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.name, found.partition_index)
                if found.error_code == ErrorCode.NONE:
                    decided.missing.discard(partition)
                elif found.error_code in _FENCED:
                    logger.info(
                        "markers of transaction %s are not sent any more: %s at %s",
                        decided.due.transactional_id,
                        ErrorCode.name_of(found.error_code),
                        partition,
                    )
                    decided.is_abandoned = True
                else:
                    failed.append(partition)
        if not decided.is_wanted:
            return
        if failed:
            self._retry(decided, failed)
        self._finish_if_done(decided)

    @staticmethod
    def _finish_if_done(decided: _Decided) -> None:
        if decided.is_wanted and not decided.missing:
            decided.is_abandoned = True
            decided.runner.call(lambda shard, now_ms: shard.on_markers_written(decided.due, now_ms))


def _leader_of(image: MetadataImage, partition: TopicPartition) -> int | None:
    """The leader; -1 if it is not available now; None if there is no such partition any more."""
    topic = image.topics.by_name(partition.topic)
    found = None if topic is None else topic.partitions.get(partition.partition)
    if found is None:
        return None
    broker = image.cluster.brokers.get(found.leader)
    return -1 if broker is None or broker.fenced else found.leader
