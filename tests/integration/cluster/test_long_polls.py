"""Fetches of followers that wait do not hold up partitions which their leader begins to lead."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

import kraftlog

# Longer than a producer waits in this test.
WAIT_MS = 120_000
DELIVERY_MS = 40_000


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fetches", ["python", "native"])
def test_new_partitions_acknowledge_though_a_fetch_of_their_follower_waits(tmp_path: Path, fetches: str) -> None:
    settings = {
        "replica_fetch_wait_max_ms": WAIT_MS,
        "replica_socket_timeout_ms": 2 * WAIT_MS,
        "kraftlog_follower_fetches": fetches,
    }
    with kraftlog.Cluster(nodes=2, data_dir=tmp_path / "cluster", min_insync_replicas=2, **settings) as cluster:
        for topic in ("first", "second", "third"):
            cluster.create_topic(topic, partitions=4, replication_factor=2)
            errors: list[object] = []
            producer = Producer(
                {
                    "bootstrap.servers": cluster.bootstrap_servers,
                    "acks": "all",
                    "log_level": 0,
                    "message.timeout.ms": DELIVERY_MS,
                }
            )
            for partition in range(4):
                producer.produce(
                    topic, b"x", partition=partition, on_delivery=lambda error, _, errors=errors: errors.append(error)
                )
            producer.flush(DELIVERY_MS / 1000 + 10)
            assert errors == [None] * 4, topic
