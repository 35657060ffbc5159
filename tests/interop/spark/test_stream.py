"""Streams of a real PySpark over directories that grow, are cut and get new partitions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from growing_logs import GrowingLogs
from kraftlog.spark import stream_lag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_SECONDS = 250

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[GrowingLogs]:
    growing = GrowingLogs(tmp_path / "logs", segment_bytes=200_000)
    yield growing
    growing.close()


def stream(spark: SparkSession, logs: GrowingLogs, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.readStream.format("kraftlog").option("path", str(logs.path)).option("startingOffsets", "earliest")
    return (reader if schema is None else reader.schema(schema)).options(**options).load()


def to_files(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger).start(str(folder / "output"))


def rows_of(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(folder / "output")).collect())


def ends_of(query: StreamingQuery) -> dict[str, dict[str, int]]:
    offsets: dict[str, dict[str, int]] = json.loads(query.lastProgress["sources"][0]["endOffset"])["offsets"]
    return offsets


@pytest.mark.slow
def test_available_now_ends_while_the_directory_grows(spark: SparkSession, logs: GrowingLogs, tmp_path: Path) -> None:
    for partition in (0, 1):
        logs.add("t", partition)
        logs.append("t", partition, 3000 * (1 + partition))
    stopping = threading.Event()

    def grow() -> None:
        while not stopping.wait(0.05):
            logs.append("t", 0, 10)
            logs.append("t", 1, 10)

    writer = threading.Thread(target=grow)
    frame = stream(spark, logs, "partition int, offset bigint", maxOffsetsPerTrigger="5000", splitBytes="20000")
    writer.start()
    try:
        query = to_files(frame, tmp_path, availableNow=True)
        assert query.awaitTermination(WAIT_SECONDS)
        grown = [logs.logs["t", partition].log_end_offset for partition in (0, 1)]
    finally:
        stopping.set()
        writer.join()
    assert query.exception() is None
    ends = ends_of(query)["t"]
    assert 3000 <= ends["0"] < grown[0]
    assert 6000 <= ends["1"] < grown[1]
    expected = [(partition, offset) for partition in (0, 1) for offset in range(ends[str(partition)])]
    assert rows_of(spark, tmp_path) == expected
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert len(batches) > 1
    assert max(progress["numInputRows"] for progress in batches) <= 5000
    lags = [stream_lag(progress).total for progress in batches]
    assert lags[0] >= 4000  # beyond its limit
    assert lags[-1] < sum(grown)
    # The next run goes on where this one ended, here without limits.
    query = to_files(stream(spark, logs, "partition int, offset bigint"), tmp_path, availableNow=True)
    assert query.awaitTermination(WAIT_SECONDS)
    ends = {str(partition): logs.logs["t", partition].log_end_offset for partition in (0, 1)}
    assert rows_of(spark, tmp_path) == [
        (partition, offset) for partition in (0, 1) for offset in range(ends[str(partition)])
    ]


@pytest.mark.slow
def test_a_log_that_is_truncated_under_a_query(spark: SparkSession, logs: GrowingLogs, tmp_path: Path) -> None:
    for partition in (0, 1):
        logs.add("t", partition)
        for _ in range(10):
            logs.append("t", partition, 10)
    frame = stream(spark, logs, "partition int, offset bigint, value binary", failOnDataLoss="false")
    query = to_files(frame, tmp_path, processingTime="0 seconds")
    query.processAllAvailable()
    before = rows_of(spark, tmp_path)
    assert len(before) == 200
    logs.truncate("t", 0, 60)
    for _ in range(10):
        logs.append("t", 0, 10, epoch=1, mark="other ", checkpoint=False)
    logs.append("t", 1, 10)
    text = (
        r"LogTruncatedError: partition t-0 .* was truncated: the record before offset 100 was of leader epoch 0"
        r" and is of leader epoch 1 now; what was read from offset 60 on may be other records"
    )
    # The query may have looked between the cut and the other records.
    with pytest.raises(Exception, match=rf"{text}|LogTruncatedError: partition t-0 .* ends at \d+ of leader epoch"):
        query.awaitTermination(WAIT_SECONDS)
    # Neither does the query go on later.
    query = to_files(frame, tmp_path, availableNow=True)
    with pytest.raises(Exception, match=text):
        query.awaitTermination(WAIT_SECONDS)
    assert rows_of(spark, tmp_path)[:200] == before
    others = to_files(stream(spark, logs, "offset bigint", assign='{"t": [1]}'), tmp_path / "others", availableNow=True)
    assert others.awaitTermination(WAIT_SECONDS)
    assert rows_of(spark, tmp_path / "others") == [(offset,) for offset in range(110)]


def test_new_partitions_and_topics_under_a_query(spark: SparkSession, logs: GrowingLogs, tmp_path: Path) -> None:
    logs.add("orders.a", 0)
    logs.append("orders.a", 0, 10)
    frame = stream(spark, logs, subscribePattern="orders.*", includeHeaders="true", startingOffsets="latest")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    query = to_files(frame.select("topic", "partition", "offset", "value"), tmp_path, processingTime="0 seconds")
    query.processAllAvailable()
    logs.append("orders.a", 0, 2)
    for topic, partition in (("orders.a", 1), ("orders.b", 0), ("other", 0)):
        logs.add(topic, partition)
        logs.append(topic, partition, 3)
    query.processAllAvailable()
    found = rows_of(spark, tmp_path)
    assert found == [
        ("orders.a", 0, 10, b"10"),
        ("orders.a", 0, 11, b"11"),
        *(("orders.a", 1, offset, str(offset).encode()) for offset in range(3)),
        *(("orders.b", 0, offset, str(offset).encode()) for offset in range(3)),
    ]
    assert ends_of(query) == {"orders.a": {"0": 12, "1": 3}, "orders.b": {"0": 3}}
    assert stream_lag(query.lastProgress).topics == {"orders.a": 0, "orders.b": 0}
    logs.remove("orders.b", 0)
    with pytest.raises(Exception, match=r"partition orders\.b-0.*(is gone|was truncated)"):
        query.awaitTermination(WAIT_SECONDS)
