"""The clients that ``kraftlog perf`` can drive: each sends or reads a number of records and counts them in a meter."""

from __future__ import annotations

import asyncio
import glob
import os
import re
import resource
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kraftlog.cli.perf_meter import PerfMeter
from kraftlog.errors import KraftlogError

__all__ = ["CONSUMERS", "PRODUCERS", "PerfWork"]

CHUNK_RECORDS = 10_000
IDLE_S = 10.0
JAVA_HEAP = "-Xmx512m"


class PerfWork:
    """What one connection does.

    Args:
        settings: Kafka's dotted keys.
        topic: Where to, or from.
        values: Sent in turn.
        partitions: Number and first offset of what is read.
        meter: Counts.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        values: Sequence[bytes],
        partitions: Sequence[tuple[int, int]],
        meter: PerfMeter,
    ) -> None:
        self.settings = dict(settings)
        self.topic = topic
        self.values = values
        self.partitions = partitions
        self.meter = meter

    def underscored(self) -> dict[str, Any]:
        """The settings as aiokafka and kafka-python name them."""
        names = {"sasl.username": "sasl_plain_username", "sasl.password": "sasl_plain_password"}
        found: dict[str, Any] = {}
        for key, value in self.settings.items():
            converted: Any = (
                int(value) if value.lstrip("-").isdigit() else {"true": True, "false": False}.get(value, value)
            )
            found[names.get(key, key.replace(".", "_"))] = converted
        if found.get("compression_type") == "none":
            found["compression_type"] = None
        return found


# Producers


def kraftlog_tables(work: PerfWork) -> None:
    """Arrow tables through ``send_table``; latencies are those of batches."""
    from kraftlog.extras import require

    require("arrow", "kraftlog perf produce --client kraftlog")
    import pyarrow as pa

    from kraftlog.client import AsyncProducer

    meter = work.meter
    values = (list(work.values) * (CHUNK_RECORDS // len(work.values) + 1))[:CHUNK_RECORDS]
    chunk = pa.record_batch({"value": pa.array(values, pa.binary())})
    size = len(values[0])

    async def run() -> None:
        async with AsyncProducer(work.settings) as producer:
            sent = 0
            while sent < meter.target:
                rows = min(CHUNK_RECORDS, meter.target - sent)
                await asyncio.sleep(meter.ahead_s(sent + rows))
                begin = time.perf_counter()
                for delivery in await producer.send_table(work.topic, chunk.slice(0, rows)):
                    delivery.add_done_callback(partial(delivered, begin))
                sent += rows
            await producer.flush()

    def delivered(begin: float, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None:
            count = done.result().record_count
            meter.latency(time.perf_counter() - begin, count)
            meter.count(count, count * size)

    asyncio.run(run())


def kraftlog_sends(work: PerfWork) -> None:
    """One ``send`` per record; latencies are those of records."""
    from kraftlog.client import AsyncProducer

    async def run() -> None:
        async with AsyncProducer(work.settings) as producer:
            await _send_each(work, producer.send)
            await producer.flush()

    asyncio.run(run())


async def _send_each(work: PerfWork, send: Callable[..., Awaitable[asyncio.Future[Any]]]) -> None:
    """Send record by record with a client that gives a future for each; some thousands at a time wait."""
    meter = work.meter
    waiting = 0
    has_room = asyncio.Event()

    def delivered(begin: float, size: int, done: asyncio.Future[Any]) -> None:
        nonlocal waiting
        waiting -= 1
        if waiting == CHUNK_RECORDS // 2:
            has_room.set()
        if not done.cancelled() and done.exception() is None:
            meter.latency(time.perf_counter() - begin)
            meter.count(1, size)

    for number in range(meter.target):
        if (ahead_s := meter.ahead_s(number)) > 0:
            await asyncio.sleep(ahead_s)
        value = work.values[number % len(work.values)]
        begin = time.perf_counter()
        future = await send(work.topic, value)
        waiting += 1
        future.add_done_callback(partial(delivered, begin, len(value)))
        if waiting > CHUNK_RECORDS:
            has_room.clear()
            await has_room.wait()


def confluent_produce(work: PerfWork) -> None:
    """confluent-kafka; latencies are those of records."""
    import confluent_kafka

    meter = work.meter
    producer = confluent_kafka.Producer(work.settings)

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            meter.latency(message.latency())
            meter.count(1, len(message.value()))

    for number in range(meter.target):
        if (ahead_s := meter.ahead_s(number)) > 0:
            producer.poll(ahead_s)
        while True:
            try:
                producer.produce(work.topic, work.values[number % len(work.values)], on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def aiokafka_produce(work: PerfWork) -> None:
    """Aiokafka; latencies are those of records."""
    import aiokafka

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(**work.underscored())
        await producer.start()
        try:
            await _send_each(work, producer.send)
            await producer.flush()
        finally:
            await producer.stop()

    asyncio.run(run())


def kafka_python_produce(work: PerfWork) -> None:
    """kafka-python; latencies are those of records."""
    import kafka

    meter = work.meter
    producer = kafka.KafkaProducer(**work.underscored())

    def delivered(_found: Any, begin: float, size: int) -> None:
        meter.latency(time.perf_counter() - begin)
        meter.count(1, size)

    for number in range(meter.target):
        if (ahead_s := meter.ahead_s(number)) > 0:
            time.sleep(ahead_s)
        value = work.values[number % len(work.values)]
        future = producer.send(work.topic, value)
        future.add_callback(delivered, begin=time.perf_counter(), size=len(value))
    producer.flush()
    producer.close()


_JAVA_PRODUCED = re.compile(
    r"([\d.]+) ms avg latency, ([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th"
)


def java_produce(work: PerfWork) -> None:
    """Kafka's ``ProducerPerformance``; it reports the percentiles itself."""
    meter = work.meter
    size = len(work.values[0])
    settings = [f"{key}={value}" for key, value in work.settings.items()]
    rate = str(round(meter.rate)) if meter.rate else "-1"
    text = _java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", work.topic, "--num-records", str(meter.target), "--record-size", str(size)),
        *("--throughput", rate, "--producer-props", *settings),
    )
    found = _JAVA_PRODUCED.search(text)
    if found is None:
        raise KraftlogError(f"ProducerPerformance printed no summary:\n{text[-2000:]}")
    meter.count(meter.target, meter.target * size)
    meter.percentiles = dict(
        zip(("p50_ms", "p95_ms", "p99_ms", "p99.9_ms"), map(float, found.groups()[2:]), strict=True)
    )


