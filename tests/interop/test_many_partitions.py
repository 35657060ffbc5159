"""Topics with many partitions come and go while clients go on, and a minimum of replicas above their number commits.

The same tests pass against Apache Kafka with KRAFTLOG_INTEROP_TARGET=kafka.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from interop.conftest import ServerFactory
from interop.harness import Server

PARTITIONS = 1000
TIMEOUT_S = 60.0


@pytest.fixture
def server(server_factory: ServerFactory) -> Iterator[Server]:
    # Acknowledged from the page cache, as in Kafka: first fsyncs of many logs would delay the commits of the group.
    server = server_factory(config={"log.flush.on.ack": "false"})
    server.format()
    server.start()
    yield server
    server.stop()


def create(admin: AdminClient, topic: str, partitions: int, **config: str) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    admin.create_topics([new], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)


def produce(server: Server, topic: str, count: int, *, acks: str = "all", partitions: int = 1) -> list[str]:
    """Produce to the partitions in turn; what the deliveries reported."""
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": acks, "message.timeout.ms": 30_000})

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            errors.append(str(error))

    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    return errors


def consume(server: Server, topic: str, count: int) -> list[bytes]:
    """Read through a group from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": f"g-{secrets.token_hex(4)}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    end_s = time.monotonic() + TIMEOUT_S
    while len(values) < count and time.monotonic() < end_s:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


@pytest.mark.timeout(200)
@pytest.mark.parametrize("acks", ["all", "1"])
def test_minimum_of_replicas_above_their_number_commits(server: Server, acks: str) -> None:
    create(AdminClient({"bootstrap.servers": server.bootstrap}), "t", 1, **{"min.insync.replicas": "3"})
    assert produce(server, "t", 10, acks=acks) == []
    assert sorted(consume(server, "t", 10)) == sorted(b"%d" % number for number in range(10))


@pytest.mark.timeout(300)
def test_many_partitions_are_created_used_and_deleted_beside_a_group(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    create(admin, "steady", 1)
    seen: list[bytes] = []
    rebalances: list[str] = []
    is_over = threading.Event()

    def follow() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": "steady",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
            }
        )
        consumer.subscribe(["steady"], on_revoke=lambda *_: rebalances.append("revoked"))
        while not is_over.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                seen.append(message.value() or b"")
        rebalances_before_close.extend(rebalances)
        consumer.close()

    rebalances_before_close: list[str] = []
    member = threading.Thread(target=follow)
    member.start()
    assert produce(server, "steady", 1) == []
    end_s = time.monotonic() + TIMEOUT_S
    while not seen and time.monotonic() < end_s:
        time.sleep(0.05)
    create(admin, "many", PARTITIONS)
    # Not to all: librdkafka asks for the metadata of all partitions whenever one is refused.
    assert produce(server, "many", 20, partitions=20) == [], "a client tries again until a log is open"
    assert produce(server, "steady", 1) == []
    admin.delete_topics(["many"], request_timeout=TIMEOUT_S)["many"].result(TIMEOUT_S)
    create(admin, "many", PARTITIONS)
    assert produce(server, "many", 10) == []
    assert sorted(consume(server, "many", 10)) == sorted(b"%d" % number for number in range(10)), "no old records"
    assert produce(server, "steady", 1) == []
    while len(seen) < 3 and time.monotonic() < end_s + TIMEOUT_S:
        time.sleep(0.05)
    is_over.set()
    member.join()
    assert len(seen) == 3
    assert rebalances_before_close == [], "the member stays in its group"
