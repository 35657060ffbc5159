"""Batches of a producer on their way to the leaders of their partitions: in order, again after errors that may pass."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from kraftlog._kraftlog import EncodedBatch
from kraftlog.client.config import ClientConfig
from kraftlog.client.connections import Connections
from kraftlog.client.produce_messages import Outcome, outcomes_of, produce_request, refusal, take_hints
from kraftlog.client.producer_batch import BatchDelivery, ProducerBatch
from kraftlog.client.producer_id import new_producer_id, next_epoch
from kraftlog.client.producer_metadata import ProducerMetadata
from kraftlog.client.state.cluster_metadata import ClusterMetadata
from kraftlog.client.transactions import PRODUCE_VERSION_1, Transactions
from kraftlog.errors import ErrorCode, KafkaError, ProtocolError
from kraftlog.metrics.producer import ProducerMetrics
from kraftlog.types import TopicPartition, Uuid

__all__ = ["BatchSender"]

PRODUCE_VERSION_WITH_TOPIC_IDS = 13
SEQUENCE_COUNT = 2**31


class BatchSender:
    """Sends what is enqueued; at most one batch per partition is under way, so that retries keep the order.

    Args:
        config: Settings.
        connections: To the cluster.
        metadata: Leaders, which answers may correct.
        topics: Asks for newer metadata.
        metrics: Measures what is sent.
        transactions: Of a transactional producer.
        is_idempotent: Whether batches have a producer id and sequences.
        spawn: Runs a task that ends with the producer.
        wake: Called when there may be more to send.
        on_end: Called with each batch that was delivered, or failed, before its delivery says so.
        discard_open: Called with the error to fail batches with that were not enqueued yet.

    Attributes:
        failure: What makes all further batches fail.
    """

    def __init__(
        self,
        config: ClientConfig,
        connections: Connections,
        metadata: ClusterMetadata,
        topics: ProducerMetadata,
        metrics: ProducerMetrics,
        transactions: Transactions | None,
        *,
        is_idempotent: bool,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        wake: Callable[[], None],
        on_end: Callable[[ProducerBatch], None],
        discard_open: Callable[[KafkaError], None],
    ) -> None:
        self._config = config
        self._connections = connections
        self._metadata = metadata
        self._topics = topics
        self._metrics = metrics
        self._transactions = transactions
        self._is_idempotent = is_idempotent
        self._spawn = spawn
        self._wake = wake
        self._on_end = on_end
        self._discard_open = discard_open
        self._loop = asyncio.get_running_loop()
        self._acks: int = config["acks"]
        self._backoff_s: float = config["retry.backoff.ms"] / 1000
        self._queues: dict[TopicPartition, deque[ProducerBatch]] = {}
        self._busy: set[TopicPartition] = set()
        self._in_flight: dict[int, int] = {}
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self.failure: Exception | None = None

    @property
    def has_waiting(self) -> bool:
        """Whether a batch is not acknowledged yet."""
        return any(self._queues.values())

    @property
    def requests_in_flight(self) -> int:
        """Produce requests without an answer; may be read on any thread."""
        return sum(tuple(self._in_flight.values()))

    @property
    def _lacks_producer(self) -> bool:
        """Whether batches wait for a producer id, as one that has none could be stored twice."""
        return self._is_idempotent and self._transactions is None and self._producer is None

    def take_producer(self, producer: tuple[int, int] | None) -> None:
        """Send with another producer id and epoch from now on."""
        self._producer = producer
        self._sequences.clear()

    def enqueue(
        self, name: TopicPartition, data: EncodedBatch, record_count: int, delivery: asyncio.Future[BatchDelivery]
    ) -> None:
        """Send a batch behind those of its partition that wait."""
        now_s = self._loop.time()
        deadline_s = now_s + self._config["delivery.timeout.ms"] / 1000
        batch = ProducerBatch(name, data, record_count, delivery, deadline_s, now_s)
        self._queues.setdefault(name, deque()).append(batch)
        self._wake()

    def discard(self, error: KafkaError) -> None:
        """Fail all batches that are not under way."""
        self._discard_open(error)
        for queue in self._queues.values():
            for batch in [batch for batch in queue if not batch.is_under_way]:
                queue.remove(batch)
                self._fail(batch, error)

    def end(self, error: Exception) -> None:
        """Nothing can be sent any more: fail all batches."""
        self.failure = error
        for queue in self._queues.values():
            while queue:
                self._fail(queue.popleft(), error)

    def _fail(self, batch: ProducerBatch, error: Exception) -> None:
        self._on_end(batch)
        self._metrics.on_failure(batch.name.topic, batch.record_count)
        if not batch.delivery.done():
            batch.delivery.set_exception(error)

    async def send_ready(self) -> None:
        """Begin to send what may be sent now.

        Raises:
            KafkaError: The cluster refuses this producer.
        """
        if self._lacks_producer and any(self._queues.values()):
            await self._init_producer()
        if self._transactions is not None and not self._transactions.is_sending:
            return
        by_node: dict[int, list[ProducerBatch]] = {}
        for name, queue in self._queues.items():
            while queue and queue[0].deadline_s < self._loop.time() and name not in self._busy:
                self._give_up(queue[0], KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name}: delivery.timeout.ms"))
            if self._lacks_producer or not queue or name in self._busy:
                continue
            leader_id = self._metadata.leader_of(name).leader_id
            if leader_id is None:
                self._topics.want(name.topic)
                continue
            by_node.setdefault(leader_id, []).append(queue[0])
        if self._transactions is not None and not self._transactions.is_sending:
            return  # a batch was given up, and with it the others
        for node_id, batches in by_node.items():
            if self._in_flight.get(node_id, 0) >= self._config["max.in.flight.requests.per.connection"]:
                continue
            chosen: list[ProducerBatch] = []
            size = 0
            for batch in batches:
                if chosen and size + len(batch.data) > self._config["max.request.size"]:
                    self._wake()  # the others in the next request
                    break
                chosen.append(batch)
                size += len(batch.data)
                self._busy.add(batch.name)
                batch.is_under_way = True
            self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
            self._spawn(self._produce(node_id, chosen))

    def _sealed(self, batch: ProducerBatch) -> EncodedBatch:
        if not batch.is_sealed:
            batch.is_sealed = True
            if self._is_idempotent and self._producer is not None:
                sequence = self._sequences.get(batch.name, 0)
                self._sequences[batch.name] = (sequence + batch.record_count) % SEQUENCE_COUNT
                is_transactional = self._transactions is not None
                batch.data.seal(*self._producer, sequence, is_transactional=is_transactional)
            else:
                batch.data.seal()
        return batch.data

    async def _produce(self, node_id: int, batches: list[ProducerBatch]) -> None:
        if self._lacks_producer:
            # The last epoch of the id was given up since these were chosen.
            self._landed(node_id, batches)
            return
        transactions = self._transactions
        if transactions is not None:
            try:
                await transactions.add_partitions([batch.name for batch in batches])
            except KafkaError as error:
                self._landed(node_id, batches)
                self.discard(error)
                return
        self._measure(batches)
        ids = {batch.name.topic: self._metadata.topic_id(batch.name.topic) for batch in batches}
        request = produce_request(
            [(batch.name, self._sealed(batch)) for batch in batches],
            ids,
            transactional_id=self._config["transactional.id"],
            acks=self._acks,
            timeout_ms=self._config["request.timeout.ms"],
        )
        version_max = PRODUCE_VERSION_WITH_TOPIC_IDS - 1 if Uuid.ZERO in ids.values() else None
        if transactions is not None and not transactions.tracker.is_version_2:
            version_max = PRODUCE_VERSION_1
        outcomes: dict[TopicPartition, Outcome] = {}
        try:
            node = self._metadata.nodes.get(node_id)
            if node is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is not known")
            if self._acks == 0:
                await self._connections.tell(node, request, version_max)
                self._landed(node_id, batches)
                for batch in batches:
                    self._deliver(batch, -1, None)
                return
            answer: Any = (await self._connections.ask(node, request, version_max))[0]
            outcomes = outcomes_of(answer, ids)
            take_hints(self._metadata, answer, outcomes)
        except KafkaError as error:
            failure: KafkaError = error
        except ProtocolError as error:
            self.failure = error
            failure = KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
        else:
            failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer does not name the partition")
        may_retry = False
        for batch in batches:
            may_retry |= self._settle(batch, outcomes.get(batch.name), failure)
        if may_retry:
            await asyncio.sleep(self._backoff_s)
            await self._topics.refresh()
        self._landed(node_id, batches)
        if transactions is not None and not transactions.is_sending:
            # Whether the cluster has what would be sent again is not known: the sequences may have a gap.
            transactions.tracker.needs_new_epoch |= may_retry
            self.discard(failure)

    def _measure(self, batches: list[ProducerBatch]) -> None:
        """Count what is about to be sent, for the first time or again."""
        now_s = self._loop.time()
        self._metrics.on_request(sum(batch.record_count for batch in batches))
        for batch in batches:
            queued_s = None if batch.is_sealed else now_s - batch.enqueued_s
            self._metrics.on_batch(batch.name.topic, batch.record_count, len(batch.data), queued_s)

    def _landed(self, node_id: int, batches: list[ProducerBatch]) -> None:
        self._in_flight[node_id] -= 1
        for batch in batches:
            batch.is_under_way = False
            self._busy.discard(batch.name)
        self._wake()

    def _deliver(self, batch: ProducerBatch, offset: int, when: int | None) -> None:
        self._queues[batch.name].remove(batch)
        self._on_end(batch)
        name = batch.name
        batch.delivery.set_result(BatchDelivery(name.topic, name.partition, offset, batch.record_count, when))

    def _settle(self, batch: ProducerBatch, outcome: Outcome | None, failure: KafkaError) -> bool:
        """End a batch, or leave it first in its queue; True when it is to be sent again."""
        error = failure
        if outcome is not None:
            if outcome.error_code in {0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                when = outcome.log_append_time_ms
                offset = -1 if outcome.error_code else outcome.base_offset
                self._deliver(batch, offset, when if when >= 0 else None)
                return False
            error = refusal(batch.name, outcome)
        may_retry = error.retriable or error.code in {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
        if may_retry and self._loop.time() < batch.deadline_s and self.failure is None:
            return True
        self._give_up(batch, error)
        return False

    def _give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        """End a batch without its delivery; with a transaction, all that was not sent yet."""
        self._queues[batch.name].remove(batch)
        batch.is_under_way = False
        if self._transactions is not None:
            error = self._transactions.tracker.failed(error)
            self._transactions.tracker.needs_new_epoch = True
            self._fail(batch, self.failure or error)
            self.discard(error)
            return
        if batch.is_sealed:
            # What follows in this partition would be out of order: it gets the next epoch and sequences from 0. The
            # batch may be on its way still, and is refused once a record of that epoch is there (KIP-360).
            self._producer = next_epoch(self._producer)
            self._sequences.clear()
        self._fail(batch, self.failure or error)

    async def _init_producer(self) -> None:
        self._producer = await new_producer_id(self._connections, self._metadata.nodes)
        if self._producer is None:
            await asyncio.sleep(self._backoff_s)
            self._wake()
