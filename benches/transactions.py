"""Transactions on a kraftlog node and on Apache Kafka 4.3.1 in alternation: one client, one configuration, all warmed.

A transaction is ten records of 100 bytes to three partitions, and a commit. The client is confluent-kafka in a process
of its own: one producer, or a hundred at the same time, each with its own transactional id. Rates and times are what
the client measures; CPU is the server's own, from /proc. kraftlog runs twice, with ``log.flush.on.ack`` off, which is
Kafka's durability, and on. The table shows the median of the rounds and, in brackets, the least and the most.

    .ci/dev jars && .venv/bin/python benches/transactions.py          three rounds, some six minutes
    .venv/bin/python benches/transactions.py --rounds 1 --seconds 4   a glance
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benches"), str(ROOT / "python")]

from node_bench import cpu_seconds, memory_mb  # noqa: E402

from interop.clients import create_topic  # noqa: E402
from interop.harness import Java, KafkaServer, KraftlogServer, Server  # noqa: E402

PARTITIONS = 3
RECORDS = 10
VALUE = bytes(100)
PRODUCERS = (1, 100)
TIMEOUT_S = 60.0
# The only node has the only replica of the internal topics.
CONFIG = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
UNITS = {
    "transactions_s": ("transactions/s", "{:,.0f}"),
    "p50_ms": ("p50 ms", "{:.1f}"),
    "p99_ms": ("p99 ms", "{:.1f}"),
    "cpu_us": ("server CPU us/transaction", "{:,.0f}"),
    "rss_MB": ("RSS MB", "{:.0f}"),
}


def run_producers(bootstrap: str, topic: str, count: int, seconds: float) -> dict[str, float]:
    """Commit transactions from ``count`` producers at the same time; the body of the client's process."""
    from confluent_kafka import Producer

    times_ms: list[list[float]] = [[] for _ in range(count)]
    ready = threading.Barrier(count + 1)
    is_over = threading.Event()
    failures: list[BaseException] = []

    def produce(number: int) -> None:
        try:
            settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{number}", "linger.ms": 0}
            producer = Producer(settings)
            producer.init_transactions(TIMEOUT_S)
            ready.wait(TIMEOUT_S)
            # At least one each: on a busy machine a hundred of them may take longer than the row.
            while not (is_over.is_set() and times_ms[number]):
                began = time.perf_counter()
                producer.begin_transaction()
                for record in range(RECORDS):
                    producer.produce(topic, VALUE, partition=record % PARTITIONS)
                producer.commit_transaction(TIMEOUT_S)
                times_ms[number].append((time.perf_counter() - began) * 1000)
        except BaseException as error:
            failures.append(error)
            ready.abort()
            raise

    threads = [threading.Thread(target=produce, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    ready.wait(TIMEOUT_S)
    # The parent reads the server's CPU time at these two lines.
    print("begin", flush=True)
    began = time.perf_counter()
    time.sleep(seconds)
    is_over.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    elapsed_s = time.perf_counter() - began
    if failures:
        raise failures[0]
    every = sorted(value for of_one in times_ms for value in of_one)
    return {
        "count": len(every),
        "transactions_s": len(every) / elapsed_s,
        "p50_ms": every[len(every) // 2],
        "p99_ms": every[len(every) * 99 // 100],
    }


def measure(server: Server, topic: str, count: int, seconds: float) -> dict[str, float]:
    """One row: the client's figures and what the server used meanwhile."""
    assert server.process is not None
    command = [sys.executable, __file__, "--client", server.bootstrap, topic, str(count), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        begun = client.stdout.readline().strip()
        before = cpu_seconds(server.process.pid)
        said = client.stdout.readline()
        used = cpu_seconds(server.process.pid) - before
    if begun != "begin" or client.returncode or not said:
        raise SystemExit(f"the client of {server.name} ended with {client.returncode}")
    row: dict[str, float] = json.loads(said)
    row["cpu_us"] = used / row.pop("count") * 1e6
    row["rss_MB"] = memory_mb(server.process.pid)
    return row


def make(kind: str, home: Path, java: Java, heap: str) -> Server:
    """kafka, or kraftlog with and without flushes before acknowledgements."""
    if kind == "kafka":
        return KafkaServer(home, java, CONFIG, heap=heap, fast_start=False)
    server = KraftlogServer(home, CONFIG | {"log.flush.on.ack": str(kind == "flushed").lower()})
    server.name = f"kraftlog, log.flush.on.ack={str(kind == 'flushed').lower()}"
    return server


def table(found: dict[tuple[int, str], list[dict[str, float]]]) -> str:
    lines = ["| producers | server | " + " | ".join(title for title, _ in UNITS.values()) + " |"]
    lines.append("|---" * (len(UNITS) + 2) + "|")
    for (count, server), rows in found.items():
        cells = []
        for key, (_, form) in UNITS.items():
            values = [row[key] for row in rows]
            cell = form.format(statistics.median(values))
            if len(values) > 1:
                cell += f" ({form.format(min(values))}-{form.format(max(values))})"
            cells.append(cell)
        lines.append(f"| {count} | {server} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    if sys.argv[1:2] == ["--client"]:
        bootstrap, topic, count, seconds = sys.argv[2:]
        print(json.dumps(run_producers(bootstrap, topic, int(count), float(seconds))), flush=True)
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12, help="of each row")
    parser.add_argument("--servers", default="page-cache,flushed,kafka")
    parser.add_argument("--heap", default="1g", help="of Kafka")
    args = parser.parse_args()
    java = Java(os.environ.get("KAFKA_LIBS", str(ROOT / "tests/interop/target/libs/*")))
    print(f"# {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}", flush=True)
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    with ExitStack() as ends:
        home = Path(tempfile.mkdtemp(prefix="transactions-bench-"))
        ends.callback(shutil.rmtree, home, ignore_errors=True)
        servers = []
        for kind in args.servers.split(","):
            server = make(kind, home / kind, java, args.heap)
            server.format()
            ends.callback(server.kill)
            server.start()
            servers.append(server)
        for number in range(args.rounds + 1):
            for count in PRODUCERS:
                for server in servers if number % 2 else servers[::-1]:
                    topic = f"bench-{uuid.uuid4().hex[:6]}"
                    create_topic(server.bootstrap, topic, partitions=PARTITIONS)
                    row = measure(server, topic, count, args.seconds if number else args.seconds / 2)
                    # Round 0 warms all of them; it is shown, and not kept.
                    if number:
                        found.setdefault((count, server.name), []).append(row)
                    shown = {key: round(value, 3) for key, value in row.items()}
                    print(json.dumps({"round": number, "producers": count, "server": server.name} | shown), flush=True)
    print()
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
