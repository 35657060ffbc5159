"""The clients under which a node has to hold: one adapter each, all with the same two verbs.

``write`` sends all records in order with idempotence on and acks=all, in batches of up to 1 MB, and calls ``between``
after the first half without waiting for the acknowledgements, so that a restart meets requests in flight.
``read`` assigns partition 0 from its beginning and returns what came.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from interop.harness import HERE, Java
from interop.workload import NULL_TEXT, Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH_BYTES = 1_000_000
DEADLINE_S = 120.0

Between = Callable[[], None]


class Client(Protocol):
    """What a test needs of a client."""

    name: str
    text_only: bool
    null_header_values: bool  # whether it can write them; all can read them

    def write(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str, between: Between) -> None: ...

    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]: ...


def create_topic(bootstrap: str, topic: str, *, partitions: int = 1, **config: str) -> None:
    """Through librdkafka's admin client; configuration names have underscores for dots."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
    admin.create_topics([new], operation_timeout=30)[topic].result(60)


class ConfluentKafka:
    """librdkafka through confluent-kafka."""

    name = "confluent-kafka"
    text_only = False
    null_header_values = True

    def write(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str, between: Between) -> None:
        from confluent_kafka import Producer

        failed: list[object] = []
        acked = 0

        def on_delivery(error: object, _message: object) -> None:
            nonlocal acked
            if error is not None:
                failed.append(error)
            else:
                acked += 1

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": codec,
                "batch.size": BATCH_BYTES,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
                "on_delivery": on_delivery,
            }
        )
        for index, record in enumerate(records):
            if index == len(records) // 2:
                between()
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=0,
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers),
            )
            if index % 1_000 == 0:
                producer.poll(0)
        left = producer.flush(DEADLINE_S)
        assert not failed, f"confluent-kafka: {len(failed)} records refused, first {failed[0]}"
        assert left == 0, f"confluent-kafka: {left} records without an answer after {DEADLINE_S} s"
        assert acked == len(records)

    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "never-commits",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            got: list[Record] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(got) < count and time.monotonic() < deadline:
                for message in consumer.consume(10_000, 1.0):
                    assert message.error() is None, f"confluent-kafka: {message.error()}"
                    headers = tuple(message.headers() or ())
                    got.append(Record(message.key(), message.value(), headers, message.timestamp()[1]))
            return got
        finally:
            consumer.close()


class Aiokafka:
    """aiokafka on a loop of its own."""

    name = "aiokafka"
    text_only = False
    null_header_values = True

    def write(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str, between: Between) -> None:
        asyncio.run(self._write(bootstrap, topic, records, codec, between))

    async def _write(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str, between: Between) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            acks="all",
            compression_type=None if codec == "none" else codec,
            max_batch_size=BATCH_BYTES,
            max_request_size=1_048_576,
            linger_ms=20,
        )
        async with producer, asyncio.timeout(DEADLINE_S):
            sent = []
            restart: asyncio.Task[None] | None = None
            for index, record in enumerate(records):
                if index == len(records) // 2:
                    restart = asyncio.create_task(asyncio.to_thread(between))
                sent.append(
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=0,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                )
            if restart is not None:
                await restart
            await asyncio.gather(*sent)

    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        return asyncio.run(self._read(bootstrap, topic, count))

    async def _read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, fetch_max_wait_ms=100)
        got: list[Record] = []
        async with consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            deadline = time.monotonic() + DEADLINE_S
            while len(got) < count and time.monotonic() < deadline:
                for messages in (await consumer.getmany(timeout_ms=1_000)).values():
                    got += [Record(m.key, m.value, tuple(m.headers), m.timestamp) for m in messages]
        return got


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"
    text_only = False
    null_header_values = False

    def write(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str, between: Between) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            acks="all",
            compression_type=None if codec == "none" else codec,
            batch_size=BATCH_BYTES,
            max_request_size=1_048_576,
            linger_ms=20,
            reconnect_backoff_max_ms=500,
        )
        try:
            sent = []
            for index, record in enumerate(records):
                if index == len(records) // 2:
                    between()
                sent.append(
                    producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=0,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                )
            producer.flush(DEADLINE_S)
            for future in sent:
                future.get(DEADLINE_S)
        finally:
            producer.close(10)

    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, fetch_max_wait_ms=100, max_poll_records=10_000
        )
        try:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            got: list[Record] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(got) < count and time.monotonic() < deadline:
                for messages in consumer.poll(timeout_ms=1_000).values():
                    got += [Record(m.key, m.value, tuple(m.headers), m.timestamp) for m in messages]
            return got
        finally:
            consumer.close()


