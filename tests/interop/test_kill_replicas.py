"""Leaders of replicated partitions die, leave, stand still or are cut off while idempotent producers write.

Three nodes in processes, acks=all, replication factor 3, min.insync.replicas=2. However a leader goes, every
acknowledged record is there once and in order, and in the end all replicas have equal bytes. KRAFTLOG_REPLICA_KILLS and
KRAFTLOG_REPLICA_KILL_SEED repeat a run; KRAFTLOG_REPLICA_FLUSH=true lets acknowledgements wait for the disks.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraftlog
from interop.test_kill import TOPIC, Reader, SequenceProducer
from kraftlog.cluster import NodeProcess

KILLS = int(os.environ.get("KRAFTLOG_REPLICA_KILLS", "4"))
SEED = int(os.environ.get("KRAFTLOG_REPLICA_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
FLUSH = os.environ.get("KRAFTLOG_REPLICA_FLUSH", "false")
PARTITIONS = 3
SESSION_S = 2.0
HOW = ("kill", "leave", "pause", "cut")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[kraftlog.Cluster]:
    with kraftlog.Cluster(data_dir=tmp_path / "cluster", log_flush_on_ack=FLUSH, timeout_s=90) as made:
        yield made
        for node_id in made.nodes:
            made.kill(node_id)  # of a test that failed; a clean end has none


def log(node: NodeProcess, index: int) -> bytes:
    directory = node.data_dir / f"{TOPIC}-{index}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def strike(cluster: kraftlog.Cluster, node_id: int, how: str) -> None:
    """The leader dies, leaves, or is silent for longer than its session."""
    match how:
        case "kill":
            cluster.kill(node_id)
        case "leave":
            cluster.stop_node(node_id)
        case "pause":
            cluster.pause(node_id)
        case "cut":
            cluster.partition(node_id)


def end_strike(cluster: kraftlog.Cluster, node_id: int, how: str, began: float) -> None:
    """The node comes back."""
    match how:
        case "kill" | "leave":
            cluster.launch_node(node_id)
        case "pause" | "cut":
            time.sleep(max(0.0, began + SESSION_S * 1.5 - time.monotonic()))
            cluster.resume(node_id) if how == "pause" else cluster.heal()


def gap_s(producers: list[SequenceProducer], since: float) -> float:
    """Until every partition takes records again."""
    for producer in producers:
        producer.progress.clear()
    for producer in producers:
        assert producer.progress.wait(60), f"{producer.name}: no acknowledgement for 60 s"
    return time.monotonic() - since


@pytest.mark.timeout(14_400)
def test_whatever_happens_to_leaders_nothing_acknowledged_is_lost(cluster: kraftlog.Cluster) -> None:
    bootstrap = cluster.bootstrap_servers
    print(f"KRAFTLOG_REPLICA_KILL_SEED={SEED} KRAFTLOG_REPLICA_KILLS={KILLS} KRAFTLOG_REPLICA_FLUSH={FLUSH}")
    rng = random.Random(SEED)
    cluster.create_topic(TOPIC, PARTITIONS, config={"segment.bytes": 1 << 20})
    producers = [
        SequenceProducer(
            bootstrap, index, "none", rng.randrange(1 << 32), socket_timeout_ms=4000, request_timeout_ms=3000
        )
        for index in range(PARTITIONS)
    ]
    reader = Reader(PARTITIONS)
    for producer in producers:
        producer.start()
    gaps: dict[str, list[float]] = {}
    try:
        for count in range(KILLS):
            gap_s(producers, 0)
            # A short run has one of each, a long one mostly kills.
            how = HOW[count] if len(HOW) >= KILLS else rng.choices(HOW, (6, 2, 2, 2))[0]
            victim = cluster.leader(TOPIC, rng.randrange(PARTITIONS))
            assert victim > 0
            time.sleep(rng.uniform(0, 0.2))
            was_controller = cluster.controller == victim
            began = time.monotonic()
            strike(cluster, victim, how)
            gap = gap_s(producers, began)
            gaps.setdefault(f"{how} of the active controller" if was_controller else how, []).append(gap)
            end_strike(cluster, victim, how, began)
            cluster.wait_until_in_sync()
            for producer in producers:
                assert not producer.failures, f"seed {SEED}, strike {count}: {producer.failures[:3]}"
                reader.catch_up(bootstrap, producer.partition, producer.acked)
            print(
                f"{count}: {how} of node {victim}{', the active controller' if was_controller else ''},"
                f" produce after {gap:.2f} s;"
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
    cluster.wait_until_in_sync()
    full = Reader(PARTITIONS)
    for producer in producers:
        full.catch_up(bootstrap, producer.partition, producer.sent)
        assert full.next_number[producer.partition] == producer.sent
    time.sleep(1)  # followers learn what is committed with their next fetch
    for node in cluster.nodes.values():
        node.terminate()
    for node in cluster.nodes.values():
        node.wait_until_stopped(time.monotonic() + 60)
    for index in range(PARTITIONS):
        logs = [log(node, index) for node in cluster.nodes.values()]
        assert logs[0], index
        assert logs[0] == logs[1] == logs[2], f"partition {index}: {[len(log) for log in logs]} bytes"
    for how, seconds in sorted(gaps.items()):
        ordered = sorted(seconds)
        print(
            f"{how}: {len(ordered)} times, produce goes on after {ordered[len(ordered) // 2]:.2f} s (median),"
            f" {ordered[-1]:.2f} s (most)"
        )
