"""Consumer groups of KIP-848 with real clients, Kafka's group tool, and Kafka on the same data directory."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interop.clients import create_topic
from interop.harness import Java, Server
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raw_client import RawClient

COUNT = 40
PARTITIONS = 4
DEADLINE_S = 60.0
GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIG_TOOL = "kafka.admin.ConfigCommand"


def write(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    for number in range(COUNT):
        producer.produce(topic, b"value %d" % number, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def consumer(bootstrap: str, group: str, *topics: str, protocol: str = "consumer") -> Any:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "log_level": 2,
    }
    made = Consumer(settings)
    made.subscribe(list(topics))
    return made


def read(consumers: list[Any], done: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Poll all consumers in turn until ``done`` with what they read."""
    got: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while not done(got):
        assert time.monotonic() < deadline, [each.assignment() for each in consumers]
        for each in consumers:
            message = each.poll(0.1)
            if message is not None and message.error() is None:
                got.append(message.value())
    return got


@pytest.fixture(scope="module")
def served(node: Server) -> Iterator[Server]:
    create_topic(node.bootstrap, "read-0", partitions=PARTITIONS)
    write(node.bootstrap, "read-0")
    yield node
    assert node.errors_logged() == []


@pytest.mark.slow
def test_two_members_share_the_partitions_and_commit(served: Server, java: Java) -> None:
    """NGRP-36, NGRP-40, NGRP-46, NGRP-83: with librdkafka, seen by Kafka's own tool."""
    first = consumer(served.bootstrap, "shared", "read-0")
    assert len(read([first], lambda got: len(got) >= COUNT)) == COUNT
    first.commit(asynchronous=False)
    second = consumer(served.bootstrap, "shared", "read-0")
    both = [first, second]
    read(both, lambda _got: [len(each.assignment()) for each in both] == [2, 2])

    def groups(*args: str) -> str:
        return java.tool(GROUP_TOOL, "--bootstrap-server", served.bootstrap, *args).stdout

    assert re.search(r"shared\s+Consumer\b", groups("--list", "--type"))
    described = groups("--describe", "--group", "shared", "--members", "--verbose")
    assert len(re.findall(r"^shared .*read-0:", described, re.MULTILINE)) == 2
    assert re.search(r"shared\s.*uniform\s+Stable", groups("--describe", "--group", "shared", "--state"))
    first.close()
    read([second], lambda _got: len(second.assignment()) == PARTITIONS)
    second.close()
    assert re.search(r"shared\s+read-0\s+0\s+10\s+10\s+0\b", groups("--describe", "--group", "shared"))
    assert "successful" in groups("--delete", "--group", "shared")


@pytest.mark.slow
def test_a_group_moves_to_the_new_protocol_and_back(served: Server) -> None:
    """NGRP-97, NGRP-101: one member after the other changes its setting, as in a rolling restart."""
    old = consumer(served.bootstrap, "moving", "read-0", protocol="classic")
    assert len(read([old], lambda got: len(got) >= COUNT)) == COUNT
    new = consumer(served.bootstrap, "moving", "read-0")
    read([old, new], lambda _got: [len(old.assignment()), len(new.assignment())] == [2, 2])
    old.close()
    read([new], lambda _got: len(new.assignment()) == PARTITIONS)
    back = consumer(served.bootstrap, "moving", "read-0", protocol="classic")
    read([new, back], lambda _got: [len(new.assignment()), len(back.assignment())] == [2, 2])
    new.close()
    read([back], lambda _got: len(back.assignment()) == PARTITIONS)
    back.close()


def test_the_java_consumer_and_group_settings(served: Server, java: Java) -> None:
    """NGRP-89, NGRP-90."""
    done = java.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", served.bootstrap, "--include", "read-.*", "--group", "java"),
        *("--command-property", "auto.offset.reset=earliest", "--command-property", "group.protocol=consumer"),
        *("--max-messages", str(COUNT), "--timeout-ms", str(int(DEADLINE_S * 1000))),
    )
    assert len(done.stdout.splitlines()) == COUNT

    def configs(*args: str, check: bool = True) -> str:
        command = ("--bootstrap-server", served.bootstrap, "--entity-type", "groups", "--entity-name", "java", *args)
        run = java.tool(CONFIG_TOOL, *command, check=check)
        return run.stdout + run.stderr

    assert "Completed" in configs("--alter", "--add-config", "consumer.heartbeat.interval.ms=7000")
    assert "consumer.heartbeat.interval.ms=7000" in configs("--describe")
    refused = configs("--alter", "--add-config", "consumer.heartbeat.interval.ms=1", check=False)
    assert "consumer.heartbeat.interval.ms must be greater than or equal to" in refused
    with RawClient(served.bootstrap) as client:
        assert join(client, "java", "A", ["read-0"]).heartbeat_interval_ms == 7_000


def join(client: RawClient, group: str, member_id: str, topics: list[str], **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        topic_partitions=[],
        **fields,
    )
    return retried(client, request)


def retried(client: RawClient, request: Any) -> Any:
    """Ask until the coordinator has loaded."""
    waits = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
    deadline = time.monotonic() + DEADLINE_S
    while True:
        client.call(FindCoordinatorRequest(coordinator_keys=[request.group_id]))
        answer = client.call(request)
        if answer.error_code not in waits or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)


@pytest.mark.slow
def test_kafka_takes_a_consumer_group_over_and_gives_it_back(server_factory: Callable[..., Server]) -> None:
    """NGRP-92, NGRP-96: the same epochs, members and targets, and the topics' hash raises no epoch."""
    node = server_factory("kraftlog")
    kafka = server_factory("kafka", name="kafka")
    kafka.data_dir, kafka.port, kafka.controller_port = node.data_dir, node.port, node.controller_port
    described: list[Any] = []
    beats: list[tuple[int, int]] = []
    for server in (node, kafka, node):
        server.start()
        with RawClient(server.bootstrap) as client:
            if not described:
                create_topic(server.bootstrap, "taken", partitions=7)
                retried(client, ConsumerGroupHeartbeatRequest(group_id="g", member_id="x", member_epoch=9))
                assert join(client, "g", "A", ["taken"], rack_id="r", instance_id="i").error_code == 0
                time.sleep(1.1)
                assert join(client, "g", "B", ["taken", "absent"]).error_code == 0
            for member_id, epoch in (("A", 2), ("B", 3)):
                beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)
                answer = retried(client, beat)
                beats.append((answer.error_code, answer.member_epoch))
            group = client.call(ConsumerGroupDescribeRequest(group_ids=["g"])).groups[0]
            described.append((group, sorted(group.members, key=lambda member: member.member_id)))
        server.stop()
    assert beats == [(0, 2), (0, 3)] * 3
    plain = [
        (
            (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name),
            [
                (m.member_id, m.instance_id, m.rack_id, m.member_epoch, sorted(m.subscribed_topic_names), m.member_type)
                for m in members
            ],
            [
                [sorted((p.topic_name, *sorted(p.partitions)) for p in part.topic_partitions)]
                for m in members
                for part in (m.assignment, m.target_assignment)
            ],
        )
        for group, members in described
    ]
    assert plain[0] == plain[1] == plain[2]
    assert plain[0][0] == ("Reconciling", 3, 3, "uniform")
