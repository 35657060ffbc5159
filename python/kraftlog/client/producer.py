"""``kraftlog.Producer``: the producer for code without an event loop; it has a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kraftlog.client.async_producer import AsyncProducer
from kraftlog.client.producer_batch import BatchDelivery, RecordDelivery
from kraftlog.client.record_fields import Headers, record_bytes
from kraftlog.client.state.position import OffsetAndMetadata
from kraftlog.client.transactions import GroupMetadata
from kraftlog.config_input import ConfigInput
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, NodeClosedError
from kraftlog.metrics.registry import MetricsSnapshot
from kraftlog.own_thread import OwnThread
from kraftlog.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Producer"]

_logger = logging.getLogger("kraftlog.client")

# A hand-over to the other thread costs as much as encoding some hundred records.
HANDED_OVER_RECORDS = 512


class Producer:
    """Writes to any Kafka cluster; use it with ``with``, or call ``close``. Methods may be called from any thread.

    Arguments and errors are those of :class:`AsyncProducer`.

    Args:
        config: Kafka's dotted keys, such as ``bootstrap.servers``.
        on_delivery: Called on the producer's thread with each batch that was delivered; it must not call the producer.
        **settings: The same keys with underscores for dots.

    Example:
        >>> import kraftlog
        >>> with kraftlog.Broker() as broker, kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        ...     producer.send("orders", b"one", key=b"k")
        ...     producer.flush()
    """

    def __init__(
        self,
        config: Mapping[str, ConfigInput] | None = None,
        *,
        on_delivery: Callable[[BatchDelivery], None] | None = None,
        **settings: ConfigInput,
    ) -> None:
        self._async = AsyncProducer(config, on_delivery=on_delivery, **settings)
        self._thread = OwnThread("kraftlog-producer", self._async.start, self._end)
        self._handing = asyncio.Lock()
        self._close_timeout_s: float | None = None
        self._lock = threading.Lock()
        self._records: list[tuple[Any, ...]] = []
        self._thread.start()

    async def _end(self) -> None:
        timeout_s = self._close_timeout_s
        is_transaction_open = self._async.is_transaction_open
        try:
            await self._hand_over_within(timeout_s)
        except TimeoutError:
            with suppress(KraftlogError, TimeoutError):
                await self._async.close(timeout_s=0)
            raise
        await self._async.close(timeout_s=timeout_s)
        if is_transaction_open:
            self._async.first_failure = None  # it was aborted

    async def _hand_over_within(self, timeout_s: float | None) -> None:
        """Hand over what waits here; what does not get room or metadata within the time is handed over later."""
        handing = asyncio.ensure_future(self._hand_over())
        done, _ = await asyncio.wait({handing}, timeout=timeout_s)
        if not done:
            message = (
                f"records wait for buffer.memory or for metadata of their topic, and did not end within {timeout_s} s"
            )
            raise TimeoutError(message)
        handing.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *, timeout_s: float | None = None) -> None:
        """Deliver what waits, and end the thread; a second call does nothing.

        Args:
            timeout_s: Seconds to deliver in; None for as long as ``delivery.timeout.ms`` allows.

        Raises:
            KafkaError: A batch was not delivered.
            TimeoutError: Not all was delivered within the time, or the open transaction was not aborted.
        """
        self._close_timeout_s = timeout_s
        try:
            self._thread.call(self._end, what="producer")
        except NodeClosedError:
            return
        finally:
            self._thread.stop()
        self._raise_failure()

    def send(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Send one record, as :meth:`AsyncProducer.send`.

        Records are handed to the producer's thread some hundred at a time, after ``linger.ms``, or by ``flush``.

        Raises:
            TypeError: A field has another type; the record is not sent.
            ValueError: The timestamp or the name of a header is out of range; the record is not sent.
            KafkaError: An earlier record was not delivered, which is raised once, here or by ``flush``.
        """
        record_bytes(value, key, headers, timestamp)
        self._raise_failure()
        with self._lock:
            self._records.append((topic, value, key, headers, timestamp, partition))
            count = len(self._records)
        if count >= HANDED_OVER_RECORDS:
            self._thread.call(self._hand_over, what="producer")
            self._raise_failure()
        elif count == 1:
            self._async.call_after_linger(self._hand_over)

    def send_and_wait(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
        timeout_s: float | None = None,
    ) -> RecordDelivery:
        """Send one record behind those sent before, and return when the cluster has it.

        Args:
            topic: As for ``send``, and so the next five.
            value: See there.
            key: See there.
            headers: See there.
            timestamp: See there.
            partition: See there.
            timeout_s: Seconds; None for as long as ``delivery.timeout.ms`` allows.

        Raises:
            KafkaError: The record was not delivered.
            TimeoutError: It was not delivered within the time; it may be later.
            TypeError, ValueError: As by ``send``.
        """

        async def run() -> RecordDelivery:
            await self._hand_over()
            async with asyncio.timeout(timeout_s):
                return await self._async.send_and_wait(
                    topic, value, key=key, headers=headers, timestamp=timestamp, partition=partition
                )

        try:
            return self._thread.call(run, what="producer")
        except KraftlogError as error:
            if self._async.first_failure is error:
                self._async.first_failure = None
            raise
        except TimeoutError:
            message = f"the record for {topic} was not delivered within {timeout_s} s"
            raise TimeoutError(message) from None

    async def _hand_over(self) -> None:
        # One at a time: records stay in order, and a flush waits for what was taken before it.
        async with self._handing:
            with self._lock:
                records, self._records = self._records, []
            reasons: dict[tuple[str, int | None], KafkaError] = {}
            unsent: Counter[tuple[str, int | None]] = Counter()
            place: tuple[str, int | None]
            for fields in records:
                if reasons:
                    topic, partition = fields[0], fields[-1]
                    place = (topic, None) if (topic, None) in reasons else (topic, partition)
                    if place in reasons:
                        unsent[place] += 1
                        continue
                try:
                    await self._async.add_record(*fields)
                except (KraftlogError, TypeError, ValueError) as error:
                    # Nobody may be waiting, and the records behind this one may go elsewhere.
                    self._async.fail_transaction(error)
                    self._async.first_failure = self._async.first_failure or error
                    if isinstance(error, KafkaError):
                        # What this one has waited for in vain, those to the same place do not wait for again.
                        is_partition = error.code == ErrorCode.INVALID_PARTITIONS
                        place = fields[0], fields[-1] if is_partition else None
                        reasons[place] = error
                        unsent[place] += 1
            for place, count in unsent.items():
                _logger.warning("%d records for %s are not sent: %s", count, place[0], reasons[place])

    def _raise_failure(self) -> None:
        """Raise what went wrong since the last call."""
        failure, self._async.first_failure = self._async.first_failure, None
        if failure is not None:
            raise failure

    def send_table(
        self,
        topic: str,
        table: Any,
        *,
        key: str | None = None,
        value: str | None = None,
        partition_by: str | None = None,
    ) -> None:
        """Send the rows of an Arrow table or record batch, as :meth:`AsyncProducer.send_table`."""

        async def run() -> None:
            await self._hand_over()
            await self._async.send_table(topic, table, key=key, value=value, partition_by=partition_by)

        self._thread.call(run, what="producer")

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Return when all that was sent is delivered.

        Args:
            timeout_s: Seconds; None for as long as ``delivery.timeout.ms`` allows.

        Raises:
            KafkaError: A record was not delivered since the last error was raised. The others are delivered, also those
                behind it, except that records handed over together with one that waited for ``max.block.ms`` in vain
                do not wait again, and are not sent either if they go to the same topic.
            TimeoutError: Not all was delivered within the time; what waits is delivered later.
        """

        async def run() -> None:
            await self._hand_over_within(timeout_s)
            await self._async.flush(timeout_s=timeout_s)

        try:
            self._thread.call(run, what="producer")
        except KraftlogError:
            self._async.first_failure = None
            raise
        self._raise_failure()

    def partitions_for(self, topic: str, *, timeout_s: float | None = None) -> list[TopicPartition]:
        """As :meth:`AsyncProducer.partitions_for`."""
        return self._thread.call(lambda: self._async.partitions_for(topic, timeout_s=timeout_s), what="producer")

    def metrics(self) -> MetricsSnapshot:
        """As :meth:`AsyncProducer.metrics`."""
        return self._async.metrics()

    def init_transactions(self) -> None:
        """As :meth:`AsyncProducer.init_transactions`."""
        self._thread.call(self._async.init_transactions, what="producer")

    def begin_transaction(self) -> None:
        """As :meth:`AsyncProducer.begin_transaction`."""

        async def run() -> None:
            self._async.begin_transaction()

        self._thread.call(run, what="producer")

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition | tuple[str, int], OffsetAndMetadata | int],
        group: GroupMetadata | str,
    ) -> None:
        """As :meth:`AsyncProducer.send_offsets_to_transaction`."""
        self._thread.call(lambda: self._async.send_offsets_to_transaction(offsets, group), what="producer")

    def commit_transaction(self) -> None:
        """As :meth:`AsyncProducer.commit_transaction`."""

        async def run() -> None:
            await self._hand_over()
            await self._async.commit_transaction()

        try:
            self._thread.call(run, what="producer")
        finally:
            self._async.first_failure = None  # the transaction has it

    def abort_transaction(self) -> None:
        """As :meth:`AsyncProducer.abort_transaction`."""

        async def run() -> None:
            with self._lock:
                self._records = []
            await self._async.abort_transaction()
            self._async.first_failure = None

        self._thread.call(run, what="producer")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """As :meth:`AsyncProducer.transaction`."""
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException:
            if self._async.is_transaction_open:
                self.abort_transaction()
            raise