# Consumers


def kraftlog_batches(work: PerfWork) -> None:
    """Arrow batches through ``poll``, with the columns of a scan; latencies are those of polls."""
    from kraftlog.extras import require

    require("arrow", "kraftlog perf fetch --client kraftlog")
    import pyarrow as pa
    import pyarrow.compute as pc

    from kraftlog.client import AsyncConsumer

    meter = work.meter

    async def run() -> None:
        async with AsyncConsumer({"auto.offset.reset": "earliest", **work.settings}) as consumer:
            consumer.assign([(work.topic, number) for number, _ in work.partitions])
            for number, offset in work.partitions:
                consumer.seek((work.topic, number), offset)
            while not meter.is_done:
                begin = time.perf_counter()
                batch = await consumer.poll(IDLE_S)
                if batch is None:
                    return
                meter.latency(time.perf_counter() - begin)
                values = pa.record_batch(batch).column("value")
                meter.count(len(batch), pc.sum(pc.binary_length(values)).as_py() or 0)

    asyncio.run(run())


def kraftlog_records(work: PerfWork) -> None:
    """Record objects through ``poll_records``, the value of each read; latencies are those of polls."""
    from kraftlog.client import AsyncConsumer

    meter = work.meter

    async def run() -> None:
        async with AsyncConsumer({"auto.offset.reset": "earliest", **work.settings}) as consumer:
            consumer.assign([(work.topic, number) for number, _ in work.partitions])
            for number, offset in work.partitions:
                consumer.seek((work.topic, number), offset)
            while not meter.is_done:
                begin = time.perf_counter()
                records = await consumer.poll_records(IDLE_S)
                if not records:
                    return
                meter.latency(time.perf_counter() - begin)
                meter.count(len(records), sum(len(record.value or b"") for record in records))

    asyncio.run(run())


