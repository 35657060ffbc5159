"""Consumer groups as everybody first tries them: ``subscribe()``, with every client, and Kafka's own group tool."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop.clients import create_topic
from interop.harness import Java, Server
from kraftlog.wire.messages.describe_groups import DescribeGroupsRequest
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from raw_client import RawClient

COUNT = 200
DEADLINE_S = 60.0
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def values(first: int, count: int) -> list[bytes]:
    return [b"value %d" % number for number in range(first, first + count)]


def write(bootstrap: str, topic: str, written: list[bytes]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})
    for value in written:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def confluent(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 2}
    consumer = Consumer(settings)
    got: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        consumer.subscribe([topic])
        while len(got) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                got.append(message.value())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return got


def aiokafka(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer

    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        got: list[bytes] = []
        try:
            async with asyncio.timeout(DEADLINE_S):
                while len(got) < count:
                    got.append((await consumer.getone()).value)
            await consumer.commit()
        finally:
            await consumer.stop()
        return got

    return asyncio.run(read())


def kafka_python(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(DEADLINE_S * 1000),
        max_poll_records=count,
    )
    got: list[bytes] = []
    try:
        for record in consumer:
            got.append(record.value)
            if len(got) == count:
                break
        consumer.commit()
    finally:
        consumer.close()
    return got


Reader = Callable[[str, str, str, int], list[bytes]]


def console(java: Java) -> Reader:
    def read(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
        done = java.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--max-messages", str(count)),
            *("--command-property", "auto.offset.reset=earliest", "--timeout-ms", str(int(DEADLINE_S * 1000))),
        )
        return done.stdout.encode().splitlines()

    return read


READERS: dict[str, Reader] = {"confluent-kafka": confluent, "aiokafka": aiokafka, "kafka-python": kafka_python}


@pytest.mark.slow
@pytest.mark.parametrize("client", [*READERS, "console"])
def test_a_group_goes_on_where_it_left_off_also_after_a_restart(
    server_factory: Callable[..., Server], java: Java, client: str
) -> None:
    server = server_factory()
    server.start()
    read = READERS.get(client) or console(java)
    create_topic(server.bootstrap, "subscribed")
    write(server.bootstrap, "subscribed", values(0, COUNT))
    assert read(server.bootstrap, "subscribed", "g", COUNT) == values(0, COUNT)
    write(server.bootstrap, "subscribed", values(COUNT, 5))
    assert read(server.bootstrap, "subscribed", "g", 5) == values(COUNT, 5)
    server.restart()
    write(server.bootstrap, "subscribed", values(COUNT + 5, 5))
    assert read(server.bootstrap, "subscribed", "g", 5) == values(COUNT + 5, 5)
    server.stop()
    assert server.errors_logged() == []


@pytest.fixture
def served(node: Server) -> Iterator[Server]:
    yield node
    assert node.errors_logged() == []


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_share_partitions_and_take_over_from_each_other(served: Server, strategy: str) -> None:
    from confluent_kafka import Consumer

    topic, group = f"shared-{strategy}", f"group-{strategy}"
    create_topic(served.bootstrap, topic, partitions=4)
    settings = {
        "bootstrap.servers": served.bootstrap,
        "group.id": group,
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 500,
        "log_level": 2,
    }
    members = [Consumer(settings) for _ in range(2)]

    def wait_for(counts: list[int]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while [len(member.assignment()) for member in members] != counts:
            assert time.monotonic() < deadline, [member.assignment() for member in members]
            for member in members:
                member.poll(0.1)

    for member in members:
        member.subscribe([topic])
    wait_for([2, 2])
    members.pop(0).close()
    wait_for([4])
    members[0].close()


def test_a_static_member_comes_back_without_a_rebalance(served: Server) -> None:
    from confluent_kafka import Consumer

    create_topic(served.bootstrap, "static")
    settings = {
        "bootstrap.servers": served.bootstrap,
        "group.id": "static",
        "group.instance.id": "the-one",
        "log_level": 2,
    }
    member_ids = []
    for _ in range(2):
        consumer = Consumer(settings)
        consumer.subscribe(["static"])
        deadline = time.monotonic() + DEADLINE_S
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        with RawClient(served.bootstrap) as client:
            (group,) = client.call(DescribeGroupsRequest(groups=["static"])).groups
            (member,) = group.members
            alive = HeartbeatRequest(
                group_id="static", generation_id=1, member_id=member.member_id, group_instance_id="the-one"
            )
            assert client.call(alive).error_code == 0, "the group is no longer in its first generation"
        member_ids.append(member.member_id)
        consumer.close()
    assert member_ids[0] != member_ids[1]


def test_consumer_group_command_lists_describes_resets_deletes(served: Server, java: Java, tmp_path: Path) -> None:
    create_topic(served.bootstrap, "tooled", partitions=2)
    write(served.bootstrap, "tooled", values(0, 10))
    assert len(confluent(served.bootstrap, "tooled", "tool-group", 10)) == 10

    def groups(*args: str, check: bool = True) -> str:
        done = java.tool(TOOL, "--bootstrap-server", served.bootstrap, *args, check=check)
        return done.stdout + done.stderr

    assert "tool-group" in groups("--list").split()
    assert re.search(r"tool-group\s+Empty", groups("--list", "--state"))
    described = groups("--describe", "--group", "tool-group")
    assert re.search(r"tool-group\s+tooled\s+0\s+10\s+10\s+0\b", described)
    state = groups("--describe", "--group", "tool-group", "--state")
    assert re.search(r"tool-group\s+127\.0\.0\.1:\d+ +\(1\).*Empty", state)
    verbose = groups("--describe", "--group", "tool-group", "--verbose")
    assert re.search(r"tool-group\s+tooled\s+0\s+\S+\s+10\s+10\s+0\b", verbose), verbose
    assert "has no active members" in groups("--describe", "--group", "tool-group", "--members")
    assert "tool-group" in groups("--describe", "--all-groups")
    assert "tool-group" in groups("--list", "--state", "Empty,Dead").split()
    assert "tool-group" not in groups("--list", "--state", "Stable").split()
    assert re.search(r"tool-group\s+\S+", groups("--list", "--type", "classic,consumer"))
    some = ("--reset-offsets", "--group", "tool-group", "--topic", "tooled:0")
    for scenario, offset in {
        ("--to-earliest",): 0,
        ("--to-latest",): 10,
        ("--to-current",): 10,
        ("--to-offset", "6"): 6,
        ("--to-offset", "99"): 10,
        ("--shift-by", "-3"): 7,
        ("--by-duration", "P1D"): 0,
        ("--to-datetime", "2020-01-01T00:00:00.000"): 0,
    }.items():
        assert re.search(rf"tool-group\s+tooled\s+0\s+{offset}\b", groups(*some, *scenario, "--dry-run")), scenario
    exported = groups("--reset-offsets", "--group", "tool-group", "--all-topics", "--to-earliest", "--export")
    assert "tooled,0,0" in exported
    from_file = tmp_path / "offsets.csv"
    from_file.write_text("tooled,0,3\n")
    read = ("--reset-offsets", "--group", "tool-group", "--from-file", str(from_file), "--execute")
    assert re.search(r"tool-group\s+tooled\s+0\s+3\b", groups(*read))
    reset = ("--reset-offsets", "--group", "tool-group", "--topic", "tooled:0", "--to-offset", "4", "--execute")
    assert re.search(r"tool-group\s+tooled\s+0\s+4\b", groups(*reset))
    assert re.search(r"tool-group\s+tooled\s+0\s+4\s+10\s+6\b", groups("--describe", "--group", "tool-group"))
    assert "Successful" in groups("--delete-offsets", "--group", "tool-group", "--topic", "tooled:0")
    assert "successful" in groups("--delete", "--group", "tool-group")
    assert "tool-group" not in groups("--list").split()
