"""``kraftlog.Cluster`` and ``kraftlog cluster``: real processes, each fault, and what is left afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

import kraftlog
from kraftlog.errors import ClusterError, KafkaError
from waiting import until_true


def produce(bootstrap: str, values: range, timeout_s: float = 30) -> list[object]:
    """Produce with acks=all; the errors of the deliveries."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, "message.timeout.ms": 30_000})
    for value in values:
        producer.produce("orders", str(value), partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(timeout_s)
    return errors


def consume(bootstrap: str, count: int) -> list[int]:
    """Read partition 0 from the beginning, through a group."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe(["orders"])
    values: list[int] = []
    deadline = time.monotonic() + 40
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(int(message.value()))
    consumer.close()
    return values


def leader_moves(cluster: kraftlog.Cluster, old: int) -> None:
    def has_moved(state) -> bool:
        return state.partitions["orders", 0].leader not in (-1, old)

    cluster.wait_until(has_moved, f"node {old} still leads")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_cluster_survives_each_fault_and_a_rolling_restart(tmp_path: Path) -> None:
    home = tmp_path / "cluster"
    with kraftlog.Cluster(nodes=3, data_dir=home, log_segment_bytes=1 << 20) as cluster:
        state = cluster.state()
        assert state.brokers == (1, 2, 3)
        assert state.controller_id in cluster.nodes
        cluster.create_topic("orders")
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            cluster.create_topic("orders")
        cluster.delete_topic("orders")
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            cluster.delete_topic("orders")
        cluster.create_topic("orders")
        expected = 0

        def takes_records() -> None:
            nonlocal expected
            assert produce(cluster.bootstrap_servers, range(expected, expected + 10)) == [None] * 10
            expected += 10

        takes_records()

        killed = cluster.leader("orders")
        cluster.kill(killed)
        assert not cluster.nodes[killed].is_running
        leader_moves(cluster, killed)
        takes_records()
        cluster.start_node(killed)
        cluster.wait_until_in_sync()

        paused = cluster.leader("orders")
        cluster.pause(paused)
        leader_moves(cluster, paused)
        takes_records()
        cluster.resume(paused)
        cluster.wait_until_in_sync()

        cut = cluster.leader("orders")
        cluster.partition(cut)
        leader_moves(cluster, cut)
        takes_records()
        with pytest.raises(KafkaException):
            Consumer(
                {"bootstrap.servers": cluster.nodes[cut].bootstrap_server, "group.id": "x", "log_level": 0}
            ).list_topics(timeout=0.5)
        cluster.heal()
        cluster.wait_until_in_sync()

        assert cluster.add_node() == 4
        until_true(lambda: 4 in cluster.state().brokers)
        cluster.rolling_restart()
        takes_records()
        values = consume(cluster.bootstrap_servers, expected)
        # A cut answer is sent again, and so may be a record of a producer without idempotence.
        assert sorted(set(values)) == list(range(expected))
        bootstrap = cluster.bootstrap_servers
        processes = [node.process_id for node in cluster.nodes.values()]
    assert not any(is_running(process_id) for process_id in processes)

    with kraftlog.Cluster(data_dir=home) as again:
        assert again.bootstrap_servers == bootstrap, "clients know these addresses"
        again.wait_until_in_sync()
        assert again.state().brokers == (1, 2, 3, 4)


def is_running(process_id: int | None) -> bool:
    try:
        return " Z " not in Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return False


def test_a_node_that_does_not_start_is_reported_with_its_last_words_and_leaves_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterError, match=rf"(?s)node 1 ended with status 1 .*{address}"):
            kraftlog.Cluster(nodes=1, config={"kraftlog.metrics.listener": address}).start()
    assert list(tmp_path.iterdir()) == []


def test_networks_without_proxies_cannot_be_cut(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="network_faults=True"):
        kraftlog.Cluster(nodes=1, network_faults=False).partition(1)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_command_prints_changes_carries_out_commands_and_its_nodes_end_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kraftlog", "cluster", "--nodes", "2", "--port", "0", "--data-dir", str(tmp_path)]
    printed = tmp_path / "printed"
    with printed.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--override", "log.flush.on.ack=true"], stdin=subprocess.PIPE, stdout=output, text=True
        )
    assert process.stdin is not None

    def says(text: str) -> None:
        until_true(lambda: text in printed.read_text() or process.poll() is not None)
        assert text in printed.read_text()

    try:
        says("broker 2 is in service")
        assert "kraftlog cluster: bootstrap.servers=127.0.0.1:" in printed.read_text()
        for line, answer in (
            ("kill 2", "kill 2: done"),
            ("frob 2", "no command: frob 2"),
            ("start 9", "start 9: the cluster has no node 9"),
            ("start 2", "start 2: done"),
        ):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            says(answer)
        nodes = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and str(tmp_path).encode() in read_command_line(entry)
        ]
        assert len(nodes) == 3
        process.send_signal(signal.SIGKILL)
        process.wait()
        # The nodes notice that their parent is gone.
        until_true(lambda: not any(is_running(node) for node in nodes))
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


def read_command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_program_that_forgets_its_cluster_leaves_nothing(tmp_path: Path) -> None:
    program = "import kraftlog; print(kraftlog.Cluster(nodes=1).start().nodes[1].process_id)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not is_running(int(done.stdout))
    assert list(tmp_path.iterdir()) == []
