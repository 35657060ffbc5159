"""Milliseconds from ``subscribe`` of a new group to its first record: several clients, kraftlog and Apache Kafka 4.3.1.

The topic of groups exists, as does the client's library in memory; ``group.initial.rebalance.delay.ms`` is 0. A time
begins before the consumer is made, so that its connections and its metadata count. Groups of the two protocols, of all
clients and servers take turns. Cells are the median and, in brackets, the least and the most.

    .ci/dev jars && .venv/bin/python benches/new_group.py            15 groups per cell, one minute
    .venv/bin/python benches/new_group.py --groups 5 --servers kraftlog
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]

from interop.clients import create_topic  # noqa: E402
from interop.harness import Java, KafkaServer, KraftlogServer, Server  # noqa: E402

CONFIG = {"offsets.topic.num.partitions": "50", "group.initial.rebalance.delay.ms": "0"}
TIMEOUT_S = 60.0
TOPIC = "new-group"
Read = Callable[[str, str, str], float]
"""From server, group and protocol to the time that the first record came, in seconds of ``time.perf_counter``."""


def of_kraftlog(bootstrap: str, group: str, protocol: str) -> float:
    """``kraftlog.Consumer``."""
    import kraftlog

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    with kraftlog.Consumer(settings | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([TOPIC])
        if consumer.poll(timeout_s=TIMEOUT_S) is None:
            raise SystemExit("no record came")
        return time.perf_counter()


def of_librdkafka(bootstrap: str, group: str, protocol: str) -> float:
    """confluent-kafka."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 10})
    try:
        consumer.subscribe([TOPIC])
        record = consumer.poll(TIMEOUT_S)
        if record is None or record.error():
            raise SystemExit(f"no record came: {record and record.error()}")
        return time.perf_counter()
    finally:
        consumer.close()


def of_aiokafka(bootstrap: str, group: str, _protocol: str) -> float:
    """aiokafka, which has the classic protocol alone."""
    from aiokafka import AIOKafkaConsumer

    async def read() -> float:
        consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
        await consumer.start()
        try:
            await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            return time.perf_counter()
        finally:
            await consumer.stop()

    return asyncio.run(read())


CLIENTS: dict[tuple[str, str], Read] = {
    ("kraftlog.Consumer", "classic"): of_kraftlog,
    ("kraftlog.Consumer", "consumer"): of_kraftlog,
    ("aiokafka", "classic"): of_aiokafka,
    ("librdkafka", "classic"): of_librdkafka,
    ("librdkafka", "consumer"): of_librdkafka,
}


def write_one(bootstrap: str) -> None:
    """Create the topic with one partition and one record."""
    from confluent_kafka import Producer

    create_topic(bootstrap, TOPIC)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(TOPIC, b"v", partition=0)
    if producer.flush(30):
        raise SystemExit("the record was not acknowledged")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=15)
    parser.add_argument("--servers", default="kraftlog,kafka")
    args = parser.parse_args()
    java = Java(os.environ.get("KAFKA_LIBS", str(ROOT / "tests/interop/target/libs/*")))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"# {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load}")
    times_ms: dict[tuple[str, str], dict[str, list[float]]] = {cell: {} for cell in CLIENTS}
    with ExitStack() as ends:
        home = Path(tempfile.mkdtemp(prefix="new-group-bench-"))
        ends.callback(shutil.rmtree, home, ignore_errors=True)
        servers: list[Server] = []
        for kind in args.servers.split(","):
            path = home / kind
            server = (
                KafkaServer(path, java, CONFIG, heap="1g", fast_start=False)
                if kind == "kafka"
                else KraftlogServer(path, CONFIG)
            )
            server.format()
            ends.callback(server.kill)
            server.start()
            write_one(server.bootstrap)
            servers.append(server)
        # The first groups create the topic of groups and load the libraries; they are not kept.
        for number in range(-2, args.groups):
            for server in servers if number % 2 else servers[::-1]:
                for (client, protocol), read in CLIENTS.items():
                    began = time.perf_counter()
                    ended = read(server.bootstrap, f"{client}-{protocol}-{number}", protocol)
                    if number >= 0:
                        times_ms[client, protocol].setdefault(server.name, []).append((ended - began) * 1000)
    names = [server.name for server in servers]
    print("| client, protocol | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for (client, protocol), by_server in times_ms.items():
        cells = (f"{statistics.median(v):.0f} ({min(v):.0f}-{max(v):.0f})" for v in map(by_server.__getitem__, names))
        print(f"| {client}, {protocol} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
