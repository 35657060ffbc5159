"""Commits a second and their latency: ``kraftlog.Quorum``, pysyncobj and Kafka's TestRaftServer, one after the other.

    python benches/consensus/run.py OUT.json [--quick] [--only kraftlog,pysyncobj,kafka]

Every replica is a process of its own on this machine; the load is made inside the leader's process, as TestRaftServer
makes it. A row is the median of three runs, fewer with ``--quick``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import json
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DEPTHS = (1, 100, 10_000)
SIZES = (16, 1024, 65_536)
NODES = (1, 3, 5)
MAX_UNDER_WAY_BYTES = 64 << 20


def free_addresses(count: int) -> dict[int, str]:
    """Addresses that nobody listens on at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return {index: f"127.0.0.1:{socket.getsockname()[1]}" for index, socket in enumerate(sockets, 1)}


class Process:
    """One replica."""

    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "member.py"), kind, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        if request:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a replica ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def cluster(kind: str, count: int, *, flush: bool) -> Iterator[tuple[Process, list[Process]]]:
    """The leader, and all."""
    home = Path(tempfile.mkdtemp(prefix="consensus-", dir=os.environ.get("BENCH_DIR")))
    voters = free_addresses(count)
    processes = [
        Process(kind, {"node_id": voter, "data_dir": str(home / str(voter)), "voters": voters, "flush": flush})
        for voter in voters
    ]
    try:
        for process in processes:
            process.ask()
        end_s = time.monotonic() + 60
        leader = None
        while leader is None and time.monotonic() < end_s:
            leader = next((process for process in processes if process.ask(do="leader")["is_leader"]), None)
            time.sleep(0.05)
        if leader is None:
            raise RuntimeError("no leader")
        time.sleep(0.5)
        yield leader, processes
    finally:
        for process in processes:
            process.process.kill()
        for process in processes:
            process.process.wait()
        shutil.rmtree(home, ignore_errors=True)


