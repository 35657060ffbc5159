"""A real PySpark reads what Kafka wrote and what our node wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import kraftlog
from batch_rows import GOLDEN
from interop.spark.jobs import load
from kraftlog.spark.columns import COLUMNS
from partition_files import damage, make_batch, write_log

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


def position(row: Any) -> tuple[str, int, int]:
    return row.topic, row.partition, row.offset


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


def test_every_column_has_the_type_that_is_documented(spark: SparkSession) -> None:
    """All together, in Spark's own names; what a scan gives is what arrives."""
    names = [column.name for column in COLUMNS]
    frame = spark.read.format("kraftlog").option("columns", ",".join(names)).load(str(NODE / "g-gzip-0"))
    types = {
        "array<struct<key:string,value:binary>>" if "array" in column.type_name else column.type_name
        for column in COLUMNS
    }
    assert {field.dataType.simpleString() for field in frame.schema} == types
    found = frame.toArrow().sort_by("offset")
    scan = kraftlog.open_log(NODE / "g-gzip-0").scan(columns=[column.scan_name for column in COLUMNS])
    expected = pa.table(scan)
    assert found.num_rows == expected.num_rows > 2000
    for column in COLUMNS:
        ours, theirs = found[column.name], expected[column.scan_name]
        if column.name == "timestamp":
            ours, theirs = ours.cast(pa.int64()), pa.array([at * 1000 for at in theirs.cast(pa.int64()).to_pylist()])
        if column.name == "headers":
            theirs = pa.array([their or None for their in theirs.to_pylist()], ours.type)
        assert ours.to_pylist() == theirs.to_pylist(), column.name


def test_names_of_columns_in_any_case(spark: SparkSession) -> None:
    frame = spark.read.format("kraftlog").schema("OFFSET bigint, valuelength int").load(str(NODE / "g-lz4-0"))
    assert frame.columns == ["OFFSET", "valuelength"]
    assert frame.selectExpr("max(offset)", "sum(valueLength) > 0").collect()[0][1]
    headers = spark.read.format("kraftlog").option("includeHeaders", "true").schema("offset bigint")
    with pytest.raises(Exception, match=r"option includeHeaders asks for headers, which are not among .* offset"):
        headers.load(str(NODE / "g-lz4-0")).count()
    both = spark.read.format("kraftlog").option("columns", "key").schema("offset bigint")
    with pytest.raises(Exception, match="option columns names key, the schema offset"):
        both.load(str(NODE / "g-lz4-0")).count()


@pytest.mark.slow
def test_spark_finds_the_source_by_itself(spark: SparkSession) -> None:
    """A new session shares nothing that was registered; SQL has the name too."""
    session = spark.newSession()
    assert session.read.format("kraftlog").load(str(NODE / "g-lz4-0")).count() > 2000
    session.sql(
        f"CREATE TEMPORARY VIEW records USING kraftlog OPTIONS (path '{NODE}', subscribe 'g-keyed', minPartitions 4)"
    )
    rows = session.sql(
        "SELECT partition, count(*) AS rows FROM records GROUP BY partition ORDER BY partition"
    ).collect()
    assert [(row.partition, row.rows) for row in rows] == [(0, 156), (1, 201), (2, 181)]


@pytest.mark.slow
def test_filters_are_used_when_that_is_asked_for(spark: SparkSession) -> None:
    session = spark.newSession()
    reader = session.read.format("kraftlog").option("path", str(NODE)).option("subscribe", "g-keyed,g-lz4")
    everything = reader.load().cache()
    conditions = [
        "partition = 1 AND offset BETWEEN 30 AND 40",
        "topic = 'g-keyed' AND partition IN (0, 2) AND offset >= 150",
        "topic > 'g-l' AND key IS NOT NULL AND offset < 100",
        "timestamp >= (SELECT max(timestamp) FROM everything)",
        "offset = 17 OR partition = 2",
    ]
    everything.createTempView("everything")
    latest = everything.selectExpr("max(timestamp)").collect()[0][0]
    key = everything.where("key IS NOT NULL").first()["key"]
    conditions += [f"timestamp = timestamp'{latest}+00:00'", f"key = X'{bytes(key).hex()}'"]
    expected = [everything.where(condition).collect() for condition in conditions]
    assert all(expected)
    pushing = reader.option("pushdown", "true")
    with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        pushing.load().count()
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for condition, rows in zip(conditions, expected, strict=True):
        found = pushing.load().where(condition).collect()
        assert sorted(found, key=position) == sorted(rows, key=position), condition
    # Of 24 partitions' tasks only that of one partition is planned.
    one = pushing.option("minPartitions", "8").load().where("topic = 'g-keyed' AND partition = 2 AND offset = 3")
    assert one.rdd.getNumPartitions() == 1
    everything.unpersist()


def test_errors_name_what_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    path = write_log(tmp_path / "t-0")
    reader = spark.read.format("kraftlog").option("path", str(tmp_path))
    with pytest.raises(Exception, match=r"option startingOffsets must be JSON such as"):
        reader.option("startingOffsets", "{").load().count()
    with pytest.raises(Exception, match=r"option startingOffsets has to name exactly .* it lacks t-0"):
        spark.read.format("kraftlog").option("startingOffsets", "{}").load(str(tmp_path)).count()
    with pytest.raises(
        Exception, match=r"option path is about log directories; kafka.bootstrap.servers reads a cluster"
    ):
        spark.read.format("kraftlog").option("kafka.bootstrap.servers", "b:1").load(str(tmp_path)).count()
    segment = path / f"{1000:020}.log"
    size = len(make_batch(0))
    damage(segment, 3 * size + 99)
    with pytest.raises(Exception, match=rf"t-0 offsets \[1000, 2000\) .*{segment.name} position {3 * size}: CRC.*1030"):
        spark.read.format("kraftlog").load(str(tmp_path)).count()
    report = tmp_path / "report"
    loose = spark.read.format("kraftlog").option("failOnDataLoss", "false").option("dataLossReport", str(report))
    assert loose.load(str(tmp_path)).count() == 2990
    (lost,) = spark.read.json(str(report)).collect()
    assert (lost.topic, lost.partition, lost.position, lost.base_offset) == ("t", 0, 3 * size, 1030)


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


@pytest.mark.slow
def test_what_the_node_wrote_is_what_was_produced(spark: SparkSession, tmp_path: Path) -> None:
    expected = load("generate_data").generate(tmp_path, records=20_000)
    assert load("scan_job").scan(spark, tmp_path / "node") == expected
