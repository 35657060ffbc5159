"""What a backfill does to the broker's other clients: latency of a steady producer and consumer, and the page cache.

    .ci/dev bench-spark-broker [--rate 500] [--seconds 30] [--limit-mb 700]

A real Kafka 4.3.1 holds an old topic. One client produces (acks=1) to a second one and consumes it at a steady rate
while nobody reads the old one, spark-sql-kafka reads it again and again, or we read its directory. Each phase says
produce latency, time from producing to consuming, the broker's CPU seconds, and how much of the second topic is in the
page cache.

With ``--limit-mb`` broker, clients and backfill run in a memory cgroup of that size (version 1, where it may be made):
then pages of the old topic take the place of others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(ROOT / "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(HERE), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import broker_data  # noqa: E402
from measuring import CpuMeter, machine_busy  # noqa: E402
from scans import SUM, Topic, collect, make_session  # noqa: E402

from interop.harness import Java, KafkaServer  # noqa: E402

HOT = "hot"
PARTS = 10  # of the old topic, each read by a query of its own
CGROUP = Path("/sys/fs/cgroup/memory")
# Runs in a process of its own, so that the load of the bench's own process is not in the figures.
CLIENTS = """
import json, sys, threading, time
from confluent_kafka import Consumer, Producer, TopicPartition
bootstrap, topic, rate, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
acked, seen, failed = [], [], []
def delivered(error, message):
    (failed if error else acked).append(message.latency())
producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0, "on_delivery": delivered})
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "hot", "enable.auto.commit": False,
                     "fetch.wait.max.ms": 100, "fetch.min.bytes": 1})
consumer.assign([TopicPartition(topic, 0, consumer.get_watermark_offsets(TopicPartition(topic, 0))[1])])
consumer.consume(1, 0.5)
stop = threading.Event()
def consume():
    while not stop.is_set():
        for message in consumer.consume(100, 0.05):
            if message.error() is None:
                seen.append(time.time() - float(message.value()[:20]))
reader = threading.Thread(target=consume)
reader.start()
begun = time.perf_counter()
sent = 0
while (now := time.perf_counter() - begun) < seconds:
    while sent < now * rate:
        producer.produce(topic, (b"%020.6f" % time.time()).ljust(1000, b"x"), partition=0)
        sent += 1
    producer.poll(0.001)
producer.flush(60)
time.sleep(0.5)
stop.set()
reader.join()
consumer.close()
print(json.dumps({"acked": acked, "seen": seen, "failed": len(failed), "sent": sent}))
"""


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Milliseconds at 50, 99 and 99.9 percent, and the worst."""
    ordered = sorted(seconds)
    if not ordered:
        raise SystemExit("no record came back")
    picked = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "most": 1.0}
    return {name: ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e3 for name, share in picked.items()}