def measure(leader: Process, processes: list[Process], runs: int, **request: Any) -> dict[str, Any]:
    """The median run by commits per second, with the CPU of all replicas (cores)."""
    rows = []
    for _ in range(runs):
        before = sum(process.ask(do="cpu")["cpu_s"] for process in processes)
        begun = time.perf_counter()
        row = leader.ask(**request)
        took_s = time.perf_counter() - begun
        row["cores"] = (sum(process.ask(do="cpu")["cpu_s"] for process in processes) - before) / took_s
        rows.append(row)
    rows.sort(key=lambda row: row["per_s"])
    return rows[len(rows) // 2] | {"runs_per_s": [round(row["per_s"]) for row in rows]}


def kraftlog_rows(seconds: float, runs: int, nodes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Every combination of the table, then the goals."""
    for count, flush in itertools.product(nodes, (True, False)):
        with cluster("kraftlog", count, flush=flush) as (leader, processes):
            shapes = [(depth, size, 1) for depth in DEPTHS for size in SIZES]
            shapes += [(1000, 16, 1), (10_000, 256, 100), (10_000, 1024, 100), (1000, 16_384, 10)]
            for depth, size, per_call in shapes:
                # No more under way than a Quorum takes by default.
                depth = min(depth, MAX_UNDER_WAY_BYTES // size)  # noqa: PLW2901
                request = {"depth": depth, "size": size, "per_call": per_call, "seconds": seconds}
                row = measure(leader, processes, runs, do="load", **request)
                yield {"peer": "kraftlog", "nodes": count, "flush": flush, **request, **row}
            if flush:
                request = {"rate": 5000, "size": 256, "seconds": seconds * 2}
                row = measure(leader, processes, runs, do="rate", **request)
                yield {"peer": "kraftlog", "nodes": count, "flush": flush, **request, **row}


def pysyncobj_rows(seconds: float, runs: int) -> Iterator[dict[str, Any]]:
    """Depths with small commands; it knows no flush."""
    for count in (1, 3):
        with cluster("pysyncobj", count, flush=False) as (leader, processes):
            for depth in (1, 100, 1000):
                request = {"depth": depth, "size": 16, "per_call": 1, "seconds": seconds}
                row = measure(leader, processes, runs, do="load", **request)
                yield {"peer": "pysyncobj", "nodes": count, "flush": False, **request, **row}


# Highest rates that notes of earlier runs found to hold, and one step above.
KAFKA_RATES = {(1, 256): (5000, 200_000, 400_000), (1, 1024): (100_000, 200_000), (1, 16_384): (8000, 16_000)}
KAFKA_RATES |= {(3, 256): (5000, 100_000, 200_000), (3, 1024): (50_000, 100_000), (3, 16_384): (2000, 4000)}
# Latency percentiles, as in "20.1 ms 75th, 26.3 ms 99th".
_PERCENTILE = re.compile(r"[\d.]+ ms [\d.]+th\b")


def kafka_rows(seconds: float) -> Iterator[dict[str, Any]]:
    """``kafka.tools.TestRaftServer`` at fixed rates, its own figures; the size of its log says what held."""
    libs = os.environ["KAFKA_LIBS"]
    for (count, size), rates in KAFKA_RATES.items():
        for rate in rates:
            yield {
                "peer": "TestRaftServer",
                "nodes": count,
                "flush": True,
                "size": size,
                "rate": rate,
                **kafka_run(libs, count, size, rate, seconds),
            }


def kafka_run(libs: str, count: int, size: int, rate: int, seconds: float) -> dict[str, Any]:
    """One run: bytes that the logs of a majority grew by in the second half, as records per second."""
    home = Path(tempfile.mkdtemp(prefix="consensus-", dir=os.environ.get("BENCH_DIR")))
    voters = free_addresses(count)
    java, outputs = [], []
    for node_id, address in voters.items():
        data = home / str(node_id)
        data.mkdir()
        config = home / f"{node_id}.properties"
        config.write_text(
            f"node.id={node_id}\nprocess.roles=controller\nlisteners=CONTROLLER://{address}\n"
            "controller.listener.names=CONTROLLER\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT\n"
            f"controller.quorum.voters={','.join(f'{key}@{where}' for key, where in voters.items())}\n"
            f"log.dirs={data}\n"
        )
        output = home / f"{node_id}.out"
        outputs.append(output)
        arguments = ["--config", str(config), "--throughput", str(rate), "--record-size", str(size)]
        directory_id = f"AAAAAAAAAAAAAAAAAAAAA{'AQgw'[node_id % 4]}" if node_id else ""
        java.append(
            subprocess.Popen(
                [
                    *("java", "-Xmx2g", "-cp", libs, "kafka.tools.TestRaftServer", *arguments),
                    *("--replica-directory-id", directory_id),
                ],
                stdout=output.open("w"),
                stderr=subprocess.STDOUT,
            )
        )

    def grown() -> int:
        sizes = [sum(path.stat().st_size for path in (home / str(node)).glob("*/*.log")) for node in voters]
        return sorted(sizes, reverse=True)[count // 2]

    try:
        time.sleep(4 + seconds)
        before, begun = grown(), time.perf_counter()
        time.sleep(seconds)
        bytes_s = (grown() - before) / (time.perf_counter() - begun)
    finally:
        for process in java:
            process.kill()
        for process in java:
            process.wait()
    text = "\n".join(output.read_text() for output in outputs)
    shutil.rmtree(home, ignore_errors=True)
    # A record of its batches has 6 to 9 bytes around the value, and a batch 61.
    found = [line for line in text.splitlines() if _PERCENTILE.search(line)]
    return {"per_s": bytes_s / (size + 9), "mb_s": bytes_s / 1e6, "said": found[-1].strip() if found else ""}


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="kraftlog,pysyncobj,kafka")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--nodes", default="")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    seconds = arguments.seconds or (1.0 if arguments.quick else 3.0)
    runs = 1 if arguments.quick else 3
    nodes = tuple(map(int, filter(None, arguments.nodes.split(",")))) or ((3,) if arguments.quick else NODES)
    rows: list[dict[str, Any]] = []
    kinds: dict[str, Any] = {
        "kraftlog": lambda: kraftlog_rows(seconds, runs, nodes),
        "pysyncobj": lambda: pysyncobj_rows(seconds, runs),
        "kafka": lambda: kafka_rows(max(6.0, seconds * 2)),
    }
    for kind in wanted:
        for row in kinds[kind]():
            rows.append(row | {"load": os.getloadavg()[0]})
            print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
            arguments.out.write_text(json.dumps(rows, indent=1))
    fsync_ms = fdatasync_ms()
    rows.append({"peer": "disk", "fdatasync_p50_ms": fsync_ms, **where_and_when()})
    print(f"fdatasync of 4 KiB: median {fsync_ms:.2f} ms")
    arguments.out.write_text(json.dumps(rows, indent=1))


def where_and_when() -> dict[str, str]:
    """For the document."""
    python = platform.python_version()
    return {
        "when": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} processors, Python {python}",
    }


def fdatasync_ms() -> float:
    """What the disk takes for one."""
    with tempfile.NamedTemporaryFile(dir=os.environ.get("BENCH_DIR")) as file:
        took = []
        for _ in range(200):
            file.write(bytes(4096))
            file.flush()
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - begun) * 1000)
    return statistics.median(took)


if __name__ == "__main__":
    main()
