"""A kraftlog node and Apache Kafka 4.3.1 in alternation on this machine: one client, one configuration, all warmed.

The node runs once with each data path (``kraftlog.data.path``): native and python.

The client is Kafka's own: ProducerPerformance and ConsumerPerformance in a fresh JVM for every row. Rates are what the
client says; CPU and memory are the server's own, from /proc, so that the client's cost is not in them. A round runs
every case on each server in turn, after one round that only warms both; the table shows the median of the rounds
and, in brackets, the least and the most.

    .ci/dev jars && .venv/bin/python benches/node_bench.py            three rounds, some ten minutes
    .venv/bin/python benches/node_bench.py --rounds 1 --megabytes 50  a glance
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benches")]

from data_path.servers import data_paths, path_config  # noqa: E402

from interop.harness import Java, KafkaServer, KraftlogServer, Server  # noqa: E402

CLIENT_FLAGS = ("-Xmx512m",)  # as kafka-producer-perf-test runs it
TICKS = os.sysconf("SC_CLK_TCK")
TOOLS = "org.apache.kafka.tools."
PARTITIONS = 6
TOOL_BUFFER_BYTES = 2 * 1024 * 1024  # the default of ConsumerPerformance
CONSUMER_BUFFER_BYTES = 64 * 1024  # the default of Kafka's consumer, `receive.buffer.bytes`
CONSUMERS = (
    ("consume, pass 1", TOOL_BUFFER_BYTES),
    ("consume, pass 2", TOOL_BUFFER_BYTES),
    ("consume, receive buffer 64K", CONSUMER_BUFFER_BYTES),
)
FEW_RECORDS = 20_000  # of the case with one record per request


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int, name: str = "VmRSS") -> float:
    found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


@dataclass
class Case:
    """One row: what is asked of the server, and what is measured."""

    name: str
    size: int
    run: Callable[[Server, str], dict[str, float]]
    rows: dict[str, list[dict[str, float]]] = field(default_factory=dict)


class Client:
    """Kafka's perf tools, pointed at a server."""

    def __init__(self, java: Java, acks: str) -> None:
        self.java = java
        self.acks = acks

    def create_topic(self, server: Server, size: int) -> str:
        topic = f"bench-{size}-{uuid.uuid4().hex[:6]}"
        args = ("--create", "--topic", topic, "--partitions", str(PARTITIONS), "--replication-factor", "1")
        self.java.run(TOOLS + "TopicCommand", "--bootstrap-server", server.bootstrap, *args)
        return topic

    def produce(self, server: Server, topic: str, count: int, size: int, *properties: str) -> dict[str, float]:
        args = ("--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1")
        settings = (f"bootstrap.servers={server.bootstrap}", f"acks={self.acks}", *properties)
        with measured(server, count * size, count) as row:
            done = self.java.run(
                TOOLS + "ProducerPerformance", *args, "--producer-props", *settings, timeout=900, flags=CLIENT_FLAGS
            )
            last = [line for line in done.stdout.splitlines() if "records/sec" in line][-1]
            found = re.search(
                r"([\d.]+) records/sec \(([\d.]+) MB/sec\), .*?(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th", last
            )
            if found is None:
                raise SystemExit(f"ProducerPerformance said: {done.stdout[-500:]}{done.stderr[-500:]}")
            row |= {"records_s": float(found[1]), "p50_ms": float(found[3]), "p99_ms": float(found[5])}
        return row

    def consume(self, server: Server, topic: str, count: int, size: int, buffer_bytes: int) -> dict[str, float]:
        args = ("--topic", topic, "--num-records", str(count), "--timeout", "60000", "--group", uuid.uuid4().hex)
        args += ("--socket-buffer-size", str(buffer_bytes))
        os.sync()  # what the rows before left to the disk would take its time from this one
        with measured(server, count * size, count) as row:
            main = TOOLS + "ConsumerPerformance"
            done = self.java.run(main, "--bootstrap-server", server.bootstrap, *args, timeout=900, flags=CLIENT_FLAGS)
            lines = [line.split(",") for line in done.stdout.strip().splitlines()]
            head, last = [name.strip() for name in lines[0]], [value.strip() for value in lines[-1]]
            said = dict(zip(head, last, strict=False))
            consumed = int(said["data.consumed.in.nMsg"])
            if consumed < count:
                raise SystemExit(f"{server.name}: {consumed} of {count} records came")
            row |= {"records_s": float(said["fetch.nMsg.sec"])}
        return row


@contextmanager
def measured(server: Server, size_bytes: int, records: int) -> Iterator[dict[str, float]]:
    """Adds what the server used while the block ran."""
    process = server.process
    if process is None:
        raise SystemExit(f"{server.name} does not run")
    row: dict[str, float] = {}
    before = cpu_seconds(process.pid)
    yield row
    used = cpu_seconds(process.pid) - before
    row |= {"cpu_s_per_GB": used / (size_bytes / 1e9), "cpu_us_per_record": used / records * 1e6}
    row["rss_MB"] = memory_mb(process.pid)


