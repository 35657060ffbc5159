"""CPU per record of consumers and producers on one broker: kraftlog's beside those of other Python clients.

    python benches/client_bench.py [--bootstrap localhost:9092] [--records 1000000] [--value-bytes 100] [--codec none]

Starts a node of its own without ``--bootstrap``. Fills a topic first if it is not there. Each client runs in a process
of its own, reads or writes ``--records`` records once to warm up and then ``--passes`` times. CPU is that of the
client's process, user and system. Prints the median of the passes, one row of JSON per client. Consumers check the
checksums and read the value of every record; ``kraftlog`` takes Arrow batches instead. ``first-poll`` prints
milliseconds of wall time from the constructor to the first record, the median of 15.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

FETCH_BYTES = 8 << 20
CHUNK_RECORDS = 10_000
FIRST_POLLS = 15


class Work:
    """What a client is to do."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.bootstrap: str = args.bootstrap
        self.topic: str = args.topic
        self.records: int = args.records
        self.value_bytes: int = args.value_bytes
        self.codec: str = args.codec

    def values(self) -> list[bytes]:
        import random

        chance = random.Random(1)
        return [bytes(chance.choices(range(65, 91), k=self.value_bytes)) for _ in range(1000)]


# Each gives the seconds of CPU of one pass after the other


def passes(work: Work, read: Callable[[], int], rewind: Callable[[], None]) -> Iterator[float]:
    while True:
        before, count = time.process_time(), 0
        while count < work.records:
            count += read()
        yield time.process_time() - before
        rewind()


def kraftlog_batches(work: Work) -> Iterator[float]:
    import kraftlog

    settings = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": FETCH_BYTES}
    with kraftlog.Consumer(bootstrap_servers=work.bootstrap, **settings) as consumer:
        consumer.assign([(work.topic, 0)])
        yield from passes(work, lambda: len(consumer.poll(30)), lambda: consumer.seek((work.topic, 0), 0))


def kraftlog_records(work: Work) -> Iterator[float]:
    import kraftlog

    settings = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": FETCH_BYTES}
    with kraftlog.Consumer(bootstrap_servers=work.bootstrap, **settings) as consumer:

        def read() -> int:
            size = count = 0
            for record in consumer.poll_records(30):
                size += len(record.value)
                count += 1
            return count

        consumer.assign([(work.topic, 0)])
        yield from passes(work, read, lambda: consumer.seek((work.topic, 0), 0))


def confluent_fetch(work: Work) -> Iterator[float]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": work.bootstrap,
            "group.id": "bench",
            "check.crcs": True,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1_000_000,
        }
    )

    def read() -> int:
        size = count = 0
        for message in consumer.consume(CHUNK_RECORDS, 10):
            size += len(message.value())
            count += 1
        return count

    def rewind() -> None:
        consumer.assign([confluent_kafka.TopicPartition(work.topic, 0, 0)])

    rewind()
    yield from passes(work, read, rewind)


def aiokafka_fetch(work: Work) -> Iterator[float]:
    import asyncio

    import aiokafka

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def make() -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=work.bootstrap, check_crcs=True, max_partition_fetch_bytes=FETCH_BYTES
        )
        await consumer.start()
        return consumer

    consumer = loop.run_until_complete(make())
    partition = aiokafka.TopicPartition(work.topic, 0)

    async def read_once() -> int:
        size = count = 0
        for found in (await consumer.getmany(timeout_ms=10_000)).values():
            for record in found:
                size += len(record.value)
                count += 1
        return count

    consumer.assign([partition])
    consumer.seek(partition, 0)
    yield from passes(work, lambda: loop.run_until_complete(read_once()), lambda: consumer.seek(partition, 0))


def kafka_python_fetch(work: Work) -> Iterator[float]:
    import kafka

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=work.bootstrap,
        check_crcs=True,
        max_partition_fetch_bytes=FETCH_BYTES,
        max_poll_records=CHUNK_RECORDS,
    )
    partition = kafka.TopicPartition(work.topic, 0)

    def read() -> int:
        size = count = 0
        for found in consumer.poll(10_000).values():
            for record in found:
                size += len(record.value)
                count += 1
        return count

    consumer.assign([partition])
    consumer.seek(partition, 0)
    yield from passes(work, read, lambda: consumer.seek(partition, 0))


