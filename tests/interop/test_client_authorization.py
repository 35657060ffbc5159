"""What clients say that a broker refuses a topic, a group or a transactional id, at Apache Kafka and at kraftlog."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import kraftlog
from interop.conftest import make_server
from interop.harness import Java
from kraftlog.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.timeout(240)
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
CLOSED = ("secret", "closed-group", "closed-id")


@pytest.fixture(scope="module", params=["kafka", "kraftlog"])
def bootstrap(request, java: Java, tmp_path_factory):
    """A broker with the topics open and secret, the latter, a group and a transactional id closed to everybody here."""
    server = make_server(request.param, tmp_path_factory.mktemp("acls") / "node", java, CONFIG)
    with server.running():
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for future in admin.create_topics([NewTopic("open", 1, 1), NewTopic("secret", 1, 1)]).values():
            future.result(30)
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        bindings = [
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, "User:owner", "*", AclOperation.ALL, AclPermissionType.ALLOW
            )
            for kind, name in zip(kinds, CLOSED, strict=True)
        ]
        for future in admin.create_acls(bindings).values():
            future.result(30)
        yield server.bootstrap


def consumer(bootstrap, **settings):
    return kraftlog.Consumer(
        bootstrap_servers=bootstrap, **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
    )


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.partitions_for("secret"),
        lambda reader: reader.end_offsets([("secret", 0)]),
        lambda reader: reader.poll(30),
    ],
    ids=["partitions_for", "end_offsets", "poll"],
)
def test_refused_topic_is_named_and_other_topics_are_read_on(bootstrap, ask):
    with kraftlog.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("open", b"")
    with consumer(bootstrap) as reader:
        reader.assign([("secret", 0)])
        with pytest.raises(KafkaError, match="topic secret") as caught:
            ask(reader)
        assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        reader.assign([("open", 0)])
        assert reader.poll(30) is not None


@pytest.mark.spec("NGRP-31")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_refused_topic_of_a_subscription_is_named_and_left_out_of_a_pattern(bootstrap, protocol):
    with consumer(bootstrap, group_id=f"g-{protocol}", group_protocol=protocol) as reader:
        reader.subscribe(["secret"])
        with pytest.raises(KafkaError, match="secret") as caught:
            reader.poll(30)
        assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        reader.subscribe(pattern="open|secret")
        while not reader.assignment:
            reader.poll(0.1)
        assert [name.topic for name in reader.assignment] == ["open"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_refused_group_is_named_by_each_call(bootstrap, protocol):
    with consumer(bootstrap, group_id="closed-group", group_protocol=protocol) as reader:
        reader.subscribe(["open"])
        for ask in (
            lambda: reader.poll(30),
            lambda: reader.poll(30),
            lambda: reader.committed([("open", 0)]),
            lambda: reader.commit({("open", 0): 0}),
        ):
            with pytest.raises(KafkaError, match="closed-group") as caught:
                ask()
            assert caught.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_refused_topic_and_transactional_id_of_a_producer_are_named(bootstrap):
    with kraftlog.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("secret", b"")
        with pytest.raises(KafkaError, match="topic secret") as caught:
            producer.flush()
        assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with kraftlog.Producer(bootstrap_servers=bootstrap, transactional_id="closed-id") as producer:
        with pytest.raises(KafkaError, match="closed-id") as caught:
            producer.init_transactions()
        assert caught.value.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
