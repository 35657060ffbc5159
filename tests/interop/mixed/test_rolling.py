"""A cluster of Apache Kafka becomes one of kraftlog and Apache Kafka again, node by node on the same directories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.harness import Java
from interop.mixed.cluster import KAFKA, KRAFTLOG, MixedCluster
from interop.mixed.load import Load

ROUNDS = int(os.environ.get("KRAFTLOG_MIXED_ROUNDS", "1"))
NODES = (1, 2, 3)


@pytest.fixture
def cluster(tmp_path: Path, java: Java) -> Iterator[MixedCluster]:
    made = MixedCluster(tmp_path, java)
    yield made
    made.close()


@pytest.mark.timeout(900 * ROUNDS)
@pytest.mark.slow
def test_a_kafka_cluster_becomes_one_of_kraftlog_and_returns_under_load(cluster: MixedCluster) -> None:
    for node_id in NODES:
        cluster.add(KAFKA, "broker,controller", node_id)
    cluster.start()
    kept = Kept(cluster)
    with Load(cluster, [[1, 2, 3], [2, 3, 1], [3, 1, 2]]) as load:
        load.wait_for_progress("start")
        load.check_java_clients()
        for _ in range(ROUNDS):
            for kind in (KRAFTLOG, KAFKA):
                for node_id in NODES:
                    cluster.members[node_id].become(kind)
                    cluster.wait_until_in_sync()
                    load.wait_for_progress(f"{node_id} is {kind}")
                kept.check()
                cluster.elect_preferred()
                load.wait_for_progress(f"all are {kind}")
    load.check_all()
    topics = cluster.replicas()
    committed = cluster.metadata_sizes()
    cluster.stop()
    cluster.assert_equal_replicas(topics)
    cluster.assert_equal_metadata(committed)
    for member in cluster.members.values():
        assert not member.complaints(), member.complaints()[:10]


class Kept:
    """Metadata that only Kafka's controllers write; a kraftlog controller has to keep it."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        alter = ("--alter", "--add-config")
        self._cluster.configs(*alter, "producer_byte_rate=90000000", "--entity-type", "users", "--entity-name", "ann")
        self._cluster.configs(
            *alter, "SCRAM-SHA-256=[password=secret]", "--entity-type", "users", "--entity-name", "bob"
        )
        self._cluster.configs(*alter, "message.max.bytes=2000000", "--entity-type", "brokers", "--entity-default")
        self._before = self._told()

    def check(self) -> None:
        """All of it is there yet."""
        assert self._told() == self._before

    def _told(self) -> list[str]:
        return [
            self._cluster.configs("--describe", "--entity-type", "users"),
            self._cluster.configs("--describe", "--entity-type", "brokers", "--entity-default"),
        ]
