"""Functions beside the decoder in a real Spark: reduce, and write Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kraftlog
from batch_rows import GOLDEN
from kraftlog.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kraftlog.spark import MapContext

NODE = GOLDEN / "topics" / "node-1"
TOPICS = ["g-none", "g-gzip", "g-zstd", "g-compact-txn", "g-keyed"]


def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = size = 0
    for batch in batches:
        rows += batch.num_rows
        size += pc.sum(batch["valueLength"]).as_py() or 0
    yield pa.record_batch({"bytes": [size], "rows": [rows]})


def spans(batches: Iterator[pa.RecordBatch], context: MapContext) -> Iterator[pa.Table]:
    offsets = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert all(context.start_offset <= offset < context.end_offset for offset in offsets)
    assert Path(context.path).name == f"{context.topic}-{context.partition}"
    row: dict[str, Any] = {"topic": context.topic, "partition": context.partition, "task": context.task}
    yield pa.Table.from_pylist([{**row, "rows": len(offsets), "offsets": offsets}])


def test_a_reduce_gives_one_row_a_task(spark: SparkSession) -> None:
    from kraftlog.spark import map_batches

    frame = map_batches(
        spark, NODE, sums, "rows bigint, bytes bigint", columns=["valueLength"], subscribe=TOPICS, splitBytes=300_000
    )
    rows = frame.collect()
    assert len(rows) > 3
    expected = pa.table(kraftlog.scan(NODE, topics=TOPICS, columns=["value_length"]))
    assert sum(row.rows for row in rows) == expected.num_rows
    assert sum(row.bytes for row in rows) == pc.sum(expected["value_length"]).as_py()


def test_context_and_options_of_reading_are_those_of_the_source(spark: SparkSession) -> None:
    from kraftlog.spark import map_batches, scan

    options: dict[str, Any] = {
        "subscribe": "g-keyed,g-txn",
        "endOffset": "logEnd",
        "kafka.isolation.level": "read_committed",
        "startingOffsets": {"g-keyed": {"0": 5, "1": -2, "2": 9}, "g-txn": {"0": 30}},
        "minPartitions": 9,
    }
    schema = "topic string, partition int, task int, rows bigint, offsets array<bigint>"
    found = map_batches(spark, str(NODE), spans, schema, columns=["offset"], **options).collect()
    assert len({row.task for row in found}) >= 9
    by_function = sorted((row.topic, row.partition, offset) for row in found for offset in row.offsets)
    frame = scan(spark, [NODE], columns=["topic", "partition", "offset"], **options)
    assert frame.columns == ["topic", "partition", "offset"]
    assert by_function == sorted(tuple(row) for row in frame.collect())
    assert {offset for topic, _, offset in by_function if topic == "g-txn"} == {
        offset
        for offset in pa.table(
            kraftlog.scan(NODE, topics="g-txn", isolation_level="read_committed", columns=["offset"])
        )["offset"].to_pylist()
        if offset >= 30
    }


def test_no_rows_and_no_columns(spark: SparkSession) -> None:
    from kraftlog.spark import map_batches

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([sum(batch.num_rows for batch in batches)], pa.int32())})

    assert map_batches(spark, NODE / "g-empty-0", count, "n bigint").collect() == []
    rows = map_batches(spark, NODE / "g-lz4-0", count, "n bigint", columns=[]).collect()
    assert sum(row.n for row in rows) == pa.table(kraftlog.open_log(NODE / "g-lz4-0").scan(columns=["offset"])).num_rows


def test_mistakes_are_named_before_or_by_the_task(spark: SparkSession) -> None:
    from kraftlog.spark import map_batches, scan

    for call in (map_batches, scan):
        arguments = (sums, "rows bigint, bytes bigint") if call is map_batches else ()
        with pytest.raises(ValueError, match="no column 'size'"):
            call(spark, NODE, *arguments, columns=["size"])
        with pytest.raises(ValueError, match="unknown option includeHeader"):
            call(spark, NODE, *arguments, includeHeader=True)
    with pytest.raises(FileNotFoundError, match="no partition of topic nowhere"):
        map_batches(spark, NODE, sums, "rows bigint, bytes bigint", subscribe="nowhere")
    starting = {"startingOffsets": {"g-lz4": {"0": 10**9}}}
    with pytest.raises(OffsetOutOfRangeError, match="startingOffsets: offset 1000000000 of g-lz4-0"):
        map_batches(spark, NODE, sums, "rows bigint, bytes bigint", subscribe="g-lz4", **starting)
    wrong = map_batches(spark, NODE / "g-lz4-0", sums, "rows bigint, size bigint", columns=["valueLength"])
    with pytest.raises(Exception, match="fn returned the columns bytes, rows, the schema has rows, size"):
        wrong.collect()


@pytest.mark.slow
def test_parquet_has_the_rows_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    from kraftlog.spark import scan, write_parquet

    target = tmp_path / "out"
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    spark.sparkContext.setJobGroup("write_parquet", "all that it runs")
    report = write_parquet(spark, NODE, target, columns=columns, subscribe=TOPICS, splitBytes=200_000)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("write_parquet")) == 1, "each task writes once"
    spark.sparkContext.setJobGroup("others", "of the tests")
    found = spark.read.parquet(str(target))
    wanted = scan(spark, NODE, include_headers=True, subscribe=TOPICS)
    assert found.dtypes == wanted.dtypes
    assert found.exceptAll(wanted).count() == wanted.exceptAll(found).count() == 0
    assert found.count() == report.rows > 0
    assert len(report.files) > 5
    names = {path.name for path in target.iterdir()}
    assert names == {"_SUCCESS", *(Path(file.path).name for file in report.files)}
    assert report.size_bytes == sum(Path(file.path).stat().st_size for file in report.files)

    with pytest.raises(FileExistsError, match="mode append or overwrite"):
        write_parquet(spark, NODE, target, subscribe="g-lz4")
    more = write_parquet(spark, NODE, target, columns=columns, mode="append", subscribe="g-lz4")
    assert spark.read.parquet(str(target)).count() == report.rows + more.rows
    again = write_parquet(spark, NODE, target, columns=["offset"], mode="overwrite", subscribe="g-lz4")
    assert (spark.read.parquet(str(target)).columns, again.rows) == (["offset"], more.rows)
    (target / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"notes\.txt"):
        write_parquet(spark, NODE, target, mode="overwrite", subscribe="g-lz4")
    nothing = write_parquet(spark, NODE / "g-empty-0", tmp_path / "empty")
    assert (nothing.rows, spark.read.parquet(str(tmp_path / "empty")).count()) == (0, 0)


def test_a_job_that_fails_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    import shutil

    from kraftlog.spark import write_parquet

    for topic in ("g-zstd", "g-lz4"):
        shutil.copytree(NODE / f"{topic}-0", tmp_path / "logs" / f"{topic}-0")
    file = min((tmp_path / "logs" / "g-zstd-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[80] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(Exception, match=rf"g-zstd-0 offsets .*{file.name} position 0: CRC"):
        write_parquet(spark, tmp_path / "logs", tmp_path / "out", endOffset="logEnd", splitBytes=100_000)
    assert not list((tmp_path / "out").rglob("*"))
    with pytest.raises(Exception, match="no-such-topic"):
        write_parquet(spark, tmp_path / "logs", tmp_path / "out", subscribe="no-such-topic")
    assert not list((tmp_path / "out").rglob("*"))
    kept = write_parquet(
        spark,
        tmp_path / "logs",
        tmp_path / "out",
        endOffset="logEnd",
        failOnDataLoss=False,
        columns=["topic", "offset"],
    )
    assert kept.rows > 0