def kraftlog_produce(work: Work) -> Iterator[float]:
    import pyarrow as pa

    import kraftlog

    values = work.values() * (CHUNK_RECORDS // 1000)
    chunk = pa.record_batch({"value": pa.array(values, pa.binary())})
    with kraftlog.Producer(bootstrap_servers=work.bootstrap, compression_type=work.codec) as producer:
        while True:
            before = time.process_time()
            for _ in range(0, work.records, CHUNK_RECORDS):
                producer.send_table(work.topic, chunk)
            producer.flush()
            yield time.process_time() - before


def confluent_produce(work: Work) -> Iterator[float]:
    import confluent_kafka

    values = work.values()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": work.bootstrap,
            "compression.type": work.codec,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    while True:
        before = time.process_time()
        for number in range(work.records):
            while True:
                try:
                    producer.produce(work.topic, values[number % 1000], partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush()
        yield time.process_time() - before


def first_polls(work: Work) -> list[float]:
    import kraftlog

    found = []
    for _ in range(FIRST_POLLS):
        begin = time.perf_counter()
        with kraftlog.Consumer(bootstrap_servers=work.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(work.topic, 0)])
            assert len(consumer.poll(10)) > 0
            found.append((time.perf_counter() - begin) * 1000)
    return found


RUNS = {
    "kraftlog": kraftlog_batches,
    "kraftlog-records": kraftlog_records,
    "confluent-kafka": confluent_fetch,
    "aiokafka": aiokafka_fetch,
    "kafka-python": kafka_python_fetch,
    "kraftlog-produce": kraftlog_produce,
    "confluent-kafka-produce": confluent_produce,
}
DEFAULT = (
    "kraftlog",
    "kraftlog-records",
    "confluent-kafka",
    "kraftlog-produce",
    "confluent-kafka-produce",
    "first-poll",
)


def measure(args: argparse.Namespace) -> None:
    work = Work(args)
    found: dict[str, object] = {"client": args.client, "value_bytes": args.value_bytes, "codec": args.codec}
    if args.client == "first-poll":
        times = sorted(first_polls(work))
        found |= {"median_ms": round(statistics.median(times), 1), "least_ms": round(times[0], 1)}
    else:
        if args.client.endswith("produce"):
            work.topic += "-produced"
        run = RUNS[args.client](work)
        next(run)
        faults = resource.getrusage(resource.RUSAGE_SELF)
        times = sorted(next(run) / args.records * 1e9 for _ in range(args.passes))
        after = resource.getrusage(resource.RUSAGE_SELF)
        found |= {
            "cpu_ns_per_record": round(statistics.median(times), 1),
            "least_ns": round(times[0], 1),
            "most_ns": round(times[-1], 1),
            "records_per_cpu_s": round(1e9 / statistics.median(times)),
            "system_share": round(
                (after.ru_stime - faults.ru_stime)
                / (after.ru_stime - faults.ru_stime + after.ru_utime - faults.ru_utime),
                2,
            ),
            "page_faults_per_1000": round((after.ru_minflt - faults.ru_minflt) / args.records / args.passes * 1000, 2),
        }
    print(json.dumps(found), flush=True)
    os._exit(0)


def fill(args: argparse.Namespace) -> None:
    """Make the topic if it is not there."""
    import pyarrow as pa

    import kraftlog
    from kraftlog.errors import KafkaError

    with kraftlog.Consumer(bootstrap_servers=args.bootstrap) as consumer:
        try:
            if sum(consumer.end_offsets([(args.topic, 0)], timeout_s=5).values()) >= args.records:
                return
        except (KafkaError, TimeoutError):
            pass
    values = Work(args).values() * (CHUNK_RECORDS // 1000)
    chunk = pa.record_batch({"value": pa.array(values, pa.binary())})
    with kraftlog.Producer(bootstrap_servers=args.bootstrap, compression_type=args.codec) as producer:
        for _ in range(0, args.records, CHUNK_RECORDS):
            producer.send_table(args.topic, chunk)


SERVER = """
import sys, kraftlog
with kraftlog.Broker() as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--topic")
    parser.add_argument("--client", choices=[*RUNS, "first-poll"], help=argparse.SUPPRESS)
    parser.add_argument("--clients", nargs="+", choices=[*RUNS, "first-poll"], default=DEFAULT)
    args = parser.parse_args()
    if args.client is not None:
        measure(args)
        return
    server = None
    if args.bootstrap is None:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        args.bootstrap = server.stdout.readline().strip()
    with server or nullcontext():
        args.topic = f"bench-{args.value_bytes}-{args.codec}-{args.records}"
        fill(args)
        values = ["bootstrap", "records", "passes", "value_bytes", "codec", "topic"]
        options = [text for name in values for text in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
        for client in args.clients:
            subprocess.run([sys.executable, __file__, *options, "--client", client], check=True)
        if server is not None and server.stdin is not None:
            server.stdin.close()


if __name__ == "__main__":
    main()
