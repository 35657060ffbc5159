"""Time to elect leaders when a broker that leads thousands of partitions is fenced, beside Apache Kafka's controller.

    python benches/elections.py [--partitions 5000] [--rounds 7]

The time is that of one heartbeat with WantFence, which is answered once the new leaders are committed. Expected: the
records of 5 000 partitions are 150 KB and one flush, so the controller's own work is what is measured.
"""

from __future__ import annotations

import argparse
import glob
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from interop.beside.cluster import Controller  # noqa: E402
from interop.beside.puppets import Puppets  # noqa: E402
from interop.harness import Java  # noqa: E402
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest  # noqa: E402
from kraftlog.wire.messages.create_topics import CreateTopicsRequest  # noqa: E402
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest  # noqa: E402
from raw_client import RawClient  # noqa: E402

PER_TOPIC = 1000
CONFIG = {"broker.session.timeout.ms": "600000", "auto.leader.rebalance.enable": "false"}


def create(client: RawClient, names: list[str]) -> None:
    """Topics of ``PER_TOPIC`` partitions that broker 1 leads."""
    assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2, 3])
        for index in range(PER_TOPIC)
    ]
    for name in names:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        if answer.topics[0].error_code:
            raise AssertionError(answer.topics[0].error_message)


def rounds(kind: str, home: Path, java: Java, *, partitions: int, count: int) -> list[float]:
    """Milliseconds of each round."""
    controller = Controller(kind, home, java, 9, CONFIG)
    taken: list[float] = []
    with controller.running(), RawClient(controller.bootstrap, timeout_s=120) as client:
        puppets = Puppets(controller)
        puppets.live(1, 2, 3)
        names = [f"t{number}" for number in range(partitions // PER_TOPIC)]
        for _ in range(count):
            create(client, names)
            fence = BrokerHeartbeatRequest(
                broker_id=1, broker_epoch=puppets.epochs[1], current_metadata_offset=1 << 60, want_fence=True
            )
            start_ns = time.perf_counter_ns()
            answer = client.call(fence)
            taken.append((time.perf_counter_ns() - start_ns) / 1e6)
            if answer.error_code or not answer.is_fenced:
                raise AssertionError(answer)
            states = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
            client.call(DeleteTopicsRequest(topics=states, timeout_ms=60_000))
            puppets.beat(1)
        puppets.close()
    return taken


def main() -> None:
    """Run both, and print one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    libs = os.environ.get("KAFKA_LIBS", str(ROOT / "tests" / "interop" / "target" / "libs" / "*"))
    if not glob.glob(libs):
        parser.error("set KAFKA_LIBS, or run `.ci/dev jars`")
    java = Java(libs)
    print("| controller | first round, ms | median of the rest, ms | partitions/s |\n|---|---|---|---|")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("kraftlog", "kafka"):
                first, *rest = rounds(kind, Path(folder) / kind, java, partitions=args.partitions, count=args.rounds)
                median = statistics.median(rest)
                print(f"| {kind} | {first:.0f} | {median:.0f} | {args.partitions / median * 1000:,.0f} |", flush=True)
    finally:
        java.close()


if __name__ == "__main__":
    main()
