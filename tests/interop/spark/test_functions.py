"""Columns of record batches in a real Spark: Arrow and pandas functions, bad cells, old formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import kraftlog
from batch_rows import GOLDEN, read_rows
from kraftlog._kraftlog import encode_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODE = GOLDEN / "topics" / "node-1"
RECORD = (1_700_000_000_000, b"k", b"v", [("h", b"x")])
GOOD = encode_batch([RECORD, (1_700_000_000_001, None, None, [])], base_offset=7, compression="zstd")


def cells(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(number, None if value is None else bytearray(value)) for number, value in enumerate(values)]
    return spark.createDataFrame(rows, "id int, cell binary").coalesce(1)


@pytest.mark.parametrize("name", ["decode_batches", "decode_batches_pandas"])
def test_each_cell_becomes_its_records(spark: SparkSession, name: str) -> None:
    import kraftlog.spark

    decode = getattr(kraftlog.spark, name)
    columns = ["offset", "key", "value", "timestampType", "leaderEpoch", "batchPosition"]
    frame = cells(spark, GOOD + GOOD, None, b"", GOOD)
    found = frame.select(decode("cell", columns=columns, include_headers=True).alias("records")).collect()
    record = (7, b"k", b"v", 0, -1)
    rows = [None if row.records is None else [tuple(record) for record in row.records] for row in found]
    assert rows[1:3] == [None, []]
    assert [row[:5] for row in rows[3]] == [record, (8, None, None, 0, -1)]
    assert [row[5] for row in rows[0]] == [0, 0, len(GOOD), len(GOOD)]
    assert [tuple(header) for header in rows[3][0][6]] == [("h", b"x")]
    assert rows[3][1][6] is None

    broken = cells(spark, GOOD, GOOD[:-3], b"x" * 40, GOOD)
    kept = broken.select(decode("cell", columns=["offset"], on_error="null").alias("records")).collect()
    assert [row.records is None for row in kept] == [False, True, True, False]
    with pytest.raises(Exception, match=r"decode_batches, task 0 of stage \d+: row 1 position 0: \d+ bytes are not a"):
        broken.select(decode("cell")).collect()
    cut = broken.where("id < 2").select(decode("cell", columns=["offset"], keep_truncated=True).alias("records"))
    assert [len(row.records) for row in cut.collect()] == [2, 0]


def test_messages_of_old_formats_are_read(spark: SparkSession) -> None:
    from kraftlog.spark import decode_batches

    for magic in (0, 1):
        rows = [row for row in read_rows(GOLDEN / "vectors" / f"batches-magic{magic}.jsonl.gz") if row.get("hex")][:40]
        frame = cells(spark, *(bytes.fromhex(row["hex"]) for row in rows))
        found = frame.select(decode_batches("cell", columns=["offset"]).alias("records")).orderBy("id").collect()
        wanted = [[record["offset"] for batch in row["decoded"] for record in batch["records"]] for row in rows]
        assert [[record.offset for record in row.records] for row in found] == wanted


def test_cells_that_decode_to_more_than_one_arrow_array_are_cut(spark: SparkSession) -> None:
    from kraftlog.spark import decode_batches

    # 40 cells of 5 MB of records, of which an array takes 64 MiB.
    one = encode_batch([(1, None, bytes(1_000_000), [])] * 5, compression="zstd")
    frame = cells(spark, *[one] * 40).select(decode_batches("cell", columns=["valueLength", "value"]).alias("records"))
    assert frame.selectExpr("inline(records)").groupBy("valueLength").count().collect() == [(1_000_000, 200)]


def test_mistakes_are_named(spark: SparkSession) -> None:
    from kraftlog.spark import decode_batches

    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"columns": ["size"]}, "no column 'size'"),
        ({"columns": ["topic"]}, "a record batch does not say its topic"),
        ({"columns": []}, "at least one column"),
        ({"on_error": "skip"}, "on_error must be fail or null, not 'skip'"),
    ]
    for arguments, message in mistakes:
        with pytest.raises(ValueError, match=message):
            decode_batches("cell", **arguments)


def test_segment_files_as_cells_have_the_rows_of_the_scan(spark: SparkSession) -> None:
    from kraftlog.spark import decode_batches

    files = spark.read.format("binaryFile").load(str(Path(NODE, "g-zstd-0", "*.log")))
    rows = files.select(decode_batches("content", columns=["offset", "valueLength"]).alias("r")).selectExpr("inline(r)")
    expected = pa.table(kraftlog.open_log(NODE / "g-zstd-0").scan(columns=["offset", "value_length"]))
    assert sorted(map(tuple, rows.collect())) == list(zip(*expected.to_pydict().values(), strict=True))
