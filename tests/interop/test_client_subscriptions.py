"""Subscriptions of ``kraftlog.Consumer`` by pattern at a real Kafka, in both group protocols, and their end."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kraftlog
from interop.harness import Java, KafkaServer
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition

pytestmark = pytest.mark.timeout(240)
_numbers = itertools.count()
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def kafka(java: Java, tmp_path_factory):
    server = KafkaServer(
        tmp_path_factory.mktemp("subscriptions") / "kafka",
        java,
        {
            "group.consumer.heartbeat.interval.ms": "200",
            "group.consumer.min.heartbeat.interval.ms": "200",
            "group.initial.rebalance.delay.ms": "0",
        },
    )
    with server.running():
        yield server


@pytest.fixture(scope="module")
def admin(kafka):
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def prefix():
    return f"t{next(_numbers)}"


def create(admin, *topics):
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result(30)


def consumer(kafka, **settings):
    return kraftlog.Consumer(
        bootstrap_servers=kafka.bootstrap,
        **{"auto_offset_reset": "earliest", "heartbeat_interval_ms": 200, "metadata_max_age_ms": 300, **settings},
    )


def fill(kafka, *topics):
    with kraftlog.Producer(bootstrap_servers=kafka.bootstrap) as producer:
        for topic in topics:
            producer.send(topic, topic.encode())


def poll_until(is_so, *readers):
    """The values of what was read meanwhile."""
    deadline = time.monotonic() + 90
    found = []
    while not is_so(found):
        assert time.monotonic() < deadline, ([reader.assignment for reader in readers], found)
        for reader in readers:
            found += [record.value for record in reader.poll_records(0.1)]
    return sorted(found)


@pytest.mark.slow
@PROTOCOLS
@pytest.mark.parametrize("make", [str, re.compile], ids=["text", "compiled"])
def test_pattern_reads_matching_topics_and_new_ones_and_drops_deleted_ones(kafka, admin, prefix, protocol, make):
    first, second, other = f"{prefix}-a", f"{prefix}-b", f"x-{prefix}-a"
    create(admin, first, other)
    fill(kafka, first, other)
    with consumer(kafka, group_id=prefix, group_protocol=protocol) as reader:
        reader.subscribe(pattern=make(f"{prefix}-.*"))
        assert poll_until(len, reader) == [first.encode()]
        create(admin, second)
        fill(kafka, second)
        assert poll_until(len, reader) == [second.encode()]
        for future in admin.delete_topics([first]).values():
            future.result(30)
        poll_until(lambda _: reader.assignment == (TopicPartition(second, 0),), reader)
        assert first not in reader.list_topics(), "asking for metadata created the topic again"


@pytest.mark.spec("NGRP-08")
@pytest.mark.parametrize("protocol", ["classic", "consumer", "auto"])
def test_pattern_that_does_not_compile_is_an_error_that_names_it(kafka, prefix, protocol):
    def subscribe(reader):
        reader.subscribe(pattern=f"{prefix}(")
        reader.poll(30)

    with consumer(kafka, group_id=prefix, group_protocol=protocol) as reader:
        with pytest.raises(KafkaError, match=re.escape(f"subscribe(pattern='{prefix}('")) as caught:
            subscribe(reader)
        assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_internal_topics_match_a_pattern_of_the_broker(kafka, prefix):
    with consumer(kafka, group_id=prefix) as reader:
        reader.committed([(prefix, 0)])  # makes the topic
    with consumer(kafka, group_id=prefix, group_protocol="consumer", auto_offset_reset="latest") as reader:
        reader.subscribe(pattern="__consumer_.*")
        poll_until(lambda _: reader.assignment, reader)
        assert {name.topic for name in reader.assignment} == {"__consumer_offsets"}


def members(admin, group_id):
    """Instance ids of the members that Kafka has, None for a dynamic one."""
    (future,) = admin.describe_consumer_groups([group_id]).values()
    return [member.group_instance_id or None for member in future.result(30).members]


@PROTOCOLS
@pytest.mark.parametrize(
    ("leave", "dynamic", "static"),
    [
        (lambda reader: reader.unsubscribe(), [], ["i"]),
        (lambda reader: reader.close(), [], ["i"]),
        (lambda reader: reader.close(leave_group=True), [], []),
        (lambda reader: reader.close(leave_group=False), [None], ["i"]),
    ],
    ids=["unsubscribe", "close", "close-leave", "close-remain"],
)
def test_members_leave_as_those_of_kafka_do(kafka, admin, prefix, protocol, leave, dynamic, static):
    create(admin, prefix)
    for instance, expected in ((None, dynamic), ("i", static)):
        settings = {} if instance is None else {"group_instance_id": instance}
        group_id = f"{prefix}-{instance}"
        reader = consumer(kafka, group_id=group_id, group_protocol=protocol, **settings)
        reader.subscribe([prefix])
        poll_until(lambda _: reader.assignment, reader)  # noqa: B023
        assert members(admin, group_id) == [instance]
        leave(reader)
        assert members(admin, group_id) == expected
        reader.close()


@PROTOCOLS
def test_unsubscribe_commits_and_another_subscription_goes_on_there(kafka, admin, prefix, protocol):
    create(admin, prefix)
    fill(kafka, prefix, prefix)
    settings = {"max_poll_records": 1, "auto_commit_interval_ms": 10**6}
    with consumer(kafka, group_id=prefix, group_protocol=protocol, **settings) as reader:
        reader.subscribe([prefix])
        for offset in range(2):
            (record,) = reader.poll_records(60)
            assert record.offset == offset
        reader.unsubscribe()
        assert reader.committed([(prefix, 0)])[TopicPartition(prefix, 0)].offset == 1
        reader.assign([(prefix, 0)])
        (record,) = reader.poll_records(60)
        assert record.offset == 1
        reader.unsubscribe()
        reader.subscribe([prefix])
        (record,) = reader.poll_records(60)
        assert record.offset == 1
