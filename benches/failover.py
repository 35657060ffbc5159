"""How long produce stops after kill -9 of a partition's leader: three kraftlog nodes, and three of Apache Kafka.

    python benches/failover.py [--rounds 10] [--nodes kraftlog,kafka] [--client confluent] [--json target/failover.json]

Each node is broker and controller, with default time-outs. One idempotent producer with acks=all writes to the
partition that the victim leads, a record each 5 ms. A round has two times:

- *produce*: the longest one between two acknowledgements after the kill, with all retries of the client;
- *nodes*: from the kill until a node acknowledges a record with acks=all of a client that asks both survivors without
  a pause, for which it has open connections. That is the part of the nodes.

By turns the victim is an ordinary broker and the active controller.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import glob
import itertools
import json
import math
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import confluent_kafka  # noqa: E402

import kraftlog  # noqa: E402
from interop.harness import Java  # noqa: E402
from interop.mixed.cluster import KAFKA, MixedCluster, eventually  # noqa: E402
from kraftlog._kraftlog import encode_batch  # noqa: E402
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest  # noqa: E402
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest  # noqa: E402
from kraftlog.wire.messages.produce import ProduceRequest  # noqa: E402
from raw_client import RawClient  # noqa: E402

DEFAULTS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.backoff.ms": "1000",
}
WATCHED_S = 60.0
PACE_S = 0.005
VICTIMS = ("a broker", "the active controller")


class Acks:
    """The times of acknowledgements, as a client reports them on whatever thread."""

    def __init__(self) -> None:
        self.at_s: list[float] = []
        self.failures: list[str] = []

    def note(self, error: object = None) -> None:
        if error is None:
            self.at_s.append(time.perf_counter())
        else:
            self.failures.append(str(error))


def run_confluent(bootstrap: str, partition: int, acks: Acks, stopping: threading.Event) -> None:
    """Librdkafka."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    while not stopping.is_set():
        producer.produce("t", b"x" * 100, partition=partition, callback=lambda error, _: acks.note(error))
        producer.poll(PACE_S)
    producer.flush(60)


def run_kraftlog(bootstrap: str, partition: int, acks: Acks, stopping: threading.Event) -> None:
    """kraftlog.Producer."""
    settings = {"bootstrap_servers": bootstrap, "enable_idempotence": True, "acks": "all", "linger_ms": 0}
    with kraftlog.Producer(on_delivery=lambda _: acks.note(), **settings) as producer:
        while not stopping.wait(PACE_S):
            producer.send("t", b"x" * 100, partition=partition)


def run_aiokafka(bootstrap: str, partition: int, acks: Acks, stopping: threading.Event) -> None:
    """aiokafka."""

    def delivered(future: asyncio.Future[Any]) -> None:
        acks.note(future.exception())

    async def run() -> None:
        from aiokafka import AIOKafkaProducer  # one of several clients

        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, acks="all") as producer:
            while not stopping.is_set():
                (await producer.send("t", b"x" * 100, partition=partition)).add_done_callback(delivered)
                await asyncio.sleep(PACE_S)

    asyncio.run(run())


CLIENTS: dict[str, Callable[[str, int, Acks, threading.Event], None]] = {
    "confluent": run_confluent,
    "kraftlog": run_kraftlog,
    "aiokafka": run_aiokafka,
}


