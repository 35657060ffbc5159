"""``kraftlog.AsyncProducer``: Arrow rows and single records to a cluster, on the caller's event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kraftlog._kraftlog import EncodedBatch, encode_batch, produced_batches
from kraftlog.client.config import ClientConfig, ClientConfigError
from kraftlog.client.connections import Connections
from kraftlog.client.producer_batch import BatchDelivery, OpenBatch, ProducerBatch
from kraftlog.client.producer_metadata import ProducerMetadata
from kraftlog.client.record_fields import Headers, record_batches, record_bytes
from kraftlog.client.state.cluster_metadata import ClusterMetadata, Node
from kraftlog.client.transactional_calls import TransactionalCalls
from kraftlog.client.transactions import PRODUCE_VERSION_1, Transactions
from kraftlog.config_input import ConfigInput, config_properties
from kraftlog.errors import ErrorCode, KafkaError, NodeClosedError, ProtocolError
from kraftlog.ordered_set import OrderedSet
from kraftlog.partitioner import key_partition
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from kraftlog.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AsyncProducer"]

PRODUCE_VERSION_WITH_TOPIC_IDS = 13
SEQUENCE_COUNT = 2**31


class AsyncProducer(TransactionalCalls):
    """Writes to any Kafka cluster on the caller's event loop; use it with ``async with``.

    With ``enable.idempotence``, the default, retries make no duplicates and keep the order in each partition.

    Args:
        config: Kafka's dotted keys, such as ``bootstrap.servers``; ``docs/reference/client.md`` lists them.
        on_delivery: Called on the event loop with each batch that was delivered.
        **settings: The same keys with underscores for dots.

    Raises:
        ClientConfigError: A setting is unknown or has no such value.
    """

    def __init__(
        self,
        config: Mapping[str, ConfigInput] | None = None,
        *,
        on_delivery: Callable[[BatchDelivery], None] | None = None,
        **settings: ConfigInput,
    ) -> None:
        self._config = ClientConfig(config_properties(config, settings), "producer")
        self._acks: int = self._config["acks"]
        wanted = self._config["enable.idempotence"]
        if wanted and self._acks != -1:
            message = "enable.idempotence=true needs acks=all"
            raise ClientConfigError(message)
        self._is_idempotent: bool = self._acks == -1 if wanted is None else wanted
        if self._config["transactional.id"] and not self._is_idempotent:
            message = "transactional.id needs acks=all and enable.idempotence=true"
            raise ClientConfigError(message)
        self._on_delivery = on_delivery
        self._batch_bytes: int = min(self._config["batch.size"], self._config["max.request.size"])
        self._linger_s = self._config["linger.ms"] / 1000
        self._backoff_s = self._config["retry.backoff.ms"] / 1000
        self._metadata = ClusterMetadata()
        self._open: dict[TopicPartition, OpenBatch] = {}
        self._queues: dict[TopicPartition, deque[ProducerBatch]] = {}
        self._busy: set[TopicPartition] = set()
        self._in_flight: dict[int, int] = {}
        self._pending: OrderedSet[asyncio.Future[BatchDelivery]] = OrderedSet()
        self._used_bytes = 0
        self._sticky: dict[str, int] = {}
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._failure: Exception | None = None
        self.first_failure: BaseException | None = None  # of a batch, since Producer last raised it
        self._connections: Connections | None = None
        self._tasks: OrderedSet[asyncio.Task[Any]] = OrderedSet()

    # Life

    async def start(self) -> None:
        """Begin, without ``async with``; ``close`` has to be awaited then."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._room = asyncio.Condition()
        self._connections = connections = Connections(self._config, self._loop)
        self._topics = ProducerMetadata(self._config, connections, self._metadata)
        if self._config["transactional.id"]:
            self._transactions = Transactions(
                self._config, connections, lambda: connections.any_node(self._metadata.nodes)
            )
        self._spawn(self._run())

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Deliver what waits, and end all connections. A transaction that is open is aborted.

        Args:
            timeout_s: Seconds to deliver in; None for as long as ``delivery.timeout.ms`` allows. What is not delivered
                then fails, although a broker may have taken it.

        Raises:
            KafkaError: A batch was not delivered.
            TimeoutError: Not all was delivered within the time.
        """
        if self._connections is None:
            return
        try:
            await self._abort_open(timeout_s)
            await self.flush(timeout_s=timeout_s)
        finally:
            tasks, connections = list(self._tasks), self._connections
            self._connections = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._fail_pending()
            connections.close()

    def _fail_pending(self) -> None:
        for delivery in list(self._pending):
            if not delivery.done():
                delivery.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the producer was closed before"))
                delivery.exception()  # a caller that waits for it gets it

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _running(self) -> Connections:
        if self._connections is None:
            raise NodeClosedError("the producer is not running: use it with `async with`")
        return self._connections

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failure = error
            for queue in self._queues.values():
                while queue:
                    self._fail(queue.popleft(), error)

    # Records

    async def send(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[BatchDelivery]:
        """Add one record to a batch; waits while ``buffer.memory`` is used up.

        Args:
            topic: Where to.
            value: None for a tombstone.
            key: Decides the partition where none is given, as with Kafka's default partitioner.
            headers: Names and values.
            timestamp: Milliseconds; now when None.
            partition: Number.

        Returns:
            The delivery of the batch that the record is in.

        Raises:
            KafkaError: There is no such topic or partition.
            TypeError: A field has another type.
            ValueError: The timestamp or the name of a header is out of range.
        """
        self._check_can_send()
        count = await self._topics.partition_count(topic)
        size = record_bytes(value, key, headers, timestamp)
        await self._wait_for_room(size)
        if partition is None:
            partition = key_partition(key, count) if key is not None else self._sticky.setdefault(topic, 0) % count
        elif not 0 <= partition < count:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{topic} has {count} partitions, no {partition}")
        name = TopicPartition(topic, partition)
        found_open = self._open.get(name)
        if found_open is not None and found_open.size_bytes + size > self._batch_bytes:
            self._seal(name)
            found_open = None
        if found_open is None:
            found_open = self._open[name] = OpenBatch(self._new_delivery(), self._loop.time() + self._linger_s)
            self._wake.set()
        found_open.records.append(
            (time.time_ns() // 1_000_000 if timestamp is None else timestamp, key, value, headers)
        )
        found_open.size_bytes += size
        self._used_bytes += size
        return found_open.delivery

    async def send_table(self, topic: str, table: Any) -> list[asyncio.Future[BatchDelivery]]:
        """Send the rows of an Arrow table or record batch.

        Args:
            topic: Where to.
            table: Anything of the Arrow PyCapsule interface with a column ``value`` and maybe ``key``, ``headers``,
                ``timestamp`` and ``partition``. Rows without a partition go where the hash of their key says; rows
                without a key fill one partition after the other.

        Returns:
            The deliveries of the batches.

        Raises:
            KafkaError: There is no such topic.
            ValueError: Another column or type, or a partition that the topic does not have.
        """
        self._check_can_send()
        count = await self._topics.partition_count(topic)
        deliveries = []
        for rows in record_batches(table):
            batches = produced_batches(
                rows,
                partition_count=count,
                now_ms=time.time_ns() // 1_000_000,
                sticky_partition=self._sticky.get(topic, 0) % count,
                compression=self._config["compression.type"],
                compression_level=self._config.compression_level,
                batch_bytes=self._batch_bytes,
            )
            self._sticky[topic] = self._sticky.get(topic, 0) + 1
            for partition, record_count, data in batches:
                await self._wait_for_room(len(data))
                self._used_bytes += len(data)
                name = TopicPartition(topic, partition)
                if name in self._open:
                    self._seal(name)
                delivery = self._new_delivery()
                self._enqueue(name, data, record_count, delivery)
                deliveries.append(delivery)
        return deliveries

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records that are not acknowledged yet; ``buffer.memory`` bounds them."""
        return self._used_bytes

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """Return when all that was sent is delivered.

        Args:
            timeout_s: Seconds; None for as long as ``delivery.timeout.ms`` allows.

        Raises:
            KafkaError: A batch was not delivered.
            TimeoutError: Not all was delivered within the time; what waits is delivered later.
        """
        connections = self._running()
        for name in list(self._open):
            self._seal(name)
        waiting = list(self._pending)
        if not waiting:
            return
        done, late = await asyncio.wait(waiting, timeout=timeout_s)
        for delivery in waiting:
            if delivery in done:
                delivery.result()
        if late:
            text = f"{len(late)} batches, {self._used_bytes} bytes, were not delivered within {timeout_s} s"
            raise TimeoutError(connections.described(text))

    async def partitions_for(self, topic: str, *, timeout_s: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, which is created where brokers create topics by themselves.

        Args:
            topic: Name.
            timeout_s: Seconds; ``request.timeout.ms`` when None.

        Raises:
            KafkaError: There is no such topic, or the client may not see it.
        """
        self._running()
        return [TopicPartition(topic, number) for number in range(await self._topics.partition_count(topic, timeout_s))]

    def call_after_linger(self, work: Callable[[], Any]) -> None:
        """Run a coroutine function after ``linger.ms``; may be called on any thread."""

        def begin() -> None:
            if self._connections is not None:  # not closed meanwhile: the loop may end before a task would begin
                self._spawn(work())

        self._running()
        self._loop.call_soon_threadsafe(self._loop.call_later, self._linger_s, begin)

    # Transactions: what TransactionalCalls needs

    def _take_producer(self, producer: tuple[int, int] | None) -> None:
        self._producer = producer
        self._sequences.clear()

    def _discard(self, error: KafkaError) -> None:
        """Fail all batches that are not under way."""
        for name in list(self._open):
            found = self._open.pop(name)
            self._used_bytes -= found.size_bytes
            found.delivery.set_exception(error)
        for queue in self._queues.values():
            for batch in [batch for batch in queue if not batch.is_under_way]:
                queue.remove(batch)
                self._fail(batch, error)
        self._spawn(self._tell_room())

    async def _settled(self) -> None:
        """Return when nothing is under way."""
        while self._pending:
            await asyncio.wait(list(self._pending))

    # Batches

    def _new_delivery(self) -> asyncio.Future[BatchDelivery]:
        self._running()
        if self._failure is not None:
            raise self._failure
        delivery: asyncio.Future[BatchDelivery] = self._loop.create_future()
        self._pending.add(delivery)
        delivery.add_done_callback(self._delivered)
        return delivery

    def _delivered(self, delivery: asyncio.Future[BatchDelivery]) -> None:
        self._pending.discard(delivery)
        if delivery.cancelled():
            return
        error = delivery.exception()
        if error is not None:
            self.first_failure = self.first_failure or error
        elif self._on_delivery is not None:
            self._on_delivery(delivery.result())

    async def _wait_for_room(self, size: int) -> None:
        limit: int = self._config["buffer.memory"]
        if self._used_bytes and self._used_bytes + size > limit:
            for name in list(self._open):
                self._seal(name)
            async with self._room:
                await self._room.wait_for(lambda: not self._used_bytes or self._used_bytes + size <= limit)

    def _seal(self, name: TopicPartition) -> None:
        """Encode the records that wait; the next record begins another batch."""
        found = self._open.pop(name)
        try:
            codec, level = self._config["compression.type"], self._config.compression_level
            data = encode_batch(found.records, compression=codec, compression_level=level)
            if len(data) > self._batch_bytes:
                # Codecs add to bytes that they cannot make fewer, and max.message.bytes may be batch.size.
                data = encode_batch(found.records)
        except (ValueError, TypeError) as error:
            self._used_bytes -= found.size_bytes
            self.fail_transaction(error)
            found.delivery.set_exception(error)
            return
        self._used_bytes += len(data) - found.size_bytes
        self._sticky[name.topic] = self._sticky.get(name.topic, 0) + 1
        self._enqueue(name, EncodedBatch(data), len(found.records), found.delivery)

    def _enqueue(
        self, name: TopicPartition, data: EncodedBatch, record_count: int, delivery: asyncio.Future[BatchDelivery]
    ) -> None:
        deadline_s = self._loop.time() + self._config["delivery.timeout.ms"] / 1000
        self._queues.setdefault(name, deque()).append(ProducerBatch(name, data, record_count, delivery, deadline_s))
        self._wake.set()

    def _finish(self, batch: ProducerBatch) -> None:
        self._used_bytes -= len(batch.data)
        self._spawn(self._tell_room())

    async def _tell_room(self) -> None:
        async with self._room:
            self._room.notify_all()

    def _fail(self, batch: ProducerBatch, error: Exception) -> None:
        self._finish(batch)
        if not batch.delivery.done():
            batch.delivery.set_exception(error)

    # Sending: at most one batch per partition is under way, so that retries keep the order

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now_s = self._loop.time()
            for name in [name for name, found in self._open.items() if found.due_s <= now_s]:
                self._seal(name)
            is_alone = self._is_idempotent and self._transactions is None
            if is_alone and self._producer is None and any(self._queues.values()):
                await self._init_producer()
            await self._send_ready()
            due_s = min((found.due_s for found in self._open.values()), default=now_s + 1.0)
            try:
                async with asyncio.timeout(max(due_s - self._loop.time(), 0.001)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _send_ready(self) -> None:
        if self._transactions is not None and not self._transactions.is_sending:
            return
        by_node: dict[int, list[ProducerBatch]] = {}
        for name, queue in self._queues.items():
            while queue and queue[0].deadline_s < self._loop.time() and name not in self._busy:
                self._give_up(queue[0], KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name}: delivery.timeout.ms"))
            if not queue or name in self._busy:
                continue
            leader_id = self._metadata.leader_of(name).leader_id
            if leader_id is None:
                await self._topics.refresh()
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
                    self._wake.set()  # the others in the next request
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
        transactions = self._transactions
        if transactions is not None:
            try:
                await transactions.add_partitions([batch.name for batch in batches])
            except KafkaError as error:
                self._landed(node_id, batches)
                self._discard(error)
                return
        topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
        for batch in batches:
            topics.setdefault(batch.name.topic, []).append(
                ProduceRequest.PartitionProduceData(index=batch.name.partition, records=self._sealed(batch))
            )
        ids = {topic: self._metadata.topic_id(topic) for topic in topics}
        request = ProduceRequest(
            transactional_id=self._config["transactional.id"],
            acks=self._acks,
            timeout_ms=self._config["request.timeout.ms"],
            topic_data=[
                ProduceRequest.TopicProduceData(name=topic, topic_id=ids[topic], partition_data=partitions)
                for topic, partitions in topics.items()
            ],
        )
        version_max = PRODUCE_VERSION_WITH_TOPIC_IDS - 1 if Uuid.ZERO in ids.values() else None
        if transactions is not None and not transactions.tracker.is_version_2:
            version_max = PRODUCE_VERSION_1
        outcomes: dict[TopicPartition, Any] = {}
        try:
            node = self._metadata.nodes.get(node_id)
            if node is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is not known")
            if self._acks == 0:
                await self._running().tell(node, request, version_max)
                self._landed(node_id, batches)
                for batch in batches:
                    self._deliver(batch, -1, None)
                return
            answer: Any = (await self._running().ask(node, request, version_max))[0]
            names = {topic_id: topic for topic, topic_id in ids.items()}
            for topic in answer.responses:
                for partition in topic.partition_responses:
                    name = TopicPartition(topic.name or names.get(topic.topic_id, ""), partition.index)
                    outcomes[name] = partition
            self._take_hints(answer, outcomes)
        except KafkaError as error:
            failure: KafkaError = error
        except ProtocolError as error:
            self._failure = error
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
            self._discard(failure)

    def _landed(self, node_id: int, batches: list[ProducerBatch]) -> None:
        self._in_flight[node_id] -= 1
        for batch in batches:
            batch.is_under_way = False
            self._busy.discard(batch.name)
        self._wake.set()

    def _take_hints(self, answer: Any, outcomes: Mapping[TopicPartition, Any]) -> None:
        leaders = {
            name: (found.current_leader.leader_id, found.current_leader.leader_epoch)
            for name, found in outcomes.items()
            if found.current_leader.leader_id >= 0
        }
        nodes = [Node(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints]
        self._metadata.apply_leaders(leaders, nodes)

    def _deliver(self, batch: ProducerBatch, offset: int, when: int | None) -> None:
        self._queues[batch.name].remove(batch)
        self._finish(batch)
        name = batch.name
        batch.delivery.set_result(BatchDelivery(name.topic, name.partition, offset, batch.record_count, when))

    def _settle(self, batch: ProducerBatch, outcome: Any, failure: KafkaError) -> bool:
        """End a batch, or leave it first in its queue; True when it is to be sent again."""
        error = failure
        if outcome is not None:
            if outcome.error_code in {0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                when = outcome.log_append_time_ms
                offset = -1 if outcome.error_code else outcome.base_offset
                self._deliver(batch, offset, when if when >= 0 else None)
                return False
            reasons = [
                f"record {refused.batch_index}: {refused.batch_index_error_message}"
                for refused in outcome.record_errors
            ]
            text = "; ".join(filter(None, [str(batch.name), outcome.error_message, *reasons]))
            error = KafkaError(outcome.error_code, text)
        may_retry = error.retriable or error.code in {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
        if may_retry and self._loop.time() < batch.deadline_s and self._failure is None:
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
            self._fail(batch, self._failure or error)
            self._discard(error)
            return
        if batch.is_sealed:
            # What follows in this partition would be out of order: it gets another producer id and sequences from 0.
            self._producer = None
            self._sequences.clear()
        self._fail(batch, self._failure or error)

    async def _init_producer(self) -> None:
        try:
            node = await self._running().any_node(self._metadata.nodes)
            answer: Any = (await self._running().ask(node, InitProducerIdRequest(transactional_id=None)))[0]
        except KafkaError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                raise
            await asyncio.sleep(self._backoff_s)
            self._wake.set()
            return
        if answer.error_code:
            if not ErrorCode.is_retriable(answer.error_code):
                raise KafkaError(answer.error_code, "InitProducerId")
            await asyncio.sleep(self._backoff_s)
            self._wake.set()
            return
        self._producer = (answer.producer_id, answer.producer_epoch)
