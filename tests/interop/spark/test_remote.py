"""A real PySpark reads log directories of an S3 server, planned by one listing and read by ranges in its workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from batch_rows import GOLDEN
from s3_fixture import KEY, SECRET, S3Server, s3_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kraftlog.spark import MapContext

NODE = GOLDEN / "topics" / "node-1"
TOPICS = ("g-none", "g-txn", "g-zstd", "g-deleterecords")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        for topic in TOPICS:
            running.upload(NODE / f"{topic}-0", f"node-1/{topic}-0")
        for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint"):
            running.upload_file(NODE / name, f"node-1/{name}")
        yield running


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted(frame.toArrow().to_pylist(), key=lambda row: (row["topic"], row["offset"]))


@pytest.mark.slow
def test_rows_and_options_are_those_of_the_local_directory(spark: SparkSession, server: S3Server) -> None:
    local = spark.read.format("kraftlog").option("path", str(NODE)).option("subscribe", ",".join(TOPICS))
    remote = (
        spark.read.format("kraftlog")
        .option("path", "s3://logs/node-1")
        .option("subscribe", ",".join(TOPICS))
        .option("storageOptions", json.dumps(server.s3fs_options))
        .option("kraftlog.fs", "fsspec")
    )
    options: dict[str, str] = {"splitBytes": "100000", "kafka.isolation.level": "read_committed"}
    with server.counted() as seen:
        found = remote.options(**options).load()
        tasks = found.rdd.getNumPartitions()
    assert tasks > len(TOPICS)
    assert len([request for request in seen if request.method == "LIST"]) == 1
    wanted = rows_of(local.options(**options).load())
    assert len(wanted) > 3000
    assert rows_of(found) == wanted

    starts = json.dumps(
        {"g-none": {"0": 500}, "g-txn": {"0": -2}, "g-zstd": {"0": 1000}, "g-deleterecords": {"0": 300}}
    )
    times = {"startingTimestamp": "0", "endingOffsets": starts.replace("-2", "100")}
    for bounds in ({"startingOffsets": starts, "maxRecordsPerPartition": "200"}, times):
        schema = "topic string, offset bigint, value binary"
        wanted = rows_of(local.options(**bounds).schema(schema).load())
        assert len(wanted) > 1000
        assert rows_of(remote.options(**bounds).schema(schema).load()) == wanted


def lengths(batches: Iterator[pa.RecordBatch], context: MapContext) -> Iterator[pa.RecordBatch]:
    found = [length for batch in batches for length in batch["valueLength"].to_pylist()]
    assert context.path.startswith("s3://logs/node-1/")
    yield pa.record_batch(
        {"topic": [context.topic], "rows": [len(found)], "bytes": [sum(length or 0 for length in found)]}
    )


@pytest.mark.slow
def test_functions_beside_the_decoder_read_and_write_urls(spark: SparkSession, server: S3Server) -> None:
    from kraftlog.spark import map_batches, write_parquet

    options: dict[str, Any] = {"subscribe": TOPICS, "splitBytes": 100_000}
    remote: dict[str, Any] = {**options, "storageOptions": server.s3fs_options, "kraftlog.fs": "fsspec"}
    schema = "topic string, rows bigint, bytes bigint"
    frame = map_batches(spark, "s3://logs/node-1", lengths, schema, columns=["valueLength"], **remote)
    assert frame.rdd.getNumPartitions() > len(TOPICS)
    local = spark.read.format("kraftlog").option("path", str(NODE)).option("subscribe", ",".join(TOPICS))
    wanted = local.load().groupBy("topic").agg({"*": "count", "value": "count"}).collect()
    sums = frame.groupBy("topic").agg({"rows": "sum", "bytes": "sum"}).collect()
    assert {row.topic: row["sum(rows)"] for row in sums} == {row.topic: row["count(1)"] for row in wanted}
    assert all(row["sum(bytes)"] > 0 for row in sums)

    # A URL of pyarrow's, which may say where the server is. Nothing is left under temporary names.
    place = f"127.0.0.1:{server.port}"
    url = f"s3://{KEY}:{SECRET}@logs/parquet?endpoint_override={place}&scheme=http&region=us-east-1"
    columns = ["topic", "offset", "value"]
    report = write_parquet(spark, "s3://logs/node-1", url, columns=columns, **remote)
    files = pafs.S3FileSystem(**server.pyarrow_options)
    found = pq.read_table("logs/parquet", filesystem=files)
    rows = sorted(found.to_pylist(), key=lambda row: (row["topic"], row["offset"]))
    assert rows == rows_of(local.schema("topic string, offset bigint, value binary").load())
    assert report.rows == len(rows) > 3000
    objects = files.get_file_info(pafs.FileSelector("logs/parquet", recursive=True))
    names = {stored.base_name for stored in objects if stored.type == pafs.FileType.File}
    assert names == {"_SUCCESS", *(PurePosixPath(file.path).name for file in report.files)}
    with pytest.raises(Exception, match="mode append or overwrite allows that"):
        write_parquet(spark, "s3://logs/node-1", url, columns=columns, **remote)
    fewer = write_parquet(spark, str(NODE / "g-none-0"), url, columns=columns, mode="overwrite")
    assert pq.read_table("logs/parquet", filesystem=files).num_rows == fewer.rows < report.rows


def test_credentials_are_in_no_plan_and_no_error(
    spark: SparkSession, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    options = json.dumps(server.s3fs_options)
    reader = spark.read.format("kraftlog").option("storageOptions", options)
    frame = reader.load("s3://logs/node-1/g-none-0")
    frame.explain("formatted")
    texts = [capsys.readouterr().out, repr(frame)]
    for path in ("s3://logs/nothing", "s3://no-such-bucket/x"):
        with pytest.raises(Exception, match=r"nothing|no-such-bucket") as caught:
            reader.load(path).count()
        texts.append(str(caught.value))
    with pytest.raises(Exception, match="option storageOptions must be a JSON object") as caught:
        spark.read.format("kraftlog").option("storageOptions", f"{{'{SECRET}").load("s3://logs/node-1").count()
    texts.append(str(caught.value))
    for text in texts:
        assert KEY not in text
        assert SECRET not in text
