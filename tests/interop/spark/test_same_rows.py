"""The rows of ``kraftlog`` over a live broker's directory are those that Spark's own ``kafka`` gets from the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from interop.harness import Java, KafkaServer
from interop.spark.topics import BASE_MS, CONFIG, TOPICS, TopicMaker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
READ_COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[TopicMaker]:
    """A running Apache Kafka with all topics."""
    server = KafkaServer(tmp_path_factory.mktemp("same-rows"), java, CONFIG)
    made = TopicMaker(server)
    try:
        made.fill()
        yield made
    finally:
        server.kill()


def both(spark: SparkSession, topics: TopicMaker, options: Mapping[str, str]) -> tuple[DataFrame, DataFrame]:
    """What the broker gives and what its directory gives, by the same options."""
    from_broker = spark.read.format("kafka").option("kafka.bootstrap.servers", topics.server.bootstrap)
    from_files = spark.read.format("kraftlog").option("path", str(topics.server.data_dir))
    settings = {"includeHeaders": "true", **options}
    return from_broker.options(**settings).load(), from_files.options(**settings).load()


def assert_same(spark: SparkSession, topics: TopicMaker, options: Mapping[str, str]) -> list[tuple[int, int]]:
    """Neither has a row that the other has not, duplicates counted; the (partition, offset) of all, sorted."""
    kafka, ours = (frame.cache() for frame in both(spark, topics, options))
    try:
        assert ours.schema == kafka.schema
        assert ours.columns == COLUMNS
        missing, more = kafka.exceptAll(ours).limit(5).collect(), ours.exceptAll(kafka).limit(5).collect()
        assert not missing, f"not in the directory: {missing}"
        assert not more, f"not from the broker: {more}"
        found = sorted((row.partition, row.offset) for row in ours.select("partition", "offset").collect())
        assert len(found) == kafka.count()
    finally:
        kafka.unpersist()
        ours.unpersist()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_all_rows_of_a_topic(spark: SparkSession, topics: TopicMaker, topic: str) -> None:
    """Read uncommitted, which is the default of both."""
    found = assert_same(spark, topics, {"subscribe": topic})
    logs = [topics.log(topic, partition) for partition in range(TOPICS[topic][0])]
    # The topics are what they are called.
    if topic == "empty":
        assert not found
    elif topic == "deleted":
        assert (logs[0].log_start_offset, logs[1].log_start_offset) == (133, 400)
        assert {partition for partition, _ in found} == {0}
        assert min(found) == (0, 133)
    elif topic == "compacted":
        assert 0 < len(found) < 400
        assert len(logs[0].segments) > 1
    elif topic == "transactional":
        assert len(found) == 12 * 60 + 30 + 40
    else:
        assert len(found) == sum(log.log_end_offset for log in logs) > 200
    if topic == "plain":
        assert len(logs[0].segments) > 5
    if topic == "epochs":
        assert len(logs[0].leader_epochs) == 3


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["transactional", "compacted", "plain,codecs,headers"])
def test_committed_rows(spark: SparkSession, topics: TopicMaker, topic: str) -> None:
    found = assert_same(spark, topics, {"subscribe": topic, **READ_COMMITTED})
    if topic == "transactional":
        log = topics.log(topic, 0)
        stable = log.last_stable_offset
        assert stable < log.log_end_offset
        # Of 12 rounds of 20 records a producer, the first aborted 6 and the second 8.
        assert len(found) == 12 * 60 - (6 + 8) * 20 + 20
        assert max(offset for partition, offset in found if partition == 0) < stable


def offsets(topic: str, *at: int) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(at)}})


BOUNDS: dict[str, dict[str, str]] = {
    "offsets": {
        "subscribe": "plain",
        "startingOffsets": offsets("plain", 23, -2, 200),
        "endingOffsets": offsets("plain", -1, 150, 201),
    },
    "nothing between": {
        "subscribe": "plain",
        "startingOffsets": offsets("plain", 30, 30, 30),
        "endingOffsets": offsets("plain", 30, 31, 30),
    },
    "in gaps of compaction": {
        "subscribe": "compacted",
        "startingOffsets": offsets("compacted", 500, 537),
        "endingOffsets": offsets("compacted", 539, 590),
    },
    "in aborted transactions": {
        "subscribe": "transactional",
        "startingOffsets": offsets("transactional", 35, 71),
        "endingOffsets": offsets("transactional", 133, 170),
        **READ_COMMITTED,
    },
    "timestamps": {
        "subscribe": "plain",
        "startingTimestamp": str(BASE_MS + 1500),
        "endingTimestamp": str(BASE_MS + 101_111),
    },
    "timestamps of partitions": {
        "subscribe": "codecs",
        "startingOffsetsByTimestamp": offsets("codecs", *(BASE_MS + 777 * number for number in range(5))),
        "endingOffsetsByTimestamp": offsets("codecs", *(BASE_MS + 100_000 + 555 * number for number in range(5))),
    },
    "a time that is not there yet": {
        "subscribe": "plain",
        "startingTimestamp": str(BASE_MS + 10_000_000),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "pattern": {"subscribePattern": "(plain|head).*"},
    "assign": {"assign": '{"plain":[0,2],"codecs":[4]}', "startingOffsets": "earliest", "endingOffsets": "latest"},
    "many tasks": {"subscribe": "plain,codecs", "minPartitions": "11", "maxRecordsPerPartition": "400"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(spark: SparkSession, topics: TopicMaker, name: str) -> None:
    found = assert_same(spark, topics, BOUNDS[name])
    if name == "nothing between":
        assert found == [(1, 30)]
    else:
        assert bool(found) == (name != "a time that is not there yet")


def test_a_bounded_read_of_a_log_that_grows(spark: SparkSession, topics: TopicMaker) -> None:
    """Of a topic that is written to while both read."""
    ends = [topics.log("plain", partition).log_end_offset for partition in range(3)]
    kafka, ours = both(spark, topics, {"subscribe": "plain", "endingOffsets": offsets("plain", *ends)})
    topics.few_of("plain", 3, 300)
    topics.writers["none"].finish()
    assert kafka.count() == ours.count() == sum(ends)
    assert ours.exceptAll(kafka).count() == kafka.exceptAll(ours).count() == 0
