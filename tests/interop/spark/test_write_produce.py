"""Rows produced by the writers to a real Kafka and to our node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from interop.conftest import make_server
from interop.harness import Java, Server
from kraftlog.partitioner import key_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@pytest.fixture(scope="module", params=["kafka", "kraftlog"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[Server]:
    config = {"auto.create.topics.enable": "false"}
    server = make_server(request.param, tmp_path_factory.mktemp(request.param), java, config)
    with server.running():
        yield server


def create(broker: Server, *topics: str, partitions: int = 3, **config: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    named = {name.replace("_", "."): value for name, value in config.items()}
    for future in admin.create_topics([NewTopic(topic, partitions, config=named) for topic in topics]).values():
        future.result(30)


def consume(broker: Server, topic: str) -> list[Record]:
    """Partition, key, value and headers of every record, by partition and offset."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    expected = sum(
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1] for partition in partitions
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[tuple[int, int, Record]] = []
    while len(found) < expected:
        messages = consumer.consume(expected - len(found), timeout=20)
        assert messages, f"{len(found)} of {expected}"
        for message in messages:
            assert message.error() is None, message.error()
            record = (message.partition(), message.key(), message.value(), list(message.headers() or []))
            found.append((message.partition(), message.offset(), record))
    consumer.close()
    return [record for *_, record in sorted(found, key=lambda one: one[:2])]


def produce(broker: Server, columns: dict[str, pa.Array], **options: str) -> int:
    from kraftlog.spark.write_produce import ProduceOptions, produce_rows

    given = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.max.block.ms": "20000", **options}
    return produce_rows(iter([pa.record_batch(columns)]), tuple(columns), ProduceOptions.parse(given))


def test_nulls_headers_partitions_and_kafkas_partitioner(broker: Server) -> None:
    create(broker, "all")
    count = 200
    keys = [None if n % 7 == 0 else b"key %d" % n for n in range(count)]
    values = [None if n % 11 == 0 else b"value %d" % n for n in range(count)]
    partitions = [n % 3 if n % 2 or keys[n] is None else None for n in range(count)]
    headers = [[("a", b"1"), ("b", None)] if n % 5 == 0 else [] if n % 5 == 1 else None for n in range(count)]
    columns = {
        "topic": pa.array(["all"] * count),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "partition": pa.array(partitions, pa.int32()),
        "headers": pa.array(headers, HEADERS),
    }
    assert produce(broker, columns) == count
    expected: dict[int, list[Record]] = {0: [], 1: [], 2: []}
    for n in range(count):
        partition = partitions[n]
        if partition is None:
            partition = key_partition(keys[n] or b"", 3)
        expected[partition].append((partition, keys[n], values[n], headers[n] or []))
    assert consume(broker, "all") == [record for records in expected.values() for record in records]


def test_failures_name_topic_partition_and_record_and_fail_the_task(broker: Server) -> None:
    from kraftlog.spark.write_produce import ProduceError

    create(broker, "small", partitions=1, max_message_bytes="1000")
    value = pa.array([b"v" * 5000], pa.binary())
    with pytest.raises(
        ProduceError, match=r"not delivered to topic small, partition 0: .*too large.*value of 5000 bytes"
    ):
        produce(broker, {"value": value}, topic="small")
    partition = pa.array([7], pa.int32())
    with pytest.raises(ProduceError, match="row 0 of the task: topic small has no partition 7, it has 1 partitions"):
        produce(broker, {"value": value, "partition": partition}, topic="small")
    began = time.monotonic()
    with pytest.raises(
        ProduceError, match=r"topic absent is not present in the metadata of .* after 1500 ms .*Unknown topic"
    ):
        produce(broker, {"value": value}, topic="absent", **{"kafka.max.block.ms": "1500"})
    assert time.monotonic() - began < 50, "max.block.ms is one minute unless it is set"


@pytest.mark.slow
def test_a_batch_query_and_a_stream_are_produced(spark: SparkSession, broker: Server, tmp_path: Path) -> None:
    create(broker, "batch", "stream")
    rows = spark.sql(
        "SELECT CAST(id AS STRING) AS key, CAST(concat('v', id) AS BINARY) AS value, 'ignored' AS other "
        "FROM range(0, 1000, 1, 2)"
    )
    writer = rows.write.format("kraftlog").option("kafka.bootstrap.servers", broker.bootstrap).mode("append")
    writer.option("topic", "batch").option("kafka.compression.type", "lz4").save()
    expected = {(b"%d" % n, b"v%d" % n) for n in range(1000)}
    got = consume(broker, "batch")
    assert len(got) == 1000
    assert {(key, value) for _, key, value, _ in got} == expected
    assert all(partition == key_partition(key or b"", 3) for partition, key, *_ in got)
    with pytest.raises(Exception, match="topic option required when no 'topic' attribute is present"):
        writer_without_topic(rows, broker)
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).option("numPartitions", 2).load()
    query = (
        stream.selectExpr("CAST(value AS STRING) AS value", "'stream' AS topic", "CAST(value % 3 AS INT) AS partition")
        .writeStream.format("kraftlog")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        deadline = time.monotonic() + 120
        while (query.lastProgress or {"batchId": -1})["batchId"] < 2:
            assert query.exception() is None, query.exception()
            assert time.monotonic() < deadline, query.status
            time.sleep(0.1)
    finally:
        query.stop()
    got = consume(broker, "stream")
    numbers = sorted(int(value or b"-1") for _, _, value, _ in got)
    # A batch that was under way when the query stopped may be there in part.
    assert len(numbers) == len(set(numbers)) >= 1500
    assert numbers[:1500] == list(range(1500))
    assert all(int(value or b"-1") % 3 == partition for partition, _, value, _ in got)


def writer_without_topic(rows: Any, broker: Server) -> None:
    rows.write.format("kraftlog").option("kafka.bootstrap.servers", broker.bootstrap).mode("append").save()


def test_segments_are_no_sink_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    rows = stream.selectExpr("CAST(value AS STRING) AS value").writeStream.format("kraftlog").option("topic", "t")
    rows = rows.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=r"a stream is written to a broker, with option kafka\.bootstrap\.servers"):
        rows.start().awaitTermination(60)
    assert not (tmp_path / "out").exists()
