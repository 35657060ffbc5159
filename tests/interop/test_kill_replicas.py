"""Leaders of replicated partitions die, leave, stand still or are cut off while idempotent producers write.

Three nodes in processes, acks=all, replication factor 3, min.insync.replicas=2. However a leader goes, every
acknowledged record is there once and in order, no follower of the topic saw a record that is gone later, and in the end
all replicas have equal bytes.

KRAFTLOG_REPLICA_KILLS and KRAFTLOG_REPLICA_KILL_SEED repeat a run, KRAFTLOG_REPLICA_MINUTES ends it earlier;
KRAFTLOG_REPLICA_FLUSH=true lets acknowledgements wait for the disks; KRAFTLOG_REPLICA_CLIENTS names the client of each
partition.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraftlog
from interop.harness import Java
from interop.kafka_tools import assert_verification_finds_no_lag
from interop.sequence_client import SequenceClient, make_client
from interop.test_kill import TOPIC, Reader
from kraftlog.cluster import NodeProcess

KILLS = int(os.environ.get("KRAFTLOG_REPLICA_KILLS", "4"))
SEED = int(os.environ.get("KRAFTLOG_REPLICA_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
FLUSH = os.environ.get("KRAFTLOG_REPLICA_FLUSH", "false")
CLIENTS = os.environ.get("KRAFTLOG_REPLICA_CLIENTS", "confluent,confluent,confluent").split(",")
MINUTES = float(os.environ.get("KRAFTLOG_REPLICA_MINUTES", "inf"))
IS_CAMPAIGN = KILLS > 4
PARTITIONS = len(CLIENTS)
SESSION_S = 2.0
WAIT_S = 300.0 if IS_CAMPAIGN else 60.0  # other work on the machine must not decide a campaign
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


def end_strike(cluster: kraftlog.Cluster, node_id: int, how: str) -> None:
    """The node comes back."""
    match how:
        case "kill" | "leave":
            cluster.launch_node(node_id)
        case "pause":
            cluster.resume(node_id)
        case "cut":
            cluster.heal()


def await_progress(clients: list[SequenceClient]) -> None:
    """Until every partition takes records again."""
    for client in clients:
        client.progress.clear()
    for client in clients:
        assert client.progress.wait(WAIT_S), f"{client.name}: no acknowledgement for {WAIT_S} s; {client.failures[:3]}"


def strike_once(cluster: kraftlog.Cluster, clients: list[SequenceClient], node_id: int, how: str) -> float:
    """Strike, wait, and let the node come back.

    A pause and a cut end after one and a half sessions, even if a client still waits for that node: franz-go tries a
    broker that takes its connection several times, with a time-out each, before it asks who leads.

    Returns:
        Seconds until every partition took records again.
    """
    began = time.monotonic()
    ended = threading.Event()

    def end() -> None:
        end_strike(cluster, node_id, how)
        ended.set()

    strike(cluster, node_id, how)
    silent = threading.Timer(SESSION_S * 1.5, end)
    if how in ("pause", "cut"):
        silent.start()
    await_progress(clients)
    gap_s = time.monotonic() - began
    if how in ("pause", "cut"):
        silent.join()
        assert ended.is_set()
    else:
        end()
    return gap_s


def check_followers(clients: list[SequenceClient]) -> None:
    """Each follower gets to the end of every partition."""
    sent = {client.partition: client.sent for client in clients}
    wanted = [sent[index] for index in range(PARTITIONS)]
    deadline = time.monotonic() + 120
    for client in clients:
        while client.followed != wanted:
            assert not client.failures, f"seed {SEED}: {client.failures[:3]}"
            assert time.monotonic() < deadline, f"{client.name} follows to {client.followed} of {wanted}"
            time.sleep(0.05)


def check_equal_logs(cluster: kraftlog.Cluster) -> None:
    """The log files of stopped nodes have equal bytes, and ``kraftlog log verify --against`` says so."""
    nodes = list(cluster.nodes.values())
    for index in range(PARTITIONS):
        logs = [log(node, index) for node in nodes]
        assert logs[0], index
        assert logs[0] == logs[1] == logs[2], f"partition {index}: {[len(log) for log in logs]} bytes"
        here, *others = [str(node.data_dir / f"{TOPIC}-{index}") for node in nodes]
        for other in others:
            command = [sys.executable, "-m", "kraftlog", "log", "verify", here, "--against", other, "--quiet"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(14_400)
def test_whatever_happens_to_leaders_nothing_acknowledged_is_lost(cluster: kraftlog.Cluster, java: Java) -> None:
    bootstrap = cluster.bootstrap_servers
    print(
        f"KRAFTLOG_REPLICA_KILL_SEED={SEED} KRAFTLOG_REPLICA_KILLS={KILLS} KRAFTLOG_REPLICA_FLUSH={FLUSH}"
        f" KRAFTLOG_REPLICA_CLIENTS={','.join(CLIENTS)}"
    )
    rng = random.Random(SEED)
    cluster.create_topic(TOPIC, PARTITIONS, config={"segment.bytes": 1 << 20})
    clients = [
        make_client(name, java, bootstrap, index, PARTITIONS, rng.randrange(1 << 32))
        for index, name in enumerate(CLIENTS)
    ]
    reader = Reader(PARTITIONS)
    gaps: dict[str, list[float]] = {}
    end = time.monotonic() + MINUTES * 60
    try:
        for client in clients:
            client.start()
        for count in range(KILLS):
            if time.monotonic() > end:
                break
            await_progress(clients)
            # A short run has one of each, a long one mostly kills.
            how = HOW[count] if len(HOW) >= KILLS else rng.choices(HOW, (6, 2, 2, 2))[0]
            victim = cluster.leader(TOPIC, rng.randrange(PARTITIONS))
            assert victim > 0
            time.sleep(rng.uniform(0, 0.2))
            was_controller = cluster.controller == victim
            gap = strike_once(cluster, clients, victim, how)
            gaps.setdefault(f"{how} of the active controller" if was_controller else how, []).append(gap)
            cluster.wait_until_in_sync()
            for client in clients:
                assert not client.failures, f"seed {SEED}, strike {count}: {client.failures[:3]}"
                reader.catch_up(bootstrap, client.partition, client.acked)
            print(
                f"{count}: {how} of node {victim}{', the active controller' if was_controller else ''},"
                f" produce after {gap:.2f} s;"
                f" {[client.acked for client in clients]} acknowledged, followers at"
                f" {[client.followed for client in clients]}",
                flush=True,
            )
        for client in clients:
            client.stop_writing()
        for client in clients:
            client.wait_until_flushed()
            assert not client.failures, f"seed {SEED}: {client.failures[:3]}"
            assert client.acked == client.sent
        cluster.wait_until_in_sync()
        full = Reader(PARTITIONS)
        for client in clients:
            full.catch_up(bootstrap, client.partition, client.sent)
            assert full.next_number[client.partition] == client.sent
        check_followers(clients)
    finally:
        for client in clients:
            client.close()
    if "java" in CLIENTS:
        assert_verification_finds_no_lag(java, cluster.bootstrap_servers, TOPIC, within_s=300)
    time.sleep(1)  # replicas learn what is committed with their next fetch
    for node in cluster.nodes.values():
        node.terminate()
    for node in cluster.nodes.values():
        node.wait_until_stopped(time.monotonic() + 60)
    check_equal_logs(cluster)
    print(f"{sum(map(len, gaps.values()))} strikes, {sum(client.sent for client in clients)} records")
    for how, seconds in sorted(gaps.items()):
        ordered = sorted(seconds)
        print(
            f"{how}: {len(ordered)} times, produce goes on after {ordered[len(ordered) // 2]:.2f} s (median),"
            f" {ordered[-1]:.2f} s (most)"
        )
