"""``format("kraftlog")`` with ``kafka.bootstrap.servers`` beside Spark's own Kafka source, on one kraftlog node."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import kraftlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Not older than the retention time, which a node applies half a minute after its start.
FIRST_MS = time.time_ns() // 1_000_000 - 3_600_000
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def broker() -> Iterator[kraftlog.Broker]:
    with kraftlog.Broker() as node:
        for topic, partitions in (("orders", 3), ("orders-paid", 1), ("grown", 1)):
            node.create_topic(topic, partitions=partitions)
        fill(node, "orders", 900)
        with kraftlog.Producer(bootstrap_servers=node.bootstrap_servers, transactional_id="t") as producer:
            producer.init_transactions()
            for number in range(4):
                producer.begin_transaction()
                producer.send("orders-paid", b"%d" % number)
                (producer.abort_transaction if number % 2 else producer.commit_transaction)()
        yield node


def fill(node: kraftlog.Broker, topic: str, count: int) -> None:
    with kraftlog.Producer(bootstrap_servers=node.bootstrap_servers, compression_type="zstd") as producer:
        for number in range(count):
            headers = [("h", b"x")] if number % 2 else []
            time_ms = FIRST_MS + number
            producer.send(topic, b"v%d" % number, key=b"k%d" % (number % 7), headers=headers, timestamp=time_ms)


def rows(spark: SparkSession, source: str, broker: kraftlog.Broker, **options: str) -> list[Any]:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", broker.bootstrap_servers).options(**options)
    found = [tuple(row) for row in reader.load().collect()]
    return sorted(found, key=lambda row: (row[2], row[3], row[4]))


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"subscribe": "orders", "includeHeaders": "true"}, 900),
        ({"subscribePattern": "orders.*", "minPartitions": "9", "kafka.isolation.level": "read_committed"}, 902),
        (
            {
                "assign": '{"orders": [0, 2]}',
                "startingOffsets": '{"orders": {"0": 10, "2": -2}}',
                "endingOffsets": '{"orders": {"0": 40, "2": -1}}',
            },
            None,
        ),
        ({"subscribe": "orders", "startingTimestamp": str(FIRST_MS + 500)}, None),
    ],
)
@pytest.mark.slow
def test_batches_have_the_rows_of_sparks_kafka_source(
    spark: SparkSession, broker: kraftlog.Broker, options: dict[str, str], count: int | None
) -> None:
    found = rows(spark, "kraftlog", broker, **options)
    assert found == rows(spark, "kafka", broker, **options)
    assert len(found) == count if count else found


def test_loss_of_data_is_an_error_unless_it_is_allowed(spark: SparkSession, broker: kraftlog.Broker) -> None:
    options = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 5000}}'}
    with pytest.raises(PySparkException, match="offset 5000 of orders-0 is after"):
        rows(spark, "kraftlog", broker, **options)
    assert rows(spark, "kraftlog", broker, failOnDataLoss="false", **options) == []


@pytest.mark.slow
def test_a_stream_goes_on_from_its_checkpoint_in_limited_batches(
    spark: SparkSession, broker: kraftlog.Broker, tmp_path: Path
) -> None:
    def run() -> list[dict[str, Any]]:
        reader = spark.readStream.format("kraftlog").schema("value binary, offset bigint")
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("subscribe", "grown")
        frame = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "40").load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "output"))
        assert query.awaitTermination(250)
        assert query.exception() is None
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    fill(broker, "grown", 100)
    first = run()
    assert [progress["numInputRows"] for progress in first] == [40, 40, 20]
    assert json.loads(first[-1]["sources"][0]["endOffset"])["offsets"] == {"grown": {"0": 100}}
    fill(broker, "grown", 30)
    assert [progress["numInputRows"] for progress in run()] == [30]
    written = spark.read.parquet(str(tmp_path / "output")).collect()
    assert sorted(row.offset for row in written) == list(range(130))
