"""Records that kafka-delete-records has deleted, after a kill: gone from kraftlog's log, back in Apache Kafka's."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from interop.clients import create_topic
from interop.harness import Java

TOPIC = "trimmed"
DELETED, COUNT = 12, 20


def first_offset(bootstrap: str) -> int:
    """The offset of the first record that a consumer gets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, str(message.error())
        return message.offset()
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.spec("RINV-19")
@pytest.mark.parametrize(("kind", "after_kill"), [("kraftlog", DELETED), ("kafka", 0)])
def test_what_a_tool_deleted_after_a_kill(server_factory, java: Java, tmp_path, kind, after_kill):
    server = server_factory(kind)
    server.start()
    create_topic(server.bootstrap, TOPIC)
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all"})
    for number in range(COUNT):
        producer.produce(TOPIC, b"%d" % number)
        producer.flush(30)
    asked = {"partitions": [{"topic": TOPIC, "partition": 0, "offset": DELETED}], "version": 1}
    file = tmp_path / "delete.json"
    file.write_text(json.dumps(asked))
    done = java.tool(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        *("--bootstrap-server", server.bootstrap, "--offset-json-file", str(file)),
    )
    assert f"low_watermark: {DELETED}" in done.stdout
    assert first_offset(server.bootstrap) == DELETED
    server.restart(kill=True)
    assert first_offset(server.bootstrap) == after_kill