def cases(client: Client, sizes: list[int], megabytes: int) -> Iterator[Case]:
    """The first row opens connections and files; it is shown too."""
    for size in sizes:
        count = megabytes * 1_000_000 // size
        total = 2 * count + count // 4

        def produce(
            count: int = count, size: int = size, *properties: str
        ) -> Callable[[Server, str], dict[str, float]]:
            return lambda server, topic: client.produce(server, topic, count, size, *properties)

        yield Case("produce, first quarter", size, produce(count // 4, size))
        yield Case("produce, default batches", size, produce(count, size))
        yield Case("produce, batch 256K linger 10", size, produce(count, size, "batch.size=262144", "linger.ms=10"))
        for name, buffer_bytes in CONSUMERS:
            yield Case(
                name,
                size,
                lambda server, topic, total=total, size=size, buffer_bytes=buffer_bytes: client.consume(
                    server, topic, total, size, buffer_bytes
                ),
            )
        alone = ("batch.size=1", "linger.ms=0", "max.in.flight.requests.per.connection=5")
        yield Case("produce, one record per request", size, produce(FEW_RECORDS, size, *alone))


def idle(server: Server) -> dict[str, float]:
    """Start to first answer, and memory before any client came."""
    begun = time.perf_counter()
    server.start()
    row = {"start_s": time.perf_counter() - begun}
    time.sleep(2)
    if server.process is not None:
        row["rss_MB"] = memory_mb(server.process.pid)
    return row


def make(kind: str, home: Path, java: Java, heap: str, *, is_durable: bool) -> Server:
    """A server of one kind: native, python or kafka."""
    if kind == "kafka":
        return KafkaServer(home, java, {}, heap=heap, fast_start=False)
    # By default the node keeps Kafka's durability here, the page cache, so that all do the same work.
    server = KraftlogServer(home, {"log.flush.on.ack": str(is_durable).lower(), **path_config(kind)})
    server.name = f"kraftlog-{kind}"
    return server


def measure_round(client: Client, rows: list[Case], servers: list[Server], number: int) -> None:
    """Every case on each server in turn, on new topics; round 0 warms both up and is shown but not kept."""
    topics: dict[tuple[str, int], str] = {}
    for case in rows:
        for server in servers:
            if (server.name, case.size) not in topics:
                topics[server.name, case.size] = client.create_topic(server, case.size)
            row = case.run(server, topics[server.name, case.size])
            if number:
                case.rows.setdefault(server.name, []).append(row)
            shown = {key: round(value, 3) for key, value in row.items()}
            where = {"round": number, "case": case.name, "size": case.size, "server": server.name}
            print(json.dumps(where | shown), flush=True)


UNITS = {
    "records_s": ("records/s", "{:,.0f}"),
    "p50_ms": ("p50 ms", "{:.0f}"),
    "p99_ms": ("p99 ms", "{:.0f}"),
    "cpu_s_per_GB": ("server CPU s/GB", "{:.2f}"),
    "cpu_us_per_record": ("server CPU us/record", "{:.2f}"),
    "rss_MB": ("RSS MB", "{:.0f}"),
    "start_s": ("start s", "{:.2f}"),
}


def table(found: list[Case]) -> str:
    lines = ["| case | bytes | server | " + " | ".join(title for title, _ in UNITS.values()) + " |"]
    lines.append("|---" * (len(UNITS) + 3) + "|")
    for case in found:
        for server, rows in case.rows.items():
            cells = []
            for key, (_, form) in UNITS.items():
                values = [row[key] for row in rows if key in row]
                if not values:
                    cells.append("")
                    continue
                cell = form.format(statistics.median(values))
                if len(values) > 1:
                    cell += f" ({form.format(min(values))}-{form.format(max(values))})"
                cells.append(cell)
            lines.append(f"| {case.name} | {case.size or ''} | {server} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200, help="of values in the large cases")
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--acks", default="all")
    parser.add_argument("--servers", default="native,python,kafka")
    parser.add_argument("--heap", default="1g", help="of Kafka")
    parser.add_argument(
        "--durable", action="store_true", help="log.flush.on.ack=true for kraftlog; Kafka has no such thing"
    )
    args = parser.parse_args()
    java = Java(os.environ.get("KAFKA_LIBS", str(ROOT / "tests/interop/target/libs/*")))
    client = Client(java, args.acks)
    starting = Case("start, idle", 0, lambda server, _: idle(server))
    rows = list(cases(client, [int(size) for size in args.sizes.split(",")], args.megabytes))
    print(f"# {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}", flush=True)
    with ExitStack() as ends:
        home = Path(tempfile.mkdtemp(prefix="node-bench-"))
        ends.callback(shutil.rmtree, home, ignore_errors=True)
        servers = []
        for kind in data_paths(args.servers.split(",")):
            server = make(kind, home / kind, java, args.heap, is_durable=args.durable)
            server.format()
            ends.callback(server.kill)
            servers.append(server)
        for server in servers:
            starting.rows[server.name] = [idle(server)]
        for number in range(args.rounds + 1):
            measure_round(client, rows, servers if number % 2 else servers[::-1], number)
    rows.insert(0, starting)
    print()
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
