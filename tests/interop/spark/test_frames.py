"""The formats beside kraftlog in a real Spark: record batches, metadata, committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from batch_rows import GOLDEN
from kraftlog.reading import scan_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODE = GOLDEN / "topics" / "node-1"
KRAFT = GOLDEN / "kraft" / "logs" / "standalone" / "03-restarted" / "node-1"


def test_batches_are_rows(spark: SparkSession) -> None:
    reader = spark.read.format("kraftlog-batches").option("endOffset", "logEnd")
    frame = reader.load(str(NODE))
    expected = pa.table(scan_batches(NODE))
    assert frame.count() == expected.num_rows
    sums = frame.groupBy("topic", "partition").sum("recordCount", "sizeInBytes").collect()
    wanted = expected.group_by(["topic", "partition"]).aggregate([("record_count", "sum"), ("size_bytes", "sum")])
    assert {tuple(row) for row in sums} == {tuple(row.values()) for row in wanted.to_pylist()}
    assert "crcOk" not in frame.columns
    checked = reader.option("columns", "crcOk,file,position,maxTimestamp").load(str(NODE / "g-lz4-0"))
    assert [row.crcOk for row in checked.collect()] == [True] * checked.count() != []
    projected = (
        spark.read.format("kraftlog-batches").schema("position bigint, TOPIC string").load(str(NODE / "g-lz4-0"))
    )
    assert projected.columns == ["position", "TOPIC"]
    assert projected.count() == checked.count()
    with pytest.raises(Exception, match="column magic is tinyint, not int"):
        spark.read.format("kraftlog-batches").schema("magic int").load(str(NODE)).count()


@pytest.mark.slow
def test_metadata_is_a_history_in_sql(spark: SparkSession) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW parts USING `kraftlog-metadata` OPTIONS (path '{KRAFT}', table 'partitions')"
    )
    rows = spark.sql(
        "SELECT topic, partition, max_by(leader, offset) AS leader, count(*) AS changes FROM parts GROUP BY 1, 2"
    )
    assert rows.count() > 0
    for table in ("records", "topics", "configs", "brokers", "voters", "leader_changes", "features"):
        frame = spark.read.format("kraftlog-metadata").option("table", table).load(str(KRAFT))
        assert {"offset", "epoch", "timestamp", "source"} <= set(frame.columns)
        assert frame.count() == len(frame.collect()) > 0
    voters = spark.read.format("kraftlog-metadata").options(table="voters", latest="true").load(str(KRAFT))
    (voter,) = voters.collect()
    assert (voter.voterId, voter.endpoints[0].name) == (1, "CONTROLLER")
    with pytest.raises(Exception, match="option table is records or topics"):
        spark.read.format("kraftlog-metadata").option("table", "nothing").load(str(KRAFT))


def test_committed_offsets_are_rows(spark: SparkSession) -> None:
    reader = spark.read.format("kraftlog-offsets").option("endOffset", "logEnd")
    history = reader.load(str(NODE))
    latest = reader.option("latest", "true").load(str(NODE))
    assert 0 < latest.count() < history.count()
    assert latest.where("tombstone").count() == 0
    last = history.groupBy("group", "topic", "partition").agg({"logOffset": "max"})
    assert last.count() >= latest.count()
    groups = spark.read.format("kraftlog-offsets").options(table="groups", endOffset="logEnd").load(str(NODE))
    members = groups.where("size(members) > 0").selectExpr("inline(members)")
    assert members.where("size(assignment) > 0").count() > 0
    transactions = (
        spark.read.format("kraftlog-offsets").options(table="transactions", endOffset="logEnd").load(str(NODE))
    )
    assert {row.state for row in transactions.select("state").distinct().collect()} >= {"Ongoing", "CompleteCommit"}
