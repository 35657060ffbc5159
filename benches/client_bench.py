"""CPU per record of consumers and producers on one broker: kraftlog's beside those of other clients.

    python benches/client_bench.py --table                                           # the whole table, some ten minutes
    python benches/client_bench.py [--bootstrap localhost:9092] [--records 1000000] [--value-bytes 100] [--codec none]

Starts a node of its own without ``--bootstrap``. Fills a topic first if it is not there. Each client runs in a process
of its own, reads or writes ``--records`` records once to warm up, a tenth of them if it makes objects in Python, and
then up to ``--passes`` times, at least three times but no new pass after ``--seconds``. CPU is that of the client's
process, user and system. Prints the median of the passes, one row of JSON per client. Consumers check the checksums
and read the value of every record; ``kraftlog`` takes Arrow batches instead, and ``kraftlog-view`` Arrow batches whose
values are views of what was received. ``java`` is ``ConsumerPerformance`` of the jars in ``KAFKA_LIBS``, one pass, less
what a run for one record costs; it checks no checksums. ``franz-go`` is the program of ``tests/interop/franz`` that
``FRANZ`` names.
``first-poll`` prints milliseconds of wall time from the constructor to the first record, the median of 15.

``--table`` runs 100 and 1000 bytes with each codec, and prints Markdown after the rows of JSON. ``--values words`` are
words of a small vocabulary, of which every codec makes a half or less; ``letters`` are random capital letters, which
LZ4 and snappy cannot compress.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Literal

FETCH_BYTES = 8 << 20
CHUNK_RECORDS = 10_000
FIRST_POLLS = 15
PASSES_MIN = 3
SIZES = {100: 500_000, 1000: 100_000}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# These make objects in Python for each record and need seconds where others need a tenth.
SLOW = frozenset(("aiokafka", "kafka-python"))


class Work:
    """What a client is to do."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.bootstrap: str = args.bootstrap
        self.topic: str = args.topic
        self.records: int = args.records
        self.value_bytes: int = args.value_bytes
        self.codec: str = args.codec
        self.are_words: bool = args.values == "words"

    def values(self) -> list[bytes]:
        import random

        chance = random.Random(1)
        if self.are_words:
            words = [bytes(chance.choices(range(97, 123), k=chance.randrange(3, 10))) + b" " for _ in range(500)]
            texts = (b"".join(chance.choices(words, k=self.value_bytes // 4)) for _ in range(1000))
            return [text[: self.value_bytes] for text in texts]
        return [bytes(chance.choices(range(65, 91), k=self.value_bytes)) for _ in range(1000)]


# Each gives the seconds of CPU of one pass after the other


def passes(work: Work, read: Callable[[], int], rewind: Callable[[], None]) -> Iterator[float]:
    while True:
        before, count = time.process_time(), 0
        while count < work.records:
            count += read()
        yield time.process_time() - before
        rewind()


def kraftlog_batches(work: Work, binary_type: Literal["binary", "binary_view"] = "binary") -> Iterator[float]:
    import kraftlog

    settings = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": FETCH_BYTES}
    with kraftlog.Consumer(bootstrap_servers=work.bootstrap, binary_type=binary_type, **settings) as consumer:
        consumer.assign([(work.topic, 0)])
        yield from passes(work, lambda: len(consumer.poll(30)), lambda: consumer.seek((work.topic, 0), 0))


def kraftlog_views(work: Work) -> Iterator[float]:
    yield from kraftlog_batches(work, "binary_view")


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
        consumer.assign([partition])
        consumer.seek(partition, 0)
        return consumer

    partition = aiokafka.TopicPartition(work.topic, 0)
    consumer = loop.run_until_complete(make())

    async def read_once() -> int:
        size = count = 0
        for found in (await consumer.getmany(timeout_ms=10_000)).values():
            for record in found:
                size += len(record.value)
                count += 1
        return count

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


def java_fetch(work: Work) -> Iterator[float]:
    command = ["java", "-Xmx512m", "-cp", os.environ["KAFKA_LIBS"], "org.apache.kafka.tools.ConsumerPerformance"]
    command += ["--bootstrap-server", work.bootstrap, "--topic", work.topic, "--timeout", "10000"]
    command += ["--fetch-size", str(FETCH_BYTES)]

    def cpu_s(records: int) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        asked = [*command, "--num-records", str(records)]
        subprocess.run(asked, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    while True:
        yield max(cpu_s(work.records) - cpu_s(1), 0.0)


def franz_fetch(work: Work) -> Iterator[float]:
    command = [os.environ["FRANZ"], "consume", work.bootstrap, work.topic, str(work.records), "100", str(FETCH_BYTES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            for line in program.stdout:
                yield float(line) * work.records / 1e9
        finally:
            program.kill()


RUNS = {
    "kraftlog": kraftlog_batches,
    "kraftlog-view": kraftlog_views,
    "kraftlog-records": kraftlog_records,
    "confluent-kafka": confluent_fetch,
    "aiokafka": aiokafka_fetch,
    "kafka-python": kafka_python_fetch,
    "java": java_fetch,
    "franz-go": franz_fetch,
    "kraftlog-produce": kraftlog_produce,
    "confluent-kafka-produce": confluent_produce,
}
# Programs that have to be there.
NEEDED = {"java": "KAFKA_LIBS", "franz-go": "FRANZ"}
DEFAULT = (*(name for name in RUNS if NEEDED.get(name, "PATH") in os.environ), "first-poll")


def measure(args: argparse.Namespace) -> None:
    work = Work(args)
    found: dict[str, Any] = {"client": args.client, "value_bytes": args.value_bytes, "codec": args.codec}
    if args.client == "first-poll":
        times = sorted(first_polls(work))
        found |= {"median_ms": round(statistics.median(times), 1), "least_ms": round(times[0], 1)}
    else:
        if args.client.endswith("produce"):
            work.topic += "-produced"
        if args.client in SLOW:
            work.records = max(work.records // 10, CHUNK_RECORDS)
        run = RUNS[args.client](work)
        if args.client != "java":  # each of its passes is a process
            next(run)
        faults = resource.getrusage(resource.RUSAGE_SELF)
        begin = time.monotonic()
        times = []
        least = 1 if args.client == "java" else PASSES_MIN
        while len(times) < args.passes and (len(times) < least or time.monotonic() - begin < args.seconds):
            times.append(next(run) / work.records * 1e9)
        run.close()
        count = len(times) * work.records
        times.sort()
        after = resource.getrusage(resource.RUSAGE_SELF)
        system_s = after.ru_stime - faults.ru_stime
        found |= {
            "cpu_ns_per_record": round(statistics.median(times), 1),
            "least_ns": round(times[0], 1),
            "most_ns": round(times[-1], 1),
            "passes": len(times),
            "records_per_cpu_s": round(1e9 / max(statistics.median(times), 1e-3)),
            "system_share": round(system_s / max(system_s + after.ru_utime - faults.ru_utime, 1e-9), 2),
            "page_faults_per_1000": round((after.ru_minflt - faults.ru_minflt) / count * 1000, 2),
        }
    print(json.dumps(found), flush=True)
    os._exit(0)


def markdown(rows: Sequence[dict[str, Any]], clients: Sequence[str]) -> str:
    """Nanoseconds per record, median with the least and the most, one line per size and codec."""
    cells: dict[tuple[int, str], dict[str, str]] = {}
    for row in rows:
        if "cpu_ns_per_record" in row:
            text = f"{row['cpu_ns_per_record']:.0f} ({row['least_ns']:.0f} to {row['most_ns']:.0f})"
            cells.setdefault((row["value_bytes"], row["codec"]), {})[row["client"]] = text
    shown = [client for client in clients if any(client in found for found in cells.values())]
    lines = [["bytes", "codec", *shown], ["---"] * (2 + len(shown))]
    lines += [[str(size), codec, *(found.get(name, "") for name in shown)] for (size, codec), found in cells.items()]
    polls = [f"{row['median_ms']}" for row in rows if "median_ms" in row]
    note = f"\nFirst poll, median ms of {FIRST_POLLS}, one per topic: {', '.join(polls)}" if polls else ""
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + note


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
        print(f"filling {args.topic}", file=sys.stderr, flush=True)
        for _ in range(0, args.records, CHUNK_RECORDS):
            producer.send_table(args.topic, chunk)


SERVER = """
import sys, kraftlog
with kraftlog.Broker() as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


def run_clients(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Each client of one topic in a process of its own."""
    args.topic = f"bench-{args.values}-{args.value_bytes}-{args.codec}-{args.records}"
    fill(args)
    values = ["bootstrap", "records", "passes", "seconds", "value_bytes", "codec", "values", "topic"]
    options = [text for name in values for text in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
    rows = []
    for client in args.clients:
        command = [sys.executable, __file__, *options, "--client", client]
        ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if ended.returncode:  # such as a codec whose package is not installed
            print(f"no figure for {client}, {args.value_bytes} bytes, {args.codec}", file=sys.stderr, flush=True)
            continue
        print(ended.stdout, end="", flush=True)
        rows.append(json.loads(ended.stdout))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--bootstrap")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--codec", choices=CODECS, default="none")
    parser.add_argument("--values", choices=["words", "letters"], default="words")
    parser.add_argument("--topic", help=argparse.SUPPRESS)
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
        rows = []
        for size in SIZES if args.table else [args.value_bytes]:
            for codec in CODECS if args.table else [args.codec]:
                args.value_bytes, args.codec = size, codec
                args.records = SIZES[size] if args.table else args.records
                rows += run_clients(args)
        if args.table:
            print(markdown(rows, args.clients))
        if server is not None and server.stdin is not None:
            server.stdin.close()


if __name__ == "__main__":
    main()
