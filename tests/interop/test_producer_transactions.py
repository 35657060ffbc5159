"""Transactions of ``kraftlog.Producer`` on Kafka 4.3.1, both versions of the feature, read by confluent-kafka."""

from __future__ import annotations

import time

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import transactional_producer_story as story
from interop.harness import Java, KafkaServer


@pytest.fixture(scope="module")
def kafka(java: Java, tmp_path_factory):
    server = KafkaServer(tmp_path_factory.mktemp("txn") / "kafka", java)
    with server.running():
        yield server


def stories(bootstrap, prefix):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(f"{prefix}-{name}", 2 if name == "both" else 1, 1) for name in ("both", "fence", "in", "out", "fail")
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    story.commits_and_aborts(bootstrap, f"{prefix}-both")
    story.newer_producer_fences_the_older(bootstrap, f"{prefix}-fence")
    story.offsets_are_part_of_the_transaction(bootstrap, f"{prefix}-in", f"{prefix}-out")
    story.failed_batch_has_to_be_aborted(bootstrap, f"{prefix}-fail")


def confluent_values(bootstrap, topic, count):
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "isolation.level": "read_committed"}
    )
    reader.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(2)])
    found = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() for message in reader.consume(100, 1)]
    found += [message.value() for message in reader.consume(100, 0.5)]
    reader.close()
    return sorted(found)


@pytest.mark.slow
def test_transactions_of_both_versions_on_kafka(kafka, java):
    stories(kafka.bootstrap, "v2")
    found = confluent_values(kafka.bootstrap, "v2-both", 9)
    assert found == story.values(kafka.bootstrap, "v2-both")
    assert len(found) == 9
    # A cluster that was upgraded, but whose feature was not raised: partitions are added before they are produced to.
    arguments = ("--bootstrap-server", kafka.bootstrap, "downgrade", "--feature", "transaction.version=1")
    java.tool("org.apache.kafka.tools.FeatureCommand", *arguments)
    stories(kafka.bootstrap, "v1")
