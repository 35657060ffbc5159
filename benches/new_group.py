"""Milliseconds from the making of a consumer in a new group to its first record, beside Apache Kafka 4.3.1.

The topic of groups exists, as does the client's library in memory; ``group.initial.rebalance.delay.ms`` is 0. A time
begins before the consumer is made, so that its connections and its metadata count. Java's consumers run one after the
other in one JVM (first compiler only); franz-go has a process for each, whose start does not count. Groups of the two
protocols, of all clients and servers take turns. Cells are the median and, in brackets, the least and the most.

    .ci/dev jars && .venv/bin/python benches/new_group.py            15 groups per cell, two minutes
    .venv/bin/python benches/new_group.py --groups 5 --servers kraftlog
    .venv/bin/python benches/new_group.py --franz target/franz       franz-go too; `.ci/dev franz` builds the program
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]

from interop.clients import create_topic  # noqa: E402
from interop.harness import HERE, Java, KafkaServer, KraftlogServer, Server  # noqa: E402

CONFIG = {"offsets.topic.num.partitions": "50", "group.initial.rebalance.delay.ms": "0"}
TIMEOUT_S = 60.0
TOPIC = "new-group"
Read = Callable[[str, str, str], float]
"""From server, group and protocol to the milliseconds until the first record came."""


def milliseconds_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def of_kraftlog(bootstrap: str, group: str, protocol: str) -> float:
    """``kraftlog.Consumer``."""
    import kraftlog

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    began = time.perf_counter()
    with kraftlog.Consumer(settings | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([TOPIC])
        if consumer.poll(timeout_s=TIMEOUT_S) is None:
            raise SystemExit("no record came")
        return milliseconds_since(began)


def of_librdkafka(bootstrap: str, group: str, protocol: str) -> float:
    """confluent-kafka."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    began = time.perf_counter()
    consumer = Consumer(settings | {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 10})
    try:
        consumer.subscribe([TOPIC])
        record = consumer.poll(TIMEOUT_S)
        if record is None or record.error():
            raise SystemExit(f"no record came: {record and record.error()}")
        return milliseconds_since(began)
    finally:
        consumer.close()


def of_aiokafka(bootstrap: str, group: str, _protocol: str) -> float:
    """aiokafka, which has the classic protocol alone."""
    from aiokafka import AIOKafkaConsumer

    async def read() -> float:
        began = time.perf_counter()
        consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
        await consumer.start()
        try:
            await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            return milliseconds_since(began)
        finally:
            await consumer.stop()

    return asyncio.run(read())


def of_java(java: Java) -> Read:
    """Kafka's own consumer."""

    def read(bootstrap: str, group: str, protocol: str) -> float:
        source = str(HERE / "java" / "NewGroup.java")
        done = java.tool(source, bootstrap, TOPIC, group, protocol, str(round(TIMEOUT_S)), timeout=2 * TIMEOUT_S)
        return float(done.stdout)

    return read


def of_franz(program: Path) -> Read:
    """franz-go, by the program of tests/interop/franz."""

    def read(bootstrap: str, group: str, protocol: str) -> float:
        command = [str(program), "new-group", bootstrap, TOPIC, group, protocol, str(round(TIMEOUT_S))]
        return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=2 * TIMEOUT_S).stdout)

    return read


def clients(java: Java, franz: Path | None) -> dict[tuple[str, str], Read]:
    """By name and protocol."""
    found: dict[tuple[str, str], Read] = {
        ("kraftlog.Consumer", "classic"): of_kraftlog,
        ("kraftlog.Consumer", "consumer"): of_kraftlog,
        ("aiokafka", "classic"): of_aiokafka,
        ("librdkafka", "classic"): of_librdkafka,
        ("librdkafka", "consumer"): of_librdkafka,
        ("Java", "classic"): of_java(java),
        ("Java", "consumer"): of_java(java),
    }
    if franz is not None:
        found |= {("franz-go", protocol): of_franz(franz) for protocol in ("classic", "consumer")}
    return found


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
    parser.add_argument("--franz", type=Path, help="program of tests/interop/franz; without it no franz-go")
    args = parser.parse_args()
    java = Java(os.environ.get("KAFKA_LIBS", str(ROOT / "tests/interop/target/libs/*")))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"# {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load}")
    cells = clients(java, args.franz)
    times_ms: dict[tuple[str, str], dict[str, list[float]]] = {cell: {} for cell in cells}
    with ExitStack() as ends:
        ends.callback(java.close)
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
                for (client, protocol), read in cells.items():
                    took_ms = read(server.bootstrap, f"{client}-{protocol}-{number}", protocol)
                    if number >= 0:
                        times_ms[client, protocol].setdefault(server.name, []).append(took_ms)
    names = [server.name for server in servers]
    print("| client, protocol | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for (client, protocol), by_server in times_ms.items():
        texts = (f"{statistics.median(v):.0f} ({min(v):.0f}-{max(v):.0f})" for v in map(by_server.__getitem__, names))
        print(f"| {client}, {protocol} | " + " | ".join(texts) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
