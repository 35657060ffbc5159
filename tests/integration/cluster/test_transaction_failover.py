"""The coordinator, a leader and clients die by ``kill -9`` in the middle of transactions on three nodes.

Readers of committed records find each committed value once and in order, and nothing else; no transaction stays open.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import kraftlog
from kraftlog.errors import ErrorCode
from kraftlog.vocabulary import TRANSACTION_STATE_TOPIC
from kraftlog.wire.messages.describe_producers import DescribeProducersRequest
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from kraftlog.wire.messages.list_transactions import ListTransactionsRequest
from raw_client import RawClient
from transaction_requests import batch, begin, end, produce, read, wait_until_complete
from waiting import until_true

TOPIC = "orders"
PARTITIONS = 3
DEADLINE_S = 60.0
STREAM = "stream"
BURST = 200
OVER = ("Empty", "CompleteCommit", "CompleteAbort")


class Writer:
    """Writes a value to every partition in one transaction, and tries again after an abort, as an application does."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "reconnect.backoff.max.ms": 200,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._retried(lambda: self._producer.init_transactions(DEADLINE_S))

    def write(self, value: bytes, before_commit: Callable[[], object] = lambda: None) -> None:
        """Commit ``value`` on all partitions; ``before_commit`` runs once while its transaction is open."""
        faults = [before_commit]
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self._producer.begin_transaction()
            try:
                self._produce(value)
                if faults:
                    faults.pop()()
                self._retried(lambda: self._producer.commit_transaction(DEADLINE_S))
            except KafkaException as error:
                assert error.args[0].txn_requires_abort(), error
                assert time.monotonic() < deadline, error
                self._retried(lambda: self._producer.abort_transaction(DEADLINE_S))
            else:
                return

    def abort(self, value: bytes) -> None:
        self._producer.begin_transaction()
        self._produce(value)
        self._retried(lambda: self._producer.abort_transaction(DEADLINE_S))

    def _produce(self, value: bytes) -> None:
        for partition in range(PARTITIONS):
            self._producer.produce(TOPIC, value, partition=partition)
        assert self._producer.flush(DEADLINE_S) == 0

    @staticmethod
    def _retried(call: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


class Stream:
    """An idempotent producer whose batches are on their way while nodes die."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 5,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def send(self) -> None:
        """Hand over ``BURST`` records, and wait for none of them."""
        for number in range(self.sent, self.sent + BURST):
            self._producer.produce(STREAM, b"%d" % number, partition=0)
        self.sent += BURST
        self._producer.poll(0)

    def end(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0


class Child:
    """``transactional_child.py``; ready once its transaction is open."""

    def __init__(self, bootstrap: str, transactional_id: str, value: bytes, timeout_ms: int) -> None:
        program = str(Path(__file__).with_name("transactional_child.py"))
        self.process = subprocess.Popen(
            [sys.executable, program, bootstrap, transactional_id, TOPIC, value.decode(), str(timeout_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.wait_for("open")

    def wait_for(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == line

    def commit(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def committed_values(bootstrap: str, topic: str, partitions: int) -> list[list[bytes]]:
    """The values of each partition up to its last stable offset, markers included."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "never-commits",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    names = [TopicPartition(topic, index, 0) for index in range(partitions)]
    consumer.assign(names)
    found: list[list[bytes]] = [[] for _ in names]
    deadline = time.monotonic() + DEADLINE_S
    ends = [consumer.get_watermark_offsets(name, timeout=DEADLINE_S)[1] for name in names]
    while any(position.offset < end for position, end in zip(consumer.position(names), ends, strict=True)):
        assert time.monotonic() < deadline, (consumer.position(names), ends)
        for message in consumer.consume(1000, 0.1):
            if message.error() is None:
                found[message.partition()].append(message.value())
    consumer.close()
    return found


def ends(bootstrap: str, isolation: str) -> dict[Any, int]:
    with kraftlog.Consumer(bootstrap_servers=bootstrap, isolation_level=isolation) as consumer:
        return dict(consumer.end_offsets(consumer.partitions_for(TOPIC)))


def unfinished(cluster: kraftlog.Cluster) -> list[tuple[str, str]]:
    found = []
    for node in cluster.nodes.values():
        with RawClient(node.bootstrap_server) as client:
            found += client.call(ListTransactionsRequest()).transaction_states
    return [(s.transactional_id, s.transaction_state) for s in found if s.transaction_state not in OVER]


def producer_ids(cluster: kraftlog.Cluster) -> list[int]:
    """Two new producer ids of each node that runs."""
    found = []
    for node in cluster.nodes.values():
        if node.is_running:
            with RawClient(node.bootstrap_server) as client:
                answers = [client.call(InitProducerIdRequest(transactional_id=None)) for _ in range(2)]
            assert [answer.error_code for answer in answers] == [0, 0]
            found += [answer.producer_id for answer in answers]
    return found


def check_replicas_of_an_open_transaction(cluster: kraftlog.Cluster) -> None:
    """Leader and followers of topic ``raw``: who describes the producer, and what readers of committed records get."""
    key, addresses = "raw", {node_id: node.bootstrap_server for node_id, node in cluster.nodes.items()}
    leader_id = cluster.leader("raw")
    with ExitStack() as closing:
        nodes = {node_id: closing.enter_context(RawClient(address)) for node_id, address in addresses.items()}
        coordinator, leader = nodes[cluster.leader(TRANSACTION_STATE_TOPIC)], nodes[leader_id]
        followers = [client for node_id, client in nodes.items() if node_id != leader_id]
        producer = begin(coordinator, key)
        assert produce(leader, "raw", batch(producer, 0, b"a"), key=key) == 0
        for follower in followers:
            assert produce(follower, "raw", batch(producer, 1), key=key) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            until_true(lambda client=follower: read(client, "raw", 0)[0] == [b"a"])
            values, partition = read(follower, "raw")
            assert (values, partition.last_stable_offset, partition.high_watermark) == ([], 0, 1)
        for client in nodes.values():
            assert describe_producers(client, "raw") == [(producer[0], 0)]
        assert end(coordinator, key, producer)[0] == 0
        wait_until_complete(coordinator, key)
        # A Produce of the transaction that comes late begins none.
        assert produce(leader, "raw", batch(producer, 1), key=key) == ErrorCode.INVALID_PRODUCER_EPOCH
        for client in nodes.values():
            until_true(lambda client=client: read(client, "raw")[0] == [b"a"])
            assert describe_producers(client, "raw") == [(producer[0], -1)]
        assert sorted(describe_producers(client, "alone") == [] for client in nodes.values()) == [False, False, True]


def describe_producers(client: RawClient, topic: str) -> Any:
    """Producer ids and where their transactions begin; NOT_LEADER_OR_FOLLOWER without a replica."""
    asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
    (partition,) = client.call(DescribeProducersRequest(topics=[asked])).topics[0].partitions
    if partition.error_code:
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None
    return [(found.producer_id, found.current_txn_start_offset) for found in partition.active_producers]


@pytest.mark.slow
@pytest.mark.spec("PSTA-22", "PSTA-54", "PSTA-56", "PSTA-72", "PSTA-87", "PSTA-88", "TXNC-31")
@pytest.mark.timeout(240)
def test_transactions_are_exact_when_coordinator_leader_and_clients_are_killed(tmp_path: Path) -> None:
    settings = {
        "transaction_state_log_num_partitions": 1,
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
    }
    with kraftlog.Cluster(nodes=3, data_dir=tmp_path / "cluster", timeout_s=90, **settings) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        for name, replication_factor in ((STREAM, 3), ("raw", 3), ("alone", 1)):
            cluster.create_topic(name, replication_factor=replication_factor)
        bootstrap = cluster.bootstrap_servers
        writer, stream = Writer(bootstrap, "writer"), Stream(bootstrap)
        ids = producer_ids(cluster)

        def kill(node_id: int) -> None:
            stream.send()
            cluster.kill(node_id)
            stream.send()

        def recover(node_id: int) -> None:
            nonlocal ids
            cluster.start_node(node_id)
            cluster.wait_until_in_sync()
            ids += producer_ids(cluster)

        writer.write(b"calm")
        writer.abort(b"aborted")
        check_replicas_of_an_open_transaction(cluster)

        coordinator = cluster.leader(TRANSACTION_STATE_TOPIC)
        writer.write(b"coordinator", before_commit=lambda: kill(coordinator))
        recover(coordinator)

        # The commit is answered before the markers are written; the next coordinator has to write those that miss.
        coordinator = cluster.leader(TRANSACTION_STATE_TOPIC)
        writer.write(b"decided")
        kill(coordinator)
        writer.write(b"after")
        recover(coordinator)

        coordinator = cluster.leader(TRANSACTION_STATE_TOPIC)
        leaders = [cluster.leader(TOPIC, index) for index in range(PARTITIONS)]
        leader = next(found for found in leaders if found != coordinator)
        writer.write(b"leader", before_commit=lambda: kill(leader))
        writer.abort(b"aborted")
        recover(leader)

        # One client dies for good, one gives way to the next with its id, and one returns from a pause.
        children = [
            Child(bootstrap, name, b"lost", timeout_ms)
            for name, timeout_ms in (("abandoned", 1_000), ("replaced", 60_000), ("zombie", 60_000))
        ]
        abandoned, replaced, zombie = children
        try:
            abandoned.process.kill()
            replaced.process.kill()
            os.kill(zombie.process.pid, signal.SIGSTOP)
            for name in ("replaced", "zombie"):
                Writer(bootstrap, name).write(b"kept")
            zombie.commit()
            os.kill(zombie.process.pid, signal.SIGCONT)
            zombie.wait_for("_FENCED")
        finally:
            for child in children:
                child.end()
        writer.write(b"end")
        stream.end()

        until_true(lambda: not unfinished(cluster), DEADLINE_S)
        until_true(lambda: ends(bootstrap, "read_committed") == ends(bootstrap, "read_uncommitted"), DEADLINE_S)
        committed = [b"calm", b"coordinator", b"decided", b"after", b"leader", b"kept", b"kept", b"end"]
        assert committed_values(bootstrap, TOPIC, PARTITIONS) == [committed] * PARTITIONS
        assert committed_values(bootstrap, STREAM, 1) == [[b"%d" % number for number in range(stream.sent)]]
        assert len(ids) == len(set(ids)) == 4 * 2 * 3
