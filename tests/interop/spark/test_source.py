"""A real PySpark reads what Kafka wrote and what our node wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import kraftlog
from batch_rows import GOLDEN
from interop.spark.jobs import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODE = GOLDEN / "topics" / "node-1"
KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
)


def arrow_rows(table: pa.Table) -> list[dict[str, Any]]:
    place = table.schema.get_field_index("timestamp")
    rows = table.set_column(place, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_columns_are_those_of_sparks_kafka_source(spark: SparkSession) -> None:
    reader = spark.read.format("kraftlog").option("path", str(NODE))
    assert reader.load().schema.simpleString() == f"{KAFKA_SCHEMA}>"
    with_headers = reader.option("includeHeaders", "true").load()
    assert with_headers.schema.simpleString() == f"{KAFKA_SCHEMA},headers:array<struct<key:string,value:binary>>>"


def test_rows_are_those_of_the_scan(spark: SparkSession) -> None:
    # Timestamps of the year 292278994 do not fit into Spark's microseconds.
    topics = ["g-none", "g-gzip", "g-snappy", "g-lz4", "g-zstd", "g-compact-txn", "g-deleterecords", "g-logappend"]
    frame = (
        spark.read.format("kraftlog")
        .option("path", str(NODE))
        .option("topics", ",".join(topics))
        .option("includeHeaders", "true")
        .option("splitBytes", "300000")
        .load()
    )
    found = arrow_rows(frame.toArrow().rename_columns([*frame.columns]))
    expected = arrow_rows(pa.table(kraftlog.scan(NODE, topics=topics, timestamp_unit="us")))
    for row in expected:
        row["timestampType"] = row.pop("timestamp_type")
        row["headers"] = row["headers"] or None
    assert frame.rdd.getNumPartitions() > 8
    assert found == expected


def test_a_schema_is_a_projection(spark: SparkSession) -> None:
    path = str(NODE / "g-lz4-0")
    reader = spark.read.format("kraftlog")
    frame = reader.schema("offset bigint, leader_epoch int, headers array<struct<key:string,value:binary>>").load(path)
    log = kraftlog.open_log(path)
    table = pa.table(log.scan(columns=["offset", "leader_epoch"]))
    assert [(row.offset, row.leader_epoch) for row in frame.collect()] == list(
        zip(table["offset"].to_pylist(), table["leader_epoch"].to_pylist(), strict=True)
    )
    with pytest.raises(Exception, match="column offset is bigint, not int"):
        reader.schema("offset int").load(path).count()
    with pytest.raises(Exception, match="no column 'size'"):
        spark.read.format("kraftlog").option("columns", "size").load(path)


def test_what_is_empty_missing_or_misspelled(spark: SparkSession) -> None:
    reader = spark.read.format("kraftlog")
    assert reader.load(str(NODE / "g-empty-0")).count() == 0
    with pytest.raises(Exception, match="no directory"):
        reader.load("/nonexistent").count()
    with pytest.raises(Exception, match="unknown option includeheader"):
        spark.read.format("kraftlog").option("includeHeader", "true").load(str(NODE)).count()


def test_decode_batches_gives_the_records_of_each_cell(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark job uses

    from kraftlog.spark import decode_batches

    cells = [
        (number, bytearray(path.read_bytes())) for number, path in enumerate(sorted((NODE / "g-zstd-0").glob("*.log")))
    ]
    frame = spark.createDataFrame([*cells, (len(cells), None), (len(cells) + 1, bytearray())], "id int, batches binary")
    decoded = frame.select("id", decode_batches("batches", include_headers=True).alias("records"))
    sizes = {row.id: row.size for row in decoded.select("id", F.expr("size(records)").alias("size")).collect()}
    assert sizes[len(cells)] in {-1, None}  # null stays null
    assert sizes[len(cells) + 1] == 0
    rows = decoded.select(F.inline("records")).toArrow()
    table = pa.table(kraftlog.open_log(NODE / "g-zstd-0").scan(timestamp_unit="us"))
    for name, other in (("offset", "offset"), ("key", "key"), ("value", "value"), ("timestampType", "timestamp_type")):
        assert rows[name].to_pylist() == table[other].to_pylist()
    assert [headers or [] for headers in rows["headers"].to_pylist()] == table["headers"].to_pylist()


def test_what_the_node_wrote_is_what_was_produced(spark: SparkSession, tmp_path: Path) -> None:
    expected = load("generate_data").generate(tmp_path, records=20_000)
    assert load("scan_job").scan(spark, tmp_path / "node") == expected