@contextlib.contextmanager
def steady_producer(client: str, bootstrap: str, partition: int) -> Iterator[Acks]:
    """Writes to one partition of ``t`` until the end of the block, and then waits for its acknowledgements."""
    acks, stopping = Acks(), threading.Event()

    def run() -> None:
        try:
            CLIENTS[client](bootstrap, partition, acks, stopping)
        except Exception as error:  # noqa: BLE001 # the round reports it
            acks.note(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield acks
    finally:
        stopping.set()
        thread.join(90)


class Prober(threading.Thread):
    """Writes a record to a partition at one node again and again until the node acknowledges it.

    Attributes:
        acked_s: When that was, None before.
    """

    def __init__(self, address: str, partition: int) -> None:
        super().__init__(daemon=True)
        self._client = RawClient(address, timeout_s=WATCHED_S)
        records = encode_batch([(1000, None, b"probe", [])])
        data = ProduceRequest.PartitionProduceData(index=partition, records=records)
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        self._request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        self._stopping = threading.Event()
        self.acked_s: float | None = None

    def run(self) -> None:
        while not self._stopping.is_set():
            answer = self._client.call(self._request, 9)
            if not answer.responses[0].partition_responses[0].error_code:
                self.acked_s = time.perf_counter()
                return
            time.sleep(0.002)

    def stop(self) -> None:
        self._stopping.set()
        self.join(WATCHED_S)
        self._client.sock.close()


def active_controller(cluster: MixedCluster) -> int:
    """The leader of the metadata quorum, as a broker says; -1 when it knows none."""
    asked = DescribeQuorumRequest.TopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    with RawClient(cluster.members[1].bootstrap) as client:
        answer = client.call(DescribeQuorumRequest(topics=[asked]), 1)
    if answer.error_code or answer.topics[0].partitions[0].error_code:
        return -1
    return int(answer.topics[0].partitions[0].leader_id)


def elect_preferred(cluster: MixedCluster) -> None:
    """Each partition of ``t`` is led by its preferred replica when this returns."""

    def is_done() -> bool:
        with RawClient(cluster.members[1].bootstrap) as client:
            client.call(ElectLeadersRequest(topic_partitions=None, timeout_ms=10_000), 2)
        found = cluster.topics().get("t", {})
        return bool(found) and all(leader == replicas[0] for leader, replicas, _ in found.values())

    eventually(is_done, "partitions are not led by their preferred replicas")


def strike(cluster: MixedCluster, *, is_controller: bool, client: str) -> dict[str, Any]:
    """Kill one node, and return the seconds in which the partition that it led took no record."""
    eventually(lambda: active_controller(cluster) > 0, "no active controller")
    active = active_controller(cluster)
    # Both other nodes by turns.
    others = [node for node in cluster.members if node != active]
    victim = active if is_controller else others[int(time.time()) % 2]
    partition = next(index for index in range(3) if cluster.leader("t", index) == victim)
    survivors = [member.bootstrap for node, member in cluster.members.items() if node != victim]
    with steady_producer(client, cluster.bootstrap, partition) as acks:
        eventually(lambda: len(acks.at_s) > 100 or bool(acks.failures), "the producer does not start")
        # Clients look at their metadata in periods of up to a second, which begin when they start.
        time.sleep(random.uniform(0, 1))
        probers = [Prober(address, partition) for address in survivors]
        killed_s = time.perf_counter()
        cluster.members[victim].kill()
        for prober in probers:
            prober.start()
        eventually(lambda: any(prober.acked_s for prober in probers), "no node acknowledges", WATCHED_S)
        # Some acknowledgements of the client may have been under way.
        eventually(lambda: acks.at_s[-1] > killed_s + 0.3, "produce does not go on", WATCHED_S)
        time.sleep(0.5)
        for prober in probers:
            prober.stop()
    if acks.failures:
        raise AssertionError(acks.failures[:3])
    times = [killed_s, *(at_s for at_s in acks.at_s if at_s > killed_s)]
    cluster.members[victim].start()
    cluster.wait_until_in_sync()
    elect_preferred(cluster)
    return {
        "victim": VICTIMS[is_controller],
        "client": client,
        "produce_s": max(later - earlier for earlier, later in itertools.pairwise(times)),
        "nodes_s": min(prober.acked_s for prober in probers if prober.acked_s) - killed_s,
        "load_1m": os.getloadavg()[0],
    }


def rounds(kind: str, home: Path, java: Java, count: int, client: str) -> Iterator[dict[str, Any]]:
    """A row per kill, by turns of a broker and of the active controller."""
    cluster = MixedCluster(home, java)
    for node_id in (1, 2, 3):
        cluster.add(kind, "broker,controller", node_id).config.update(DEFAULTS)
    try:
        cluster.start()
        cluster.create_topic("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        for number in range(2 * count):
            yield {"round": number // 2 + 1, "node": kind} | strike(
                cluster, is_controller=bool(number % 2), client=client
            )
    finally:
        cluster.close()


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def table(rows: list[dict[str, Any]]) -> str:
    """Seconds by node, client and victim."""
    lines = [
        "| node | client | victim | kills | median s | p99 s | highest s | nodes: median s | p99 s | highest s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for key in dict.fromkeys((row["node"], row["client"], row["victim"]) for row in rows):
        chosen = [row for row in rows if (row["node"], row["client"], row["victim"]) == key]
        cells = [
            f"{figure:.2f}"
            for values in ([row["produce_s"] for row in chosen], [row["nodes_s"] for row in chosen])
            for figure in (statistics.median(values), percentile(values, 0.99), max(values))
        ]
        node = "Kafka 4.3.1" if key[0] == KAFKA else key[0]
        lines.append("| " + " | ".join([node, *key[1:], str(len(chosen)), *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run, and print a row per kind of node, client and victim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--nodes", default="kraftlog,kafka")
    parser.add_argument("--client", default="confluent", help=f"one or more of {', '.join(CLIENTS)}")
    parser.add_argument("--json", type=Path, help="where a row per kill is kept")
    args = parser.parse_args()
    libs = os.environ.get("KAFKA_LIBS", str(ROOT / "tests" / "interop" / "target" / "libs" / "*"))
    if not glob.glob(libs):
        parser.error("set KAFKA_LIBS, or run `.ci/dev jars`")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="kraftlog-failover-") as home, contextlib.closing(Java(libs)) as java:
        for kind in args.nodes.split(","):
            for client in args.client.split(","):
                for row in rounds(kind, Path(home) / f"{kind}-{client}", java, args.rounds, client):
                    rows.append(row)
                    print(json.dumps(row), flush=True)
                    if args.json:
                        args.json.write_text(json.dumps(rows, indent=1))
    print("\n" + table(rows))


if __name__ == "__main__":
    main()
