"""``kraftlog.AsyncProducer``: Arrow rows and single records to a cluster, on the caller's event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kraftlog._kraftlog import EncodedBatch, encode_batch, produced_batches
from kraftlog.client.batch_sender import BatchSender
from kraftlog.client.config import ClientConfig, ClientConfigError
from kraftlog.client.connections import Connections
from kraftlog.client.producer_batch import BatchDelivery, OpenBatch, ProducerBatch, RecordDelivery, batch_future
from kraftlog.client.producer_metadata import ProducerMetadata
from kraftlog.client.record_fields import Headers, record_batches, record_bytes
from kraftlog.client.state.cluster_metadata import ClusterMetadata
from kraftlog.client.transactional_calls import TransactionalCalls
from kraftlog.client.transactions import Transactions
from kraftlog.config_input import ConfigInput, config_properties
from kraftlog.errors import ErrorCode, KafkaError, NodeClosedError
from kraftlog.metrics.producer import ProducerMetrics, ProducerState
from kraftlog.metrics.registry import MetricsSnapshot
from kraftlog.ordered_set import OrderedSet
from kraftlog.partitioner import key_partition
from kraftlog.transport.timed_event import TimedEvent
from kraftlog.transport.traffic import Traffic
from kraftlog.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AsyncProducer"]

PRODUCE_VERSION_WITH_TOPIC_IDS = 13
SEQUENCE_COUNT = 2**31
# While batches wait, one may be over its time, or its leader known.
_LOOK_AGAIN_S = 1.0


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
        acks, wanted = self._config["acks"], self._config["enable.idempotence"]
        if wanted and acks != -1:
            message = "enable.idempotence=true needs acks=all"
            raise ClientConfigError(message)
        self._is_idempotent: bool = acks == -1 if wanted is None else wanted
        if self._config["transactional.id"] and not self._is_idempotent:
            message = "transactional.id needs acks=all and enable.idempotence=true"
            raise ClientConfigError(message)
        self._on_delivery = on_delivery
        self._batch_bytes: int = min(self._config["batch.size"], self._config["max.request.size"])
        self._buffer_bytes: int = self._config["buffer.memory"]
        self._linger_s = self._config["linger.ms"] / 1000
        self._block_s: float = self._config["max.block.ms"] / 1000
        self._metadata = ClusterMetadata()
        self._open: dict[TopicPartition, OpenBatch] = {}
        self._pending: OrderedSet[asyncio.Future[BatchDelivery]] = OrderedSet()
        self._used_bytes = 0
        self._sticky: dict[str, int] = {}
        self.first_failure: BaseException | None = None  # of a batch, since Producer last raised it
        self._connections: Connections | None = None
        self._traffic = Traffic()
        self._metrics = ProducerMetrics(self._traffic.counters, self._state)
        self._waiting_count = 0
        self._tasks: OrderedSet[asyncio.Task[Any]] = OrderedSet()

    # Life

    async def start(self) -> None:
        """Begin, without ``async with``; ``close`` has to be awaited then."""
        self._loop = asyncio.get_running_loop()
        self._wake = TimedEvent()
        self._room = asyncio.Condition()
        connections = Connections(self._config, self._loop, self._traffic, self._metrics.requests)
        self._topics = ProducerMetadata(self._config, connections, self._metadata)
        if self._config["transactional.id"]:
            self._transactions = Transactions(
                self._config, connections, lambda: connections.any_node(self._metadata.nodes)
            )
        self._sender = BatchSender(
            self._config,
            connections,
            self._metadata,
            self._topics,
            self._metrics,
            self._transactions,
            is_idempotent=self._is_idempotent,
            spawn=self._spawn,
            wake=self._wake.set,
            on_end=self._finish,
            discard_open=self._discard_open,
        )
        self._connections = connections
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
            self._topics.close()
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
            self._sender.end(error)

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
    ) -> asyncio.Future[RecordDelivery]:
        """Add one record to a batch.

        Waits for metadata of the topic that is not known yet, and while ``buffer.memory`` is used up, for
        ``max.block.ms`` at most each.

        Args:
            topic: Where to.
            value: None for a tombstone.
            key: Decides the partition where none is given, as with Kafka's default partitioner.
            headers: Names and values.
            timestamp: Milliseconds; now when None.
            partition: Number.

        Returns:
            The delivery of the record, or the error that its batch failed with. It need not be awaited: ``flush``
            raises the error as well. To cancel it does not take the record back.

        Raises:
            KafkaError: There is no such topic or partition, or ``max.block.ms`` is over; the record is not sent.
            TypeError: A field has another type.
            ValueError: The timestamp or the name of a header is out of range.
        """
        batch = await self.add_record(topic, value, key, headers, timestamp, partition)
        return batch.last_record_future(self._loop)

    async def send_and_wait(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> RecordDelivery:
        """Send one record as ``send`` does, and return when the cluster has it.

        The record waits for others for ``linger.ms``: many calls at a time share a request.

        Raises:
            KafkaError: As ``send``, or the record was not delivered.
        """
        return await (await self.send(topic, value, key=key, headers=headers, timestamp=timestamp, partition=partition))

    async def add_record(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None,
        headers: Headers,
        timestamp: int | None,
        partition: int | None,
    ) -> OpenBatch:
        """As ``send``, without a future; returns the batch, whose last record it is until the next call."""
        self._check_can_send()
        # Nothing is awaited where nothing is waited for: a coroutine more costs a tenth of the whole.
        count = self._topics.known_count(topic) or await self._topics.partition_count(topic)
        size = record_bytes(value, key, headers, timestamp)
        if self._used_bytes + size > self._buffer_bytes:
            await self._wait_for_room(size)
        if partition is None:
            partition = key_partition(key, count) if key is not None else self._sticky.setdefault(topic, 0) % count
        elif partition < 0 or (partition >= count and not await self._topics.has_partition(topic, partition)):
            count = self._topics.known_count(topic) or count
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{topic} has {count} partitions, no {partition}")
        name = TopicPartition(topic, partition)
        found_open = self._open.get(name)
        if found_open is not None and found_open.size_bytes + size > self._batch_bytes:
            self._seal(name)
            found_open = None
        if found_open is None:
            found_open = self._open[name] = OpenBatch(self._new_delivery(), self._loop.time() + self._linger_s)
            self._topics.use(topic)
            self._wake.set()
        found_open.records.append(
            (time.time_ns() // 1_000_000 if timestamp is None else timestamp, key, value, headers)
        )
        found_open.size_bytes += size
        self._used_bytes += size
        return found_open

    async def send_table(
        self,
        topic: str,
        table: Any,
        *,
        key: str | None = None,
        value: str | None = None,
        partition_by: str | None = None,
    ) -> list[asyncio.Future[BatchDelivery]]:
        """Send the rows of an Arrow table or record batch.

        Args:
            topic: Where to.
            table: Anything of the Arrow PyCapsule interface with a column ``value`` and maybe ``key``, ``headers``,
                ``timestamp`` and ``partition``. Rows without a partition go where the hash of their key says; rows
                without a key fill one partition after the other.
            key: The column of the keys, bytes or text, if it has another name.
            value: The column of the values, likewise.
            partition_by: A column of bytes or text, possibly one of the two: the hash of what it has decides the
                partition instead of the hash of the key. Null counts as empty.

        Returns:
            The deliveries of the batches.

        Raises:
            KafkaError: There is no such topic, or a batch waited for ``max.block.ms``; those before it are delivered.
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
                key=key,
                value=value,
                partition_by=partition_by,
            )
            self._sticky[topic] = self._sticky.get(topic, 0) + 1
            for partition, record_count, data in batches:
                await self._wait_for_room(len(data))
                self._used_bytes += len(data)
                name = TopicPartition(topic, partition)
                if name in self._open:
                    self._seal(name)
                delivery = self._new_delivery()
                self._sender.enqueue(name, data, record_count, delivery)
                deliveries.append(batch_future(delivery))
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
        with self._metrics.timed("flush"):
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
            timeout_s: Seconds; ``max.block.ms`` when None.

        Raises:
            KafkaError: There is no such topic, or the client may not see it.
        """
        self._running()
        return [TopicPartition(topic, number) for number in range(await self._topics.partition_count(topic, timeout_s))]

    def metrics(self) -> MetricsSnapshot:
        """All metrics now, by the names of Kafka's producer; may be called on any thread, and after ``close`` too.

        ``producer-topic-metrics.record-send-rate{topic=orders}``, for example; the [reference](metrics.md) lists them.
        """
        return self._metrics.snapshot()

    def _state(self) -> ProducerState:
        in_flight = 0 if self._connections is None else self._sender.requests_in_flight
        return ProducerState(self._buffer_bytes, self._used_bytes, in_flight, self._waiting_count)

    def call_after_linger(self, work: Callable[[], Any]) -> None:
        """Run a coroutine function after ``linger.ms``; may be called on any thread."""

        def begin() -> None:
            if self._connections is not None:  # not closed meanwhile: the loop may end before a task would begin
                self._spawn(work())

        self._running()
        self._loop.call_soon_threadsafe(self._loop.call_later, self._linger_s, begin)

    # Transactions: what TransactionalCalls needs

    def _take_producer(self, producer: tuple[int, int] | None) -> None:
        self._sender.take_producer(producer)

    def _discard(self, error: KafkaError) -> None:
        self._sender.discard(error)

    async def _settled(self) -> None:
        """Return when nothing is under way."""
        while self._pending:
            await asyncio.wait(list(self._pending))

    # Batches

    def _new_delivery(self) -> asyncio.Future[BatchDelivery]:
        self._running()
        if self._sender.failure is not None:
            raise self._sender.failure
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
        limit = self._buffer_bytes
        if self._used_bytes and self._used_bytes + size > limit:
            for name in list(self._open):
                self._seal(name)
            self._waiting_count += 1
            try:
                with self._metrics.timed("bufferpool-wait"):
                    async with asyncio.timeout(self._block_s), self._room:
                        await self._room.wait_for(lambda: not self._used_bytes or self._used_bytes + size <= limit)
            except TimeoutError:
                used = f"{self._used_bytes} of {limit} bytes of buffer.memory are used"
                text = f"{used}, and {size} found no room within max.block.ms"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, self._running().described(text)) from None
            finally:
                self._waiting_count -= 1

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
            self._metrics.on_failure(name.topic, len(found.records))
            self.fail_transaction(error)
            found.delivery.set_exception(error)
            return
        self._used_bytes += len(data) - found.size_bytes
        self._sticky[name.topic] = self._sticky.get(name.topic, 0) + 1
        self._sender.enqueue(name, EncodedBatch(data), len(found.records), found.delivery)

    def _finish(self, batch: ProducerBatch) -> None:
        self._used_bytes -= len(batch.data)
        self._make_room()

    def _make_room(self) -> None:
        if self._waiting_count:
            self._spawn(self._tell_room())

    async def _tell_room(self) -> None:
        async with self._room:
            self._room.notify_all()

    def _discard_open(self, error: KafkaError) -> None:
        for name in list(self._open):
            found = self._open.pop(name)
            self._used_bytes -= found.size_bytes
            self._metrics.on_failure(name.topic, len(found.records))
            found.delivery.set_exception(error)
        self._make_room()

    async def _run(self) -> None:
        while True:
            now_s = self._loop.time()
            for name in [name for name, found in self._open.items() if found.due_s <= now_s]:
                self._seal(name)
            # What woke this task until now is seen below; sealing does, too.
            self._wake.clear()
            await self._sender.send_ready()
            if self._topics.begin_refresh():
                self._spawn(self._refresh())
            now_s = self._loop.time()
            due_s = min((found.due_s for found in self._open.values()), default=math.inf)
            if self._sender.has_waiting:
                due_s = min(due_s, now_s + _LOOK_AGAIN_S)
            if self._topics.due_s is not None:
                due_s = min(due_s, self._topics.due_s)
            await self._wake.wait_until(None if due_s == math.inf else max(due_s, now_s + 0.001))

    async def _refresh(self) -> None:
        """Ask for metadata while other batches are sent."""
        try:
            await self._topics.refresh_in_background()
        finally:
            self._wake.set()
