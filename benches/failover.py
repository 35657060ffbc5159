"""How long produce stops after kill -9 of a partition's leader: three kraftlog nodes, and three of Apache Kafka.

    python benches/failover.py [--rounds 10] [--nodes kraftlog,kafka]

Each node is broker and controller, with default time-outs. One idempotent librdkafka producer with acks=all writes to
the partition that the victim leads, a record each 5 ms. A round's time is the longest one between two acknowledgements
after the kill, so the retries of the client count. By turns the victim is an ordinary broker and the active controller.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from confluent_kafka import Producer  # noqa: E402

from interop.harness import Java  # noqa: E402
from interop.mixed.cluster import MixedCluster, eventually  # noqa: E402

DEFAULTS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.backoff.ms": "1000",
}
WATCHED_S = 30.0


class SteadyProducer(threading.Thread):
    """Writes to one partition of ``t`` until it is stopped, and keeps the times of the acknowledgements."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )
        self._partition = partition
        self._is_stopping = threading.Event()
        self.acked_s: list[float] = []
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._is_stopping.is_set():
            self._producer.produce("t", b"x" * 100, partition=self._partition, callback=self._on_delivery)
            self._producer.poll(0.005)
        self._producer.flush(60)

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is None:
            self.acked_s.append(time.perf_counter())
        else:
            self.failures.append(str(error))

    def stop(self) -> None:
        self._is_stopping.set()
        self.join(90)


def strike(cluster: MixedCluster, *, is_controller: bool) -> float:
    """Kill one node, and return the seconds in which the partition that it led took no record."""
    active = cluster.active_controller()
    victim = next(node for node in cluster.members if (node == active) == is_controller)
    partition = next(index for index in range(3) if cluster.leader("t", index) == victim)
    producer = SteadyProducer(cluster.bootstrap, partition)
    producer.start()
    eventually(lambda: len(producer.acked_s) > 200, "the producer does not start")
    killed_s = time.perf_counter()
    cluster.members[victim].kill()
    # Some acknowledgements may have been under way.
    eventually(lambda: producer.acked_s[-1] > killed_s + 0.3, "produce does not go on", WATCHED_S)
    time.sleep(1)
    producer.stop()
    if producer.failures:
        raise AssertionError(producer.failures[:3])
    times = [killed_s, *(at for at in producer.acked_s if at > killed_s)]
    gap_s = max(later - earlier for earlier, later in itertools.pairwise(times))
    cluster.members[victim].start()
    cluster.wait_until_in_sync()
    cluster.elect_preferred()
    return gap_s


def rounds(kind: str, home: Path, java: Java, count: int) -> dict[bool, list[float]]:
    """Seconds by whether the victim was the active controller."""
    cluster = MixedCluster(home, java)
    for node_id in (1, 2, 3):
        cluster.add(kind, "broker,controller", node_id).config.update(DEFAULTS)
    taken: dict[bool, list[float]] = {False: [], True: []}
    try:
        cluster.start()
        cluster.create_topic("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        for number in range(2 * count):
            taken[bool(number % 2)].append(strike(cluster, is_controller=bool(number % 2)))
    finally:
        cluster.close()
    return taken


def main() -> None:
    """Run, and print a row per kind of node and victim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--nodes", default="kraftlog,kafka")
    args = parser.parse_args()
    libs = os.environ.get("KAFKA_LIBS", str(ROOT / "tests" / "interop" / "target" / "libs" / "*"))
    if not glob.glob(libs):
        parser.error("set KAFKA_LIBS, or run `.ci/dev jars`")
    java = Java(libs)
    with tempfile.TemporaryDirectory(prefix="kraftlog-failover-") as home, contextlib.closing(java):
        for kind in args.nodes.split(","):
            taken = rounds(kind, Path(home) / kind, java, args.rounds)
            for is_controller, seconds in taken.items():
                victim = "the active controller" if is_controller else "a broker"
                print(
                    f"{kind}, {victim}: median {statistics.median(seconds):.2f} s, lowest {min(seconds):.2f}, "
                    f"highest {max(seconds):.2f} of {len(seconds)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
