"""Coordinators of a kraftlog node and of Apache Kafka 4.3.1 in alternation, one client for both: the rows of issue 16.

- the first record of a new group: from ``subscribe`` of confluent-kafka to the record; of the first group of a new
  node, which creates ``__consumer_offsets`` with 50 partitions, and the median of nine further groups;
- 1 000 members in one classic group: all join a group of one, then all rebalance; every JoinGroup and SyncGroup counts;
- 1 000 members in one KIP-848 group: heartbeats without pause until each member has its partition of 1 000;
- 10 000 groups that commit one offset each, again and again: 20 connections with 10 commits on their way;
- transactions of one producer and of a hundred, as ``transactions.py`` runs them.

kraftlog runs twice, with ``log.flush.on.ack`` off, which is Kafka's durability, and on; everywhere
``group.initial.rebalance.delay.ms`` is 0. CPU is the server's own, from /proc. The first row starts new servers in each
round, as a first group is there once only. A round that is not kept warms the servers of the other rows. Cells are the
median of the rounds and, in brackets, the least and the most.

    .ci/dev jars && .venv/bin/python benches/coordinators.py                       three rounds, eight minutes
    .venv/bin/python benches/coordinators.py --rounds 1 --seconds 3                a glance
    .venv/bin/python benches/coordinators.py --rows commits --servers page-cache   one row
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
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benches"), str(ROOT / "python")]

import transactions  # noqa: E402
from group_load import MEMBERS, ROWS  # noqa: E402
from node_bench import cpu_seconds  # noqa: E402

from interop.clients import create_topic  # noqa: E402
from interop.harness import Java, KafkaServer, KraftlogServer, Server  # noqa: E402

NEW_NODE = "first-record"  # the row that needs new servers
SERVERS = ("page-cache", "flushed", "kafka")
CONFIG = {"offsets.topic.num.partitions": "50", "transaction.state.log.num.partitions": "50"}
# Of a row: key of the figure, its title in the table, and how it is written.
FIGURES = {
    "first-record": (("first_ms", "first group of a node, ms", "{:,.0f}"), ("next_ms", "next groups, ms", "{:,.0f}")),
    "classic-members": (
        ("join_s", "1 000 members join (classic), s", "{:.2f}"),
        ("rebalance_s", "they rebalance, s", "{:.2f}"),
        ("cpu_s", "server CPU of both, s", "{:.2f}"),
    ),
    "consumer-members": (
        ("join_s", "1 000 members join (KIP-848), s", "{:.2f}"),
        ("cpu_s", "server CPU, s", "{:.2f}"),
    ),
    "commits": (("commits_s", "10 000 groups, commits/s", "{:,.0f}"), ("cpu_us", "server CPU us/commit", "{:,.0f}")),
    "transactions-1": (
        ("transactions_s", "1 producer, transactions/s", "{:,.0f}"),
        ("p99_ms", "p99 ms", "{:.1f}"),
        ("cpu_us", "server CPU us/transaction", "{:,.0f}"),
    ),
    "transactions-100": (
        ("transactions_s", "100 producers, transactions/s", "{:,.0f}"),
        ("p99_ms", "p99 ms", "{:.1f}"),
        ("cpu_us", "server CPU us/transaction", "{:,.0f}"),
    ),
}


def make(kind: str, home: Path, java: Java, heap: str) -> Server:
    """kafka, or kraftlog with and without flushes before acknowledgements."""
    if kind == "kafka":
        return KafkaServer(home, java, CONFIG, heap=heap, fast_start=False)
    is_flushed = str(kind == "flushed").lower()
    server = KraftlogServer(home, CONFIG | {"log.flush.on.ack": is_flushed})
    server.name = f"kraftlog, log.flush.on.ack={is_flushed}"
    return server


def measure(server: Server, row: str, topic: str, seconds: float) -> dict[str, float]:
    """One row: the client's figures and what the server used meanwhile."""
    create_topic(server.bootstrap, topic, partitions=MEMBERS if row == "consumer-members" else transactions.PARTITIONS)
    if row.startswith("transactions-"):
        return transactions.measure(server, topic, int(row.removeprefix("transactions-")), seconds)
    assert server.process is not None
    command = [sys.executable, __file__, "--client", row, server.bootstrap, topic, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        begun = client.stdout.readline().strip()
        before = cpu_seconds(server.process.pid)
        said = client.stdout.readline()
        used = cpu_seconds(server.process.pid) - before
    if begun != "begin" or client.returncode or not said:
        raise SystemExit(f"the client of {server.name} ended with {client.returncode} in the row {row}")
    found: dict[str, float] = json.loads(said)
    return found | {"cpu_s": used, "cpu_us": used / found["count"] * 1e6}


@contextmanager
def running(kinds: list[str], java: Java, heap: str) -> Iterator[list[Server]]:
    """New servers, all started."""
    with ExitStack() as ends:
        home = Path(tempfile.mkdtemp(prefix="coordinators-bench-"))
        ends.callback(shutil.rmtree, home, ignore_errors=True)
        servers = []
        for kind in kinds:
            server = make(kind, home / kind, java, heap)
            server.format()
            ends.callback(server.kill)
            server.start()
            servers.append(server)
        yield servers


def measurements(
    kinds: list[str], rows: list[str], java: Java, args: argparse.Namespace
) -> Iterator[tuple[int, str, str, dict[str, float]]]:
    """(round, row, server, figures) of all rows; round 0 warms the servers."""
    if NEW_NODE in rows:
        for number in range(1, args.rounds + 1):
            with running(kinds, java, args.heap) as servers:
                for server in servers if number % 2 else servers[::-1]:
                    yield number, NEW_NODE, server.name, measure(server, NEW_NODE, "bench", args.seconds)
    others = [row for row in rows if row != NEW_NODE]
    if not others:
        return
    with running(kinds, java, args.heap) as servers:
        for number in range(args.rounds + 1):
            for row in others:
                for server in servers if number % 2 else servers[::-1]:
                    seconds = args.seconds if number else args.seconds / 2
                    yield number, row, server.name, measure(server, row, f"bench-{row}-{number}", seconds)


def table(found: dict[str, dict[str, list[dict[str, float]]]], servers: list[str]) -> str:
    """Markdown: a line per figure, a column per server."""
    lines = ["| | " + " | ".join(servers) + " |", "|---" * (len(servers) + 1) + "|"]
    for row, by_server in found.items():
        for key, title, form in FIGURES[row]:
            cells = []
            for server in servers:
                values = [figures[key] for figures in by_server[server]]
                cell = form.format(statistics.median(values))
                if len(values) > 1:
                    cell += f" ({form.format(min(values))}-{form.format(max(values))})"
                cells.append(cell)
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    if sys.argv[1:2] == ["--client"]:
        row, bootstrap, topic, seconds = sys.argv[2:]
        print(json.dumps(ROWS[row](bootstrap, topic, float(seconds))), flush=True)
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of the rows with a rate")
    parser.add_argument("--servers", default=",".join(SERVERS))
    parser.add_argument("--rows", default=",".join(FIGURES))
    parser.add_argument("--heap", default="1g", help="of Kafka")
    args = parser.parse_args()
    java = Java(os.environ.get("KAFKA_LIBS", str(ROOT / "tests/interop/target/libs/*")))
    kinds, rows = args.servers.split(","), args.rows.split(",")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"# {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load}", flush=True
    )
    began = time.perf_counter()
    found: dict[str, dict[str, list[dict[str, float]]]] = {row: {} for row in rows}
    names: list[str] = []
    for number, row, server, figures in measurements(kinds, rows, java, args):
        # What warms the servers is shown, and not kept.
        if number:
            found[row].setdefault(server, []).append(figures)
        if server not in names:
            names.append(server)
        shown = {key: round(value, 3) for key, value in figures.items()}
        print(json.dumps({"round": number, "row": row, "server": server} | shown), flush=True)
    print(f"\n{table(found, sorted(names))}\n\n{time.perf_counter() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