def cached_share(paths: list[Path], tail_bytes: int | None = None) -> float:
    """How much of the files, or of the last bytes of each, the page cache holds (util-linux's fincore)."""
    resident = total = 0
    for path in paths:
        size = path.stat().st_size
        done = subprocess.run(
            ["fincore", "--bytes", "--noheadings", "--raw", "--output", "RES", str(path)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        resident += min(int(done.stdout), tail_bytes or size)
        total += min(size, tail_bytes or size)
    return resident / total if total else 1.0


class Effect:
    """The phases."""

    def __init__(self, arguments: argparse.Namespace, ends: ExitStack) -> None:
        self.arguments = arguments
        self.home = Path(tempfile.mkdtemp(prefix="bench-broker-", dir=arguments.directory))
        ends.callback(shutil.rmtree, self.home, ignore_errors=True)
        java = Java(os.environ.get("KAFKA_LIBS", str(ROOT / "tests/interop/target/libs/*")))
        self.server: KafkaServer = broker_data.start_kafka(self.home / "kafka", java)
        ends.callback(self.server.kill)
        rows = arguments.megabytes * 1_000_000 // 1011
        broker_data.produce(self.server, 1000, "none", rows)
        # The hot topic has a past too, of which consumers that lag a little would read the end.
        broker_data.produce(self.server, 1000, "none", arguments.hot_megabytes * 1000, topic=HOT)
        half = {("bench-1000-none", partition): (rows + 1 - partition) // 2 for partition in range(2)}
        broker_data.wait_for_checkpoint(self.server, half)
        self.session = make_session(str(ROOT / "tests/interop/spark/target/libs/*"))
        ends.callback(self.session.stop)
        self.topic = Topic(self.session, self.server, "bench-1000-none", rows, 1000, self.home)

    def backfills(self) -> dict[str, Callable[[dict[str, str]], Any] | None]:
        """What reads a part of the topic, given the options that say which."""
        ours = self.topic.ours
        return {
            "nothing": None,
            "spark-sql-kafka": lambda part: collect(self.topic.kafka(**part), *SUM),
            "kraftlog": lambda part: collect(ours("key,value,offset", **part), *SUM),
            "kraftlog, dropBehind": lambda part: collect(ours("key,value,offset", dropBehind="true", **part), *SUM),
        }

    def part(self, number: int) -> dict[str, str]:
        """One of the equal parts of the topic, by offsets."""
        rows, at = [(self.topic.rows + 1 - partition) // 2 for partition in range(2)], number % PARTS
        first = {str(partition): count * at // PARTS for partition, count in enumerate(rows)}
        last = {str(partition): count * (at + 1) // PARTS for partition, count in enumerate(rows)}
        bounds = {"startingOffsets": first, "endingOffsets": last}
        return {name: json.dumps({self.topic.name: offsets}) for name, offsets in bounds.items()}

    def phase(self, name: str, backfill: Callable[[dict[str, str]], Any] | None) -> dict[str, Any]:
        hot = broker_data.segments(self.server, HOT)
        self.warm(hot)
        broker = self.server.process.pid if self.server.process else None
        meter, stop, parts = CpuMeter(broker), threading.Event(), []
        part_bytes, pace = self.topic.size_bytes / PARTS, self.arguments.pace_mb * 1e6

        failures: list[Exception] = []

        def again() -> None:
            try:
                while backfill is not None and not stop.is_set():
                    backfill(self.part(len(parts)))
                    parts.append(time.perf_counter())
                    # All backfills at one rate, so that it is not the faster one that disturbs more.
                    late = len(parts) * part_bytes / pace - (parts[-1] - begun) if pace else 0
                    stop.wait(max(late, 0))
            except Exception as error:  # noqa: BLE001 - raised again below, where the bench is
                failures.append(error)

        settings = [self.server.bootstrap, HOT, str(self.arguments.rate), str(self.arguments.seconds)]
        before, busy, begun = meter.read(), machine_busy(), time.perf_counter()
        worker = threading.Thread(target=again)
        worker.start()
        done = subprocess.run([sys.executable, "-c", CLIENTS, *settings], check=True, stdout=subprocess.PIPE, text=True)
        cached = cached_share(hot)
        old = cached_share(broker_data.segments(self.server, self.topic.name))
        stop.set()
        wall = time.perf_counter() - begun
        used = {role: value - before[role] for role, value in meter.read().items()}
        others = (machine_busy() - busy - sum(used.values())) / wall
        worker.join()
        if failures:
            raise failures[0]
        said = json.loads(done.stdout)
        return {
            "phase": name,
            "produce_ms": quantiles(said["acked"]),
            "end_to_end_ms": quantiles(said["seen"]),
            "records": said["sent"],
            "failed": said["failed"],
            "parts": len(parts),
            "read_bytes_s": len(parts) * part_bytes / wall,
            "broker_cpu_s": used["broker"],
            "hot_cached": cached,
            "old_cached": old,
            "others_busy": others,
            "load": os.getloadavg()[0],
        }

    def warm(self, hot: list[Path]) -> None:
        """The hot topic is in the page cache, as it is after it was written; the old one is not, as it is old."""
        for path in broker_data.segments(self.server, self.topic.name):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for path in hot:
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass

    def run(self) -> list[dict[str, Any]]:
        found = []
        with limited_memory(self.arguments.limit_mb, self.pids()):
            for number in range(self.arguments.rounds):
                phases = list(self.backfills().items())
                for name, backfill in phases if number % 2 == 0 else phases[::-1]:
                    row = {"round": number, "limit_mb": self.arguments.limit_mb, **self.phase(name, backfill)}
                    print(json.dumps(row), flush=True)
                    found.append(row)
        return found

    def pids(self) -> list[int]:
        """The broker; what it and everybody else reads of its files stays charged to the group that read it first."""
        return [self.server.process.pid] if self.server.process else []


@contextlib.contextmanager
def limited_memory(megabytes: int | None, pids: list[int]) -> Iterator[None]:
    """This process, its children and `pids` in a memory group of so many MB: their page cache is charged to it."""
    if megabytes is None:
        yield
        return
    group = CGROUP / f"kraftlog-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise SystemExit(f"no memory group of version 1 can be made here: {error}") from error
    from measuring import processes

    inside = [os.getpid(), *processes(os.getpid()), *pids]
    try:
        (group / "memory.limit_in_bytes").write_text(str(megabytes << 20))
        for pid in dict.fromkeys(inside):
            with contextlib.suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (CGROUP / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            group.rmdir()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=600, help="of the old topic")
    parser.add_argument("--hot-megabytes", type=int, default=100, help="of the hot topic before anything is measured")
    parser.add_argument("--rate", type=float, default=500, help="records of 1000 B a second")
    parser.add_argument("--seconds", type=float, default=30, help="of each phase")
    parser.add_argument("--pace-mb", type=float, default=40, help="MB a second that a backfill reads; 0 for all it can")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit-mb", type=int, help="memory of all processes together, page cache included")
    parser.add_argument("--directory", help="where the broker's data goes; the temporary directory")
    parser.add_argument("--out", type=Path, default=ROOT / "target/bench-broker.json")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the broker and its data go too
    with ExitStack() as ends:
        found = Effect(arguments, ends).run()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