def confluent_fetch(work: PerfWork) -> None:
    """confluent-kafka through ``consume``, the value of each record read; latencies are those of calls."""
    import confluent_kafka

    meter = work.meter
    consumer = confluent_kafka.Consumer(
        {"group.id": "kraftlog-perf", "enable.auto.commit": False, "check.crcs": True, **work.settings}
    )
    consumer.assign([confluent_kafka.TopicPartition(work.topic, *partition) for partition in work.partitions])
    while not meter.is_done:
        begin = time.perf_counter()
        messages = consumer.consume(CHUNK_RECORDS, IDLE_S / 5)
        if not messages:
            break
        meter.latency(time.perf_counter() - begin)
        meter.count(len(messages), sum(len(message.value() or b"") for message in messages))
    consumer.close()


def aiokafka_fetch(work: PerfWork) -> None:
    """Aiokafka through ``getmany``; latencies are those of calls."""
    import aiokafka

    meter = work.meter

    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(check_crcs=True, enable_auto_commit=False, **work.underscored())
        await consumer.start()
        try:
            names = {aiokafka.TopicPartition(work.topic, number): offset for number, offset in work.partitions}
            consumer.assign(list(names))
            for name, offset in names.items():
                consumer.seek(name, offset)
            while not meter.is_done:
                begin = time.perf_counter()
                found = await consumer.getmany(timeout_ms=int(IDLE_S * 1000))
                if not found:
                    return
                meter.latency(time.perf_counter() - begin)
                for records in found.values():
                    meter.count(len(records), sum(len(record.value or b"") for record in records))
        finally:
            await consumer.stop()

    asyncio.run(run())


def kafka_python_fetch(work: PerfWork) -> None:
    """kafka-python through ``poll``; latencies are those of polls."""
    import kafka

    meter = work.meter
    consumer = kafka.KafkaConsumer(check_crcs=True, enable_auto_commit=False, **work.underscored())
    names = {kafka.TopicPartition(work.topic, number): offset for number, offset in work.partitions}
    consumer.assign(list(names))
    for name, offset in names.items():
        consumer.seek(name, offset)
    while not meter.is_done:
        begin = time.perf_counter()
        found = consumer.poll(int(IDLE_S * 1000), max_records=CHUNK_RECORDS)
        if not found:
            break
        meter.latency(time.perf_counter() - begin)
        for records in found.values():
            meter.count(len(records), sum(len(record.value or b"") for record in records))
    consumer.close()


def java_fetch(work: PerfWork) -> None:
    """Kafka's ``ConsumerPerformance``, in a group of its own; it measures no latencies."""
    meter = work.meter
    settings = [f"{key}={value}" for key, value in work.settings.items() if key != "bootstrap.servers"]
    properties = [text for setting in settings for text in ("--command-property", setting)]
    text = _java(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", work.settings["bootstrap.servers"], "--topic", work.topic),
        *("--num-records", str(meter.target), "--timeout", str(int(IDLE_S * 1000)), *properties),
    )
    rows = [line.split(", ") for line in text.splitlines() if re.match(r"\d{4}-\d\d-\d\d ", line)]
    if not rows:
        raise KraftlogError(f"ConsumerPerformance printed no row:\n{text[-2000:]}")
    meter.count(int(rows[-1][4]), round(float(rows[-1][2].replace(",", ".")) * 2**20))


def _java(main: str, *arguments: str) -> str:
    libraries = os.environ.get("KAFKA_LIBS")
    if not libraries or not glob.glob(libraries):
        raise KraftlogError("--client java needs KAFKA_LIBS: the jars of Kafka, such as /opt/kafka/libs/*")
    command = ["java", JAVA_HEAP, "-cp", libraries, main, *arguments]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ended.returncode:
        raise KraftlogError(f"{main} failed:\n{ended.stdout[-2000:]}")
    return ended.stdout


def children_cpu_s() -> float:
    """CPU seconds of the processes that this one started and that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


PRODUCERS = {
    "kraftlog": kraftlog_tables,
    "kraftlog-records": kraftlog_sends,
    "confluent": confluent_produce,
    "aiokafka": aiokafka_produce,
    "kafka-python": kafka_python_produce,
    "java": java_produce,
}
CONSUMERS = {
    "kraftlog": kraftlog_batches,
    "kraftlog-records": kraftlog_records,
    "confluent": confluent_fetch,
    "aiokafka": aiokafka_fetch,
    "kafka-python": kafka_python_fetch,
    "java": java_fetch,
}
