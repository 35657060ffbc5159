"""Leaders of replicated partitions die, stop or leave while idempotent producers write with acks=all.

Three nodes in processes of their own, replication factor 3, min.insync.replicas=2. However a leader goes, every
acknowledged record is there once and in order, and in the end all replicas have equal bytes. KRAFTLOG_REPLICA_KILLS and
KRAFTLOG_REPLICA_KILL_SEED repeat a run; KRAFTLOG_REPLICA_FLUSH=true lets acknowledgements wait for the disks.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from interop.test_kill import TOPIC, Reader, SequenceProducer
from kraftlog.node.config import NodeConfig
from kraftlog.storage.meta_properties import random_uuid
from quorum_api_fixture import free_addresses
from replicated_cluster import format_node, server_properties

KILLS = int(os.environ.get("KRAFTLOG_REPLICA_KILLS", "3"))
SEED = int(os.environ.get("KRAFTLOG_REPLICA_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
FLUSH = os.environ.get("KRAFTLOG_REPLICA_FLUSH", "false")
PARTITIONS = 3
SESSION_S = 2.0
HOW = ("kill", "leave", "pause")


class ClusterProcess:
    """One node of the cluster."""

    def __init__(self, node_id: int, home: Path, controllers: list[str], brokers: list[str], cluster_id: str) -> None:
        self.node_id = node_id
        properties = server_properties(node_id, home, controllers, brokers, {"log.flush.on.ack": FLUSH})
        format_node(NodeConfig(properties), cluster_id)
        self.data_dir = home / str(node_id)
        self.properties = home / f"{node_id}.properties"
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self.output = home / f"{node_id}.out"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kraftlog", "server-start", str(self.properties)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int, timeout_s: float = 60) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout_s)
            self.process = None

    def log(self, index: int) -> bytes:
        directory = self.data_dir / f"{TOPIC}-{index}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


@pytest.fixture
def nodes(tmp_path):
    addresses = free_addresses(6)
    cluster_id = str(random_uuid())
    made = [ClusterProcess(number, tmp_path, addresses[:3], addresses[3:], cluster_id) for number in (1, 2, 3)]
    for node in made:
        node.start()
    yield made, ",".join(addresses[3:])
    for node in made:
        node.end(signal.SIGKILL)


class Watch:
    """What the cluster says of itself."""

    def __init__(self, bootstrap: str) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})

    def create_topic(self) -> None:
        new = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3, config={"segment.bytes": "1048576"})
        deadline = time.monotonic() + 60
        while True:
            try:
                self._client.create_topics([new], operation_timeout=30)[TOPIC].result(60)
                return
            except KafkaException:
                # Not all of the brokers have registered yet.
                assert time.monotonic() < deadline
                time.sleep(0.2)

    def partitions(self):
        return self._client.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions

    def wait_until_in_sync(self, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            partitions = self.partitions()
            if all(len(found.isrs) == 3 and found.leader > 0 for found in partitions.values()):
                return
            assert time.monotonic() < deadline, f"not in sync: {[found.isrs for found in partitions.values()]}"
            time.sleep(0.05)


def strike(node: ClusterProcess, how: str) -> None:
    match how:
        case "kill":
            node.end(signal.SIGKILL)
        case "leave":
            node.end(signal.SIGTERM)
        case "pause":
            node.signal(signal.SIGSTOP)
            time.sleep(SESSION_S * 1.5)
            node.signal(signal.SIGCONT)


def gap_s(producers: list[SequenceProducer], since: float) -> float:
    """Until every partition takes records again."""
    for producer in producers:
        producer.progress.clear()
    for producer in producers:
        assert producer.progress.wait(60), f"{producer.name}: no acknowledgement for 60 s"
    return time.monotonic() - since


@pytest.mark.timeout(7_200)
def test_whatever_happens_to_leaders_nothing_acknowledged_is_lost(nodes) -> None:
    made, bootstrap = nodes
    print(f"KRAFTLOG_REPLICA_KILL_SEED={SEED} KRAFTLOG_REPLICA_KILLS={KILLS} KRAFTLOG_REPLICA_FLUSH={FLUSH}")
    rng = random.Random(SEED)
    watch = Watch(bootstrap)
    watch.create_topic()
    watch.wait_until_in_sync()
    producers = [SequenceProducer(bootstrap, index, "none", rng.randrange(1 << 32)) for index in range(PARTITIONS)]
    reader = Reader(PARTITIONS)
    for producer in producers:
        producer.start()
    gaps: dict[str, list[float]] = {}
    try:
        for count in range(KILLS):
            gap_s(producers, 0)
            # A short run has one of each, a long one mostly kills.
            how = HOW[count] if len(HOW) == KILLS else rng.choices(HOW, (6, 2, 2))[0]
            victim = made[watch.partitions()[rng.randrange(PARTITIONS)].leader - 1]
            time.sleep(rng.uniform(0, 0.2))
            began = time.monotonic()
            strike(victim, how)
            gap = gap_s(producers, began)
            gaps.setdefault(how, []).append(gap)
            if victim.process is None:
                victim.start()
            watch.wait_until_in_sync()
            for producer in producers:
                assert not producer.failures, f"seed {SEED}, strike {count}: {producer.failures[:3]}"
                reader.catch_up(bootstrap, producer.partition, producer.acked)
            print(
                f"{count}: {how} of node {victim.node_id}, produce after {gap:.2f} s;"
                f" {[producer.acked for producer in producers]} acknowledged",
                flush=True,
            )
    finally:
        for producer in producers:
            producer.stopping.set()
    for producer in producers:
        producer.join(150)
        assert not producer.failures, f"seed {SEED}: {producer.failures[:3]}"
        assert producer.acked == producer.sent
    watch.wait_until_in_sync()
    full = Reader(PARTITIONS)
    for producer in producers:
        full.catch_up(bootstrap, producer.partition, producer.sent)
        assert full.next_number[producer.partition] == producer.sent
    time.sleep(1)  # followers learn what is committed with their next fetch
    for node in made:
        node.end(signal.SIGTERM)
    for index in range(PARTITIONS):
        logs = [node.log(index) for node in made]
        assert logs[0], index
        assert logs[0] == logs[1] == logs[2], f"partition {index}: {[len(log) for log in logs]} bytes"
    for how, seconds in sorted(gaps.items()):
        ordered = sorted(seconds)
        print(
            f"{how}: {len(ordered)} times, produce goes on after {ordered[len(ordered) // 2]:.2f} s (median),"
            f" {ordered[-1]:.2f} s (most)"
        )
