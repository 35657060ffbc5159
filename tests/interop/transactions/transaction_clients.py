"""What a transactional application does, by each client: one adapter each, all with the same verb.

``run`` commits 30 records, aborts 30, commits 30 more, and loses its transactional id to another instance, which
commits 30. Then it moves the 90 records of ``source`` to ``target`` in transactions with their offsets; one of three of
these is aborted and done again.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from typing import Any, Final, Protocol

from interop.harness import HERE, JVM_FLAGS, JVM_LOG_LEVEL

KEPT: Final = sorted(b"%s-%d" % (what, number) for what in (b"first", b"second", b"successor") for number in range(30))
"""The values that a reader of committed records finds."""
DROPPED: Final = sorted(b"%s-%d" % (what, number) for what in (b"aborted", b"zombie") for number in range(30))
DEADLINE_S: Final = 60.0


class TransactionalClient(Protocol):
    """What a test needs of a client."""

    name: str

    def run(self, bootstrap: str, source: str, target: str, partitions: int) -> None: ...


def _until_moved() -> Iterator[None]:
    """Ends with an error instead of going on for ever."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        yield
    raise AssertionError(f"not all records moved within {DEADLINE_S} s")


class ConfluentKafka:
    """librdkafka through confluent-kafka."""

    name = "confluent-kafka"

    def run(self, bootstrap: str, source: str, target: str, partitions: int) -> None:
        from confluent_kafka import KafkaException

        def producer(transactional_id: str) -> Any:
            from confluent_kafka import Producer

            made = Producer(
                {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 5, "log_level": 0}
            )
            made.init_transactions(DEADLINE_S)
            return made

        def send(sender: Any, what: str) -> None:
            sender.begin_transaction()
            for number in range(30):
                sender.produce(source, f"{what}-{number}", partition=number % partitions)

        first = producer(source)
        for what in ("first", "aborted", "second", "zombie"):
            send(first, what)
            assert first.flush(DEADLINE_S) == 0
            if what == "aborted":
                first.abort_transaction(DEADLINE_S)
            elif what != "zombie":
                first.commit_transaction(DEADLINE_S)
        successor = producer(source)
        with contextlib.suppress(KafkaException):
            first.commit_transaction(DEADLINE_S)
            raise AssertionError("the zombie has committed")
        send(successor, "successor")
        successor.commit_transaction(DEADLINE_S)
        self._move(bootstrap, successor, source, target)

    @staticmethod
    def _move(bootstrap: str, producer: Any, source: str, target: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{source}-group",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([source])
        moved = round_number = 0
        for _ in _until_moved():
            messages = [message for message in consumer.consume(10, 0.5) if message.error() is None]
            if not messages:
                continue
            round_number += 1
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value(), partition=message.partition())
            offsets = [offset for offset in consumer.position(consumer.assignment()) if offset.offset >= 0]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), DEADLINE_S)
            if round_number % 3 == 2:
                producer.abort_transaction(DEADLINE_S)
                for message in reversed(messages):
                    consumer.seek(TopicPartition(source, message.partition(), message.offset()))
            else:
                producer.commit_transaction(DEADLINE_S)
                moved += len(messages)
            if moved >= len(KEPT):
                break
        consumer.close()


class Aiokafka:
    """aiokafka on a loop of its own."""

    name = "aiokafka"

    def run(self, bootstrap: str, source: str, target: str, partitions: int) -> None:
        asyncio.run(self._run(bootstrap, source, target, partitions))

    async def _run(self, bootstrap: str, source: str, target: str, partitions: int) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
        from aiokafka.errors import ProducerFenced

        async def send(sender: Any, what: str) -> None:
            await sender.begin_transaction()
            sent = [
                await sender.send(source, f"{what}-{number}".encode(), partition=number % partitions)
                for number in range(30)
            ]
            await asyncio.gather(*sent)

        first = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=source)
        await first.start()
        for what in ("first", "aborted", "second", "zombie"):
            await send(first, what)
            if what == "aborted":
                await first.abort_transaction()
            elif what != "zombie":
                await first.commit_transaction()
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=source)
        await producer.start()
        with contextlib.suppress(ProducerFenced):
            await first.commit_transaction()
            raise AssertionError("the zombie has committed")
        with contextlib.suppress(ProducerFenced):
            await first.stop()
        await send(producer, "successor")
        await producer.commit_transaction()

        group = f"{source}-group"
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        moved = round_number = 0
        for _ in _until_moved():
            found = await consumer.getmany(timeout_ms=500, max_records=10)
            if not found:
                continue
            round_number += 1
            await producer.begin_transaction()
            for partition, messages in found.items():
                for message in messages:
                    await producer.send(target, message.value, partition=partition.partition)
            offsets = {partition: messages[-1].offset + 1 for partition, messages in found.items()}
            await producer.send_offsets_to_transaction(offsets, group)
            if round_number % 3 == 2:
                await producer.abort_transaction()
                for partition, messages in found.items():
                    consumer.seek(partition, messages[0].offset)
            else:
                await producer.commit_transaction()
                moved += sum(len(messages) for messages in found.values())
            if moved >= len(KEPT):
                break
        await consumer.stop()
        await producer.stop()


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"

    def run(self, bootstrap: str, source: str, target: str, partitions: int) -> None:
        from kafka import KafkaConsumer, KafkaProducer
        from kafka.errors import KafkaError
        from kafka.structs import OffsetAndMetadata

        def send(sender: Any, what: str) -> None:
            sender.begin_transaction()
            for number in range(30):
                sender.send(source, f"{what}-{number}".encode(), partition=number % partitions)
            sender.flush(DEADLINE_S)

        first = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=source)
        first.init_transactions()
        for what in ("first", "aborted", "second", "zombie"):
            send(first, what)
            if what == "aborted":
                first.abort_transaction()
            elif what != "zombie":
                first.commit_transaction()
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=source)
        producer.init_transactions()
        with contextlib.suppress(KafkaError):
            first.commit_transaction()
            raise AssertionError("the zombie has committed")
        first.close(0)
        send(producer, "successor")
        producer.commit_transaction()

        consumer = KafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=f"{source}-group",
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        moved = round_number = 0
        for _ in _until_moved():
            found = consumer.poll(timeout_ms=500, max_records=10)
            if not found:
                continue
            round_number += 1
            producer.begin_transaction()
            for partition, messages in found.items():
                for message in messages:
                    producer.send(target, message.value, partition=partition.partition)
            offsets = {
                partition: OffsetAndMetadata(messages[-1].offset + 1, "", -1) for partition, messages in found.items()
            }
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if round_number % 3 == 2:
                producer.abort_transaction()
                for partition, messages in found.items():
                    consumer.seek(partition, messages[0].offset)
            else:
                producer.commit_transaction()
                moved += sum(len(messages) for messages in found.values())
            if moved >= len(KEPT):
                break
        consumer.close()
        producer.close()


class JavaClient:
    """Transactions.java with the kafka-clients of a class path."""

    def __init__(self, name: str, libs: str) -> None:
        self.name = name
        self._libs = libs

    def run(self, bootstrap: str, source: str, target: str, partitions: int) -> None:
        program = str(HERE / "java" / "Transactions.java")
        command = ["java", *JVM_FLAGS, JVM_LOG_LEVEL, "-cp", self._libs, program]
        done = subprocess.run(
            [*command, bootstrap, source, target, str(partitions)],
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout.splitlines()[-1] == str(len(KEPT)), done.stdout + done.stderr[-4000:]
