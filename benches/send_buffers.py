"""How fast clients read from servers with send buffers of their own tuning and of 100 KiB, Kafka's default.

Three servers get the same records: a kraftlog node, one with ``socket.send.buffer.bytes=102400``, and Apache Kafka
4.3.1. Each client reads them from each server in turn, after one round that only warms; the table shows the median of
the rounds and, in brackets, the least and the most. All records are in the page cache.

    .ci/dev jars && .venv/bin/python benches/send_buffers.py
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from node_bench import CONSUMER_BUFFER_BYTES, ROOT, TOOL_BUFFER_BYTES, Client

from interop.harness import Java, KafkaServer, KraftlogServer, Server

FIXED = {"socket.send.buffer.bytes": "102400"}
SLOW_SHARE = 10  # aiokafka reads so much less


def perf(client: str) -> Callable[[Server, str, int, int], float]:
    """What ``kraftlog perf fetch`` says of a Python client, in records per second."""

    def run(server: Server, topic: str, count: int, _size: int) -> float:
        if client == "aiokafka":
            count //= SLOW_SHARE
        os.sync()
        command = [sys.executable, "-m", "kraftlog", "perf", "fetch", "--bootstrap-server", server.bootstrap]
        command += ["--topic", topic, "--client", client, "--records", str(count), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        return float(json.loads(done.stdout)["records_per_s"])

    return run


def clients(kafka_client: Client) -> dict[str, Callable[[Server, str, int, int], float]]:
    """Gives records per second, by the name in the table."""

    def java(buffer_bytes: int) -> Callable[[Server, str, int, int], float]:
        return lambda server, topic, count, size: kafka_client.consume(server, topic, count, size, buffer_bytes)[
            "records_s"
        ]

    return {
        "ConsumerPerformance, receive buffer 2 MiB": java(TOOL_BUFFER_BYTES),
        "ConsumerPerformance, receive buffer 64 KiB": java(CONSUMER_BUFFER_BYTES),
        "`kraftlog.Consumer`": perf("kraftlog"),
        "confluent-kafka": perf("confluent"),
        "aiokafka": perf("aiokafka"),
    }


def cell(rates: list[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=500, help="of values in each topic")
    arguments = parser.parse_args()
    java = Java(os.environ.get("KAFKA_LIBS", str(ROOT / "tests/interop/target/libs/*")))
    kafka_client = Client(java, "all")
    node = {"log.flush.on.ack": "false", "kraftlog.data.path": "native"}
    with ExitStack() as ends:
        home = Path(tempfile.mkdtemp(prefix="send-buffers-"))
        ends.callback(shutil.rmtree, home, ignore_errors=True)
        servers: list[Server] = [
            KraftlogServer(home / "kraftlog", node),
            KraftlogServer(home / "fixed", node | FIXED),
            KafkaServer(home / "kafka", java, {}, heap="1g", fast_start=False),
        ]
        for server in servers:
            server.format()
            ends.callback(server.kill)
            server.start()
        print("| client, records/s | bytes | kraftlog | kraftlog, send buffer 100 KiB | Kafka 4.3.1 |")
        print("|---|---|---|---|---|")
        for size in (100, 1000):
            count = arguments.megabytes * 1_000_000 // size
            topics = [kafka_client.create_topic(server, size) for server in servers]
            for server, topic in zip(servers, topics, strict=True):
                kafka_client.produce(server, topic, count, size, "batch.size=262144", "linger.ms=10")
            for name, run in clients(kafka_client).items():
                rates: list[list[float]] = [[] for _ in servers]
                for number in range(arguments.rounds + 1):
                    for place in range(len(servers)) if number % 2 else reversed(range(len(servers))):
                        rate = run(servers[place], topics[place], count, size)
                        if number:
                            rates[place].append(rate)
                print(f"| {name} | {size} | " + " | ".join(map(cell, rates)) + " |", flush=True)


if __name__ == "__main__":
    main()
