"""Segments written by a real Spark: read back by the source, and taken by Kafka's tools, a Kafka and our node."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kraftlog
from interop.harness import Java, Server
from interop.kafka_tools import assert_dump_accepts
from kraftlog._kraftlog import verify_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GOLDEN = Path(__file__).parents[2] / "golden" / "topics" / "node-1"


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return (
        spark.read.format("kraftlog")
        .option("path", str(path))
        .option("includeHeaders", "true")
        .options(**options)
        .load()
    )


def assert_same_rows(one: DataFrame, other: DataFrame) -> None:
    assert one.exceptAll(other).isEmpty()
    assert other.exceptAll(one).isEmpty()


def assert_sound(path: Path) -> None:
    report = json.loads(verify_files([path]))
    assert report["status"] == "sound", report["findings"]


@pytest.fixture(scope="module")
def originals(spark: SparkSession) -> DataFrame:
    """Rows of a topic of three partitions with all that a record can have; offsets with gaps."""
    return spark.sql(
        """
        SELECT 't' AS topic, CAST(id % 3 AS INT) AS partition, 1000 + id * 2 AS offset,
               IF(id % 7 = 0, NULL, CAST(CAST(id AS STRING) AS BINARY)) AS key,
               IF(id % 11 = 0, NULL, CAST(repeat(CAST(id AS STRING), 9) AS BINARY)) AS value,
               timestamp_millis(1700000000000 + (id DIV 30) * 1000) AS timestamp,
               CAST(IF(id % 3 = 2, 1, 0) AS INT) AS timestampType,
               IF(id % 5 = 0, NULL, array(
                   struct(CAST(id AS STRING) AS key, IF(id % 2 = 0, NULL, CAST('x' AS BINARY)) AS value),
                   struct('' AS key, CAST('' AS BINARY) AS value))) AS headers
        FROM range(0, 3000, 1, 4)
        """
    ).cache()


@pytest.mark.slow
def test_rows_come_back_as_they_were_with_every_codec(
    spark: SparkSession, java: Java, originals: DataFrame, tmp_path: Path
) -> None:
    from kraftlog.spark import prepare

    prepared = prepare(originals).cache()
    for codec in CODECS:
        writer = prepared.write.format("kraftlog").option("topic", f"t-{codec}").option("compression.type", codec)
        writer.option("batch.bytes", "4096").option("segment.bytes", "60000").mode("append").save(str(tmp_path))
    got = read(spark, tmp_path).select(originals.columns)
    names = spark.createDataFrame([(f"t-{codec}",) for codec in CODECS], "topic string")
    assert_same_rows(originals.drop("topic").crossJoin(names).select(originals.columns), got)
    assert_sound(tmp_path)
    for codec in CODECS:
        folders = [tmp_path / f"t-{codec}-{partition}" for partition in range(3)]
        assert {row["compression"] for folder in folders for row in _batches(folder)} == {codec}
    batches = assert_dump_accepts(java, *tmp_path.glob("t-*"), print_data=False, has_gaps=True)
    assert len(batches) == 15
    assert all(batches.values())


def _batches(log: Path) -> list[dict[str, Any]]:
    import pyarrow as pa

    rows: list[dict[str, Any]] = pa.table(kraftlog.open_log(log).batches()).to_pylist()
    return rows


def test_a_topic_of_kafka_is_restored_with_its_offsets_and_epochs(spark: SparkSession, tmp_path: Path) -> None:
    from kraftlog.spark import prepare

    # Spark's timestamps end at 2**63 microseconds: those of g-timestamps do not all come back.
    golden = [
        topic for topic in kraftlog.LogDir(GOLDEN).topics if not topic.is_internal and topic.name != "g-timestamps"
    ]
    source = spark.read.format("kraftlog").option("path", str(GOLDEN)).option("endOffset", "logEnd")
    source = source.option("subscribe", ",".join(topic.name for topic in golden))
    names = "key,value,topic,partition,offset,timestamp,timestampType,headers,leaderEpoch"
    rows = source.option("columns", names).load()
    ids = json.dumps({topic.name: str(topic.topic_id) for topic in golden})
    prepare(rows).write.format("kraftlog").option("topicIds", ids).mode("append").save(str(tmp_path / "restored"))
    again = spark.read.format("kraftlog").option("path", str(tmp_path / "restored")).option("columns", names).load()
    assert_same_rows(rows, again)
    seen = again.selectExpr("sum(timestampType)", "count(headers)", "count(distinct leaderEpoch)").first()
    assert seen is not None
    assert all(count > 1 for count in seen), seen
    assert_sound(tmp_path / "restored")


def test_modes_and_errors_reach_the_user(spark: SparkSession, tmp_path: Path) -> None:
    from kraftlog.spark import prepare

    rows = spark.sql("SELECT CAST(id AS STRING) AS key, CAST(id AS STRING) AS value FROM range(0, 100, 1, 4)")
    prepared = prepare(rows, partitions=3, tasks=2)
    writer = prepared.write.format("kraftlog").option("topic", "t")
    writer.mode("append").save(str(tmp_path))
    writer.mode("append").save(str(tmp_path))
    assert read(spark, tmp_path).count() == 200
    writer.mode("overwrite").save(str(tmp_path))
    got = read(spark, tmp_path)
    assert got.count() == 100
    expected = {row.key: row.partition for row in prepared.collect()}
    assert {row.key.decode(): row.partition for row in got.collect()} == expected
    with pytest.raises(Exception, match=r"(?i)ErrorIfExists"):
        writer.mode("error").save(str(tmp_path))
    with pytest.raises(Exception, match="t-0 has records already and option ifExists is error"):
        writer.mode("append").option("ifExists", "error").save(str(tmp_path))
    unprepared = rows.selectExpr("value", "CAST(0 AS INT) AS partition").write.format("kraftlog").option("topic", "t")
    with pytest.raises(Exception, match="rows of t-0 came from several tasks"):
        unprepared.mode("append").save(str(tmp_path))
    with pytest.raises(Exception, match="value attribute unsupported type bigint"):
        spark.range(3).selectExpr("id AS value").write.format("kraftlog").option("topic", "t").mode("append").save(
            str(tmp_path)
        )
    assert read(spark, tmp_path).count() == 100
    assert not (tmp_path / "_temporary").exists()


ServerFactory = Callable[..., Server]


@pytest.mark.parametrize("kind", ["kafka", "kraftlog"])
@pytest.mark.slow
def test_a_node_serves_and_goes_on_with_what_was_written_while_it_was_stopped(
    spark: SparkSession, server_factory: ServerFactory, kind: str
) -> None:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, NewTopic

    from kraftlog.spark import prepare, topic_ids

    server = server_factory(kind)
    server.start()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for future in admin.create_topics([NewTopic("loaded", 2), NewTopic("grown", 1)]).values():
        future.result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    for n in range(10):
        producer.produce("grown", str(n).encode(), partition=0)
    assert producer.flush(30) == 0
    server.stop()
    ids = topic_ids(server.data_dir)
    rows = spark.sql(
        "SELECT CAST(CAST(id AS STRING) AS BINARY) AS key, CAST(id AS STRING) AS value, "
        "timestamp_millis(1700000000000 + id) AS timestamp FROM range(0, 2000, 1, 2)"
    )
    loaded = prepare(rows, partitions=2).write.format("kraftlog").option("topic", "loaded")
    loaded.option("compression.type", "lz4").option("topicIds", json.dumps(ids)).mode("append").save(
        str(server.data_dir)
    )
    grown = prepare(rows, partitions=1).write.format("kraftlog").option("topic", "grown").mode("append")
    grown.option("segment.bytes", "20000").save(str(server.data_dir))
    server.start()
    consumed = _consume(server, {("loaded", 0), ("loaded", 1), ("grown", 0)})
    values = {name: [value for _, value in found] for name, found in consumed.items()}
    assert values["grown", 0] == [b"%d" % n for n in (*range(10), *range(2000))]
    assert sorted(values["loaded", 0] + values["loaded", 1], key=int) == [b"%d" % n for n in range(2000)]
    for found in consumed.values():
        assert [offset for offset, _ in found] == list(range(len(found)))
    # The producer that was there before the load goes on, and new offsets continue those that were written.
    offsets: dict[str, int] = {}
    for topic in ("loaded", "grown"):
        producer.produce(
            topic,
            b"after",
            partition=0,
            on_delivery=lambda _, message: offsets.update({message.topic(): message.offset()}),
        )
    assert producer.flush(30) == 0
    assert offsets == {"loaded": len(consumed["loaded", 0]), "grown": 2010}
    ends = _consume(server, {("grown", 0)})["grown", 0]
    assert ends[-1] == (2010, b"after")
    server.stop()
    assert_sound(server.data_dir)


def watermarks(consumer, partition):
    """Start and end of a partition, once it has a leader: a server that has just started may not have made one."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + 60
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=30)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _consume(server: Server, partitions: set[tuple[str, int]]) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "g", "enable.auto.commit": False, "check.crcs": True}
    )
    found: dict[tuple[str, int], list[tuple[int, bytes]]] = {key: [] for key in partitions}
    ends = {}
    for topic, partition in partitions:
        low, ends[topic, partition] = watermarks(consumer, TopicPartition(topic, partition))
        assert low == 0
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in partitions])
    while missing := sum(ends.values()) - sum(map(len, found.values())):
        # No more than there are: it would wait for them until the time is over.
        messages = consumer.consume(min(1000, missing), timeout=20)
        assert messages, {key: (len(rows), ends[key]) for key, rows in found.items()}
        for message in messages:
            assert message.error() is None, message.error()
            found[message.topic(), message.partition()].append((message.offset(), message.value()))
    consumer.close()
    return found