class Console:
    """Kafka's own kafka-console-producer and kafka-console-consumer: lines of text through pipes."""

    name = "console"
    text_only = True
    null_header_values = True

    def __init__(self, java: Java) -> None:
        self.java = java

    @staticmethod
    def line(record: Record) -> bytes:
        null = NULL_TEXT.encode()
        headers = b",".join(name.encode() + b":" + (null if data is None else data) for name, data in record.headers)
        parts = (
            headers or null,
            null if record.key is None else record.key,
            null if record.value is None else record.value,
        )
        return b"\t".join(parts) + b"\n"

    @staticmethod
    def parse(line: bytes) -> Record:
        def field(data: bytes) -> bytes | None:
            return None if data == NULL_TEXT.encode() else data

        stamp, headers, key, value = line.split(b"\t", 3)
        pairs = []
        if headers != b"NO_HEADERS":
            for pair in headers.split(b","):
                name, data = pair.split(b":", 1)
                pairs.append((name.decode(), field(data)))
        return Record(field(key), field(value), tuple(pairs), int(stamp.split(b":", 1)[1]))

    def write(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str, between: Between) -> None:
        command = self.java.command(
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec),
            *("--batch-size", str(BATCH_BYTES), "--timeout", "20", "--request-required-acks", "all"),
            *("--message-send-max-retries", "2147483647", "--request-timeout-ms", "30000", "--retry-backoff-ms", "50"),
            *("--command-property", "enable.idempotence=true", "--command-property", "reconnect.backoff.max.ms=500"),
            *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
            *("--reader-property", f"null.marker={NULL_TEXT}"),
        )
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            output: list[bytes] = []
            drains = [
                threading.Thread(target=lambda s=s: output.append(s.read())) for s in (process.stdout, process.stderr)
            ]
            for drain in drains:
                drain.start()
            assert process.stdin is not None
            # A producer that died closes the pipe; its own words are shown below.
            with contextlib.suppress(BrokenPipeError):
                for index, record in enumerate(records):
                    if index == len(records) // 2:
                        between()
                    process.stdin.write(self.line(record))
                process.stdin.close()
            try:
                code = process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            for drain in drains:
                drain.join()
        said = b"".join(output).decode(errors="replace")
        assert code == 0, f"console producer ended with {code}\n{said[-4000:]}"
        assert "ERROR" not in said, f"console producer complains\n{said[:4000]}"

    def read(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        properties = ("print.timestamp=true", "print.headers=true", "print.key=true", f"null.literal={NULL_TEXT}")
        command = self.java.command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"),
            *("--max-messages", str(count), "--timeout-ms", "30000"),
            *[part for text in properties for part in ("--formatter-property", text)],
        )
        done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
        lines = done.stdout.split(b"\n")[:-1]
        assert lines or done.returncode == 0, f"console consumer: {done.stderr.decode(errors='replace')[-4000:]}"
        return [self.parse(line) for line in lines]


class JavaDigest:
    """RoundTrip.java: the Java consumer, reading any bytes and saying the SHA-256 of them."""

    name = "java"

    def __init__(self, java: Java) -> None:
        self.java = java

    def digests(self, bootstrap: str, topics: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Record count and digest of partition 0 of each topic."""
        source = str(HERE / "java" / "RoundTrip.java")
        done = self.java.tool(source, bootstrap, *topics, timeout=DEADLINE_S)
        rows = [line.split() for line in done.stdout.splitlines() if line]
        return {topic: (int(count), sha) for topic, count, sha in rows}
