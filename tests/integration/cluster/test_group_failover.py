"""The coordinator of two groups dies by ``kill -9``: the groups go on, and committed offsets never go back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import kraftlog
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC

TOPIC = "orders"
DEADLINE_S = 60
PROTOCOLS = ("classic", "consumer")


class Reader:
    """A consumer that commits what it has read, and what it knows to be committed."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self._consumer = Consumer(self._settings)
        self._consumer.subscribe([TOPIC])
        self.values: list[int] = []
        self.acknowledged = -1

    def read(self, count: int) -> None:
        """Read until ``count`` values are there, commit after each poll, and check what is committed."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.values) < count:
            assert time.monotonic() < deadline, (self._settings["group.protocol"], len(self.values), count)
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            self.values.append(int(message.value()))
            self.commit(message.offset() + 1, deadline)

    def commit(self, offset: int, deadline: float) -> None:
        """Commit with retries, as an application does while the coordinator moves."""
        while True:
            try:
                self._consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
                self.acknowledged = offset
                return
            except KafkaException as error:
                assert time.monotonic() < deadline, error
                self._consumer.poll(0.1)

    def committed(self) -> int:
        """What the coordinator says."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return int(self._consumer.committed([TopicPartition(TOPIC, 0)], timeout=5)[0].offset)
            except KafkaException as error:
                assert time.monotonic() < deadline, error

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.timeout(240)
def test_groups_go_on_when_their_coordinator_is_killed(tmp_path: Path) -> None:
    settings = {"offsets_topic_num_partitions": 1, "group_initial_rebalance_delay_ms": 0}
    with kraftlog.Cluster(nodes=3, data_dir=tmp_path / "cluster", timeout_s=90, **settings) as cluster:
        cluster.create_topic(TOPIC)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})

        def produce(first: int, count: int) -> None:
            for value in range(first, first + count):
                producer.produce(TOPIC, str(value), partition=0)
            assert producer.flush(DEADLINE_S) == 0

        produce(0, 20)
        readers = [Reader(cluster.bootstrap_servers, protocol) for protocol in PROTOCOLS]
        for reader in readers:
            reader.read(20)
        killed = cluster.leader(CONSUMER_OFFSETS_TOPIC)
        cluster.kill(killed)
        produce(20, 20)
        for reader in readers:
            reader.read(40)
            assert reader.committed() == reader.acknowledged == 40
        assert cluster.leader(CONSUMER_OFFSETS_TOPIC) != killed
        cluster.start_node(killed)
        cluster.wait_until_in_sync()
        for reader in readers:
            assert reader.values == list(range(40)), "nothing is lost and nothing that was committed is read again"
            assert reader.committed() == 40
            reader.close()
