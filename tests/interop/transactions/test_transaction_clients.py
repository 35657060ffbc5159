"""Unmodified clients with transactions against one node, and Kafka's transaction tool.

confluent-kafka, aiokafka, kafka-python and the Java client of 2.1 and of 4.3 commit, abort, are fenced, and move
records with their offsets; readers of both isolation levels see what they should.
"""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from interop.clients import create_topic
from interop.harness import Java, KraftlogServer, Server
from interop.transactions.transaction_clients import (
    DROPPED,
    KEPT,
    Aiokafka,
    ConfluentKafka,
    JavaClient,
    KafkaPython,
    TransactionalClient,
)
from raw_client import RawClient
from transaction_requests import batch, produce, read

PARTITIONS = 2
TOOL = "org.apache.kafka.tools.TransactionsCommand"


def java_2_1() -> JavaClient:
    """kafka-clients 2.1.1, the oldest that Kafka 4 supports; fetched once by `.ci/dev jars`."""
    libs = Path(__file__).parent / "old" / "target" / "libs"
    if not list(libs.glob("kafka-clients-2.1*.jar")):
        subprocess.run(["sh", str(Path(__file__).parents[3] / ".ci" / "dev"), "jars"], check=True)
    return JavaClient("java-2.1", f"{libs}/*")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Without verification a client that does not ask the coordinator can leave a transaction that hangs.
    config = {"transaction.partition.verification.enable": "false", "group.initial.rebalance.delay.ms": "0"}
    server = KraftlogServer(tmp_path_factory.mktemp("node"), config)
    with server.running():
        yield server


def values(bootstrap: str, topic: str, isolation: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "never-commits",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[bytes] = []
    open_partitions = set(range(PARTITIONS))
    deadline = time.monotonic() + 30
    while open_partitions:
        assert time.monotonic() < deadline, f"{topic}: no end of partitions {open_partitions}"
        message = consumer.poll(1)
        if message is not None and message.error():
            open_partitions.discard(message.partition())
        elif message is not None:
            found.append(message.value())
    consumer.close()
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["confluent-kafka", "aiokafka", "kafka-python", "java", "java-2.1"])
@pytest.mark.timeout(240)
def test_client_commits_aborts_is_fenced_and_moves_records_exactly_once(node: Server, java: Java, name: str) -> None:
    client: TransactionalClient
    match name:
        case "java":
            client = JavaClient(name, java.libs)
        case "java-2.1":
            client = java_2_1()
        case _:
            client = next(made for made in (ConfluentKafka(), Aiokafka(), KafkaPython()) if made.name == name)
    source, target = f"{name}-in", f"{name}-out"
    for topic in (source, target):
        create_topic(node.bootstrap, topic, partitions=PARTITIONS)
    client.run(node.bootstrap, source, target, PARTITIONS)
    assert values(node.bootstrap, source, "read_committed") == KEPT
    assert values(node.bootstrap, source, "read_uncommitted") == sorted(KEPT + DROPPED)
    assert values(node.bootstrap, target, "read_committed") == KEPT


@pytest.mark.slow
@pytest.mark.spec("TXNC-123")
def test_transaction_tool_shows_and_ends_transactions(node: Server, java: Java) -> None:
    """list, describe, describe-producers, find-hanging, abort and forceTerminateTransaction (KIP-664, KIP-588)."""

    def tool(*args: str) -> list[list[str]]:
        # The tool leaves threads behind, and so each needs a JVM of its own.
        lines = java.run(TOOL, "--bootstrap-server", node.bootstrap, *args).stdout.splitlines()
        return [[column.strip() for column in line.split("\t")] for line in lines[1:]]

    # Names of each try: a second one finds what the first has left.
    seen, hung = f"seen-{secrets.token_hex(2)}", f"hung-{secrets.token_hex(2)}"
    for topic in (seen, hung):
        create_topic(node.bootstrap, topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": seen, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(seen, b"open", partition=0)
    assert producer.flush(30) == 0
    with RawClient(node.bootstrap) as client, ThreadPoolExecutor(3) as pool:
        # A transaction that no coordinator has: the partition's last stable offset waits for it for ever.
        assert produce(client, hung, batch((987_654, 3), 0), key="unknown", version=9) == 0
        assert read(client, hung)[1].last_stable_offset == 0
        # The tool calls a transaction hanging when it is five minutes older than the longest one allowed.
        listed, described, producers, young, known, hanging = pool.map(
            lambda args: tool(*args),
            [
                ("list",),
                ("describe", "--transactional-id", seen),
                ("describe-producers", "--topic", seen, "--partition", "0"),
                ("find-hanging", "--topic", hung, "--max-transaction-timeout", "15"),
                ("find-hanging", "--topic", seen, "--max-transaction-timeout", "-5"),
                ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "-5"),
            ],
        )
        assert [seen, "1", "Ongoing"] in [[row[0], row[1], row[3]] for row in listed]
        assert [[row[0], row[1], row[4], row[8]] for row in described] == [["1", seen, "Ongoing", f"{seen}-0"]]
        assert [row[5] for row in producers] == ["0"]
        assert (young, known) == ([], [])
        assert [hung, "0", "987654"] in [row[:3] for row in hanging]
        assert seen not in [row[0] for row in hanging]
        ends = [
            ("abort", "--topic", hung, "--partition", "0", "--start-offset", "0"),
            ("forceTerminateTransaction", "--transactionalId", seen),
        ]
        list(pool.map(lambda args: tool(*args), ends))
        for topic in (seen, hung):
            assert read(client, topic)[1].last_stable_offset == 2
            assert values(node.bootstrap, topic, "read_committed") == []
