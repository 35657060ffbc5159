"""The frame of record batches against what Kafka says of the same files; without a JVM."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pip install kraftlog[spark]")

from batch_rows import GOLDEN, read_rows
from kraftlog.errors import CorruptRecordError, OffsetOutOfRangeError
from kraftlog.spark.batches import KraftlogBatchesDataSource

NODE = GOLDEN / "topics" / "node-1"
EXPECTED = GOLDEN / "topics" / "expected" / "node-1"
LONG_AGO = pa.timestamp("us", tz="UTC")
TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "baseOffset": pa.int64(),
    "lastOffset": pa.int64(),
    "recordCount": pa.int32(),
    "sizeInBytes": pa.int32(),
    "magic": pa.int8(),
    "compression": pa.string(),
    "timestampType": pa.int32(),
    "baseTimestamp": LONG_AGO,
    "maxTimestamp": LONG_AGO,
    "producerId": pa.int64(),
    "producerEpoch": pa.int16(),
    "baseSequence": pa.int32(),
    "isTransactional": pa.bool_(),
    "isControl": pa.bool_(),
    "hasDeleteHorizon": pa.bool_(),
    "partitionLeaderEpoch": pa.int32(),
    "crc": pa.int64(),
    "crcOk": pa.bool_(),
    "file": pa.string(),
    "position": pa.int64(),
}


def read(options: dict[str, str], columns: list[str] | None = None) -> list[dict[str, Any]]:
    schema = pa.schema([(name, TYPES[name]) for name in columns or TYPES])
    reader = KraftlogBatchesDataSource({"endOffset": "logEnd", **options}).reader(schema)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    for name in ("baseTimestamp", "maxTimestamp"):
        if name in schema.names:
            place = schema.get_field_index(name)
            schema = schema.set(place, pa.field(name, pa.int64()))
    return [row for batch in batches for row in batch.cast(schema).to_pylist()]


def expected(topic: str, partition: int) -> list[dict[str, Any]]:
    folder = f"{topic}-{partition}"
    return [
        {**row, "file": str(NODE / folder / path.name.replace(".batches.jsonl.gz", ".log"))}
        for path in sorted((EXPECTED / folder).glob("*.batches.jsonl.gz"))
        for row in read_rows(path)
    ]


def micros(milliseconds: int) -> int:
    return max(min(milliseconds * 1000, 2**63 - 1), -(2**63))


def described(row: dict[str, Any], topic: str, partition: int) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "baseOffset": row["baseOffset"],
        "lastOffset": row["lastOffset"],
        "recordCount": row["count"],
        "sizeInBytes": row["size"],
        "magic": row["magic"],
        "compression": row["compression"],
        "timestampType": {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}[row["timestampType"]],
        "baseTimestamp": micros(row["baseTimestamp"]),
        "maxTimestamp": micros(row["maxTimestamp"]),
        "producerId": row["producerId"],
        "producerEpoch": row["producerEpoch"],
        "baseSequence": row["baseSequence"],
        "isTransactional": row["isTransactional"],
        "isControl": row["isControl"],
        "hasDeleteHorizon": row["deleteHorizonMs"] is not None,
        "partitionLeaderEpoch": row["partitionLeaderEpoch"],
        "crc": row["crc"],
        "crcOk": row["valid"],
        "file": row["file"],
        "position": row["position"],
    }


PARTITIONS = sorted(path.name for path in EXPECTED.iterdir() if path.is_dir())


@pytest.mark.parametrize(
    "more", [{}, {"splitBytes": "900"}, {"minPartitions": "1000"}, {"maxRecordsPerPartition": "3"}]
)
def test_rows_are_what_kafka_says_of_each_batch(more: dict[str, str]) -> None:
    for folder in PARTITIONS:
        topic, _, number = folder.rpartition("-")
        if topic == "g-deleterecords":
            continue  # it starts after its first batches; see below
        if more and topic not in {"__consumer_offsets", "g-txn", "g-epochs", "g-compact"}:
            continue  # cut anywhere, all kinds of batches: planning takes its time
        wanted = [described(row, topic, int(number)) for row in expected(topic, int(number))]
        assert read({"path": str(NODE / folder), **more}) == wanted, folder


def test_the_log_start_and_bounds_choose_batches() -> None:
    rows = expected("g-deleterecords", 0)
    start = json.loads((EXPECTED / "g-deleterecords-0" / "partition.json").read_text()).get("logStartOffset")
    found = read({"path": str(NODE), "subscribe": "g-deleterecords"}, ["baseOffset", "lastOffset"])
    first = found[0]
    assert start is None or first["baseOffset"] <= start <= first["lastOffset"]
    assert found == [
        {"baseOffset": row["baseOffset"], "lastOffset": row["lastOffset"]}
        for row in rows
        if row["baseOffset"] >= first["baseOffset"]
    ]
    middle = expected("g-none", 0)[20:30]
    bounds = {
        "startingOffsets": json.dumps({"g-none": {"0": middle[0]["lastOffset"]}}),
        "endingOffsets": json.dumps({"g-none": {"0": middle[-1]["baseOffset"]}}),
    }
    for more in ({}, {"minPartitions": "7"}, {"splitBytes": "100"}):
        found = read({"path": str(NODE), "subscribe": "g-none", **bounds, **more}, ["baseOffset"])
        assert [row["baseOffset"] for row in found] == [row["baseOffset"] for row in middle[:-1]]
    with pytest.raises(OffsetOutOfRangeError, match="startingOffsets: offset 99999 of g-none-0"):
        read({"path": str(NODE), "subscribe": "g-none", "startingOffsets": '{"g-none": {"0": 99999}}'})


def copy(tmp_path: Path) -> Path:
    shutil.copytree(NODE / "g-lz4-0", tmp_path / "g-lz4-0")
    return min((tmp_path / "g-lz4-0").glob("*.log"))


def test_damage_names_its_place_or_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = copy(tmp_path)
    rows = expected("g-lz4", 0)
    data = bytearray(file.read_bytes())
    data[rows[1]["position"] + 70] ^= 0xFF  # in the records of the second batch
    file.write_bytes(data)
    assert "crcOk" not in KraftlogBatchesDataSource({"path": str(tmp_path)}).schema()
    found = read({"path": str(tmp_path)}, ["baseOffset", "crcOk"])
    assert [row["baseOffset"] for row in found if not row["crcOk"]] == [rows[1]["baseOffset"]]
    assert len(found) == len(rows)

    bad = rows[3]
    data[bad["position"] + 8 : bad["position"] + 12] = (5).to_bytes(4, "big")  # a length that no batch has
    file.write_bytes(data)
    with pytest.raises(CorruptRecordError) as caught:
        read({"path": str(tmp_path)}, ["baseOffset"])
    assert f"{file} position {bad['position']}" in str(caught.value)
    assert f"base_offset {bad['baseOffset']}" in str(caught.value)
    assert "g-lz4-0 offsets [0, " in str(caught.value)
    found = read({"path": str(tmp_path), "failOnDataLoss": "false"}, ["baseOffset", "position"])
    there = [(row["baseOffset"], row["position"]) for row in rows]
    assert set(there) > {(row["baseOffset"], row["position"]) for row in found}
    assert [row["baseOffset"] for row in found[:3]] == [row["baseOffset"] for row in rows[:3]]
    assert "ranges of g-lz4-0" in caplog.text


def test_a_sealed_segment_that_ends_within_a_batch_is_damaged(tmp_path: Path) -> None:
    file = copy(tmp_path)
    assert len(list(file.parent.glob("*.log"))) > 1
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(CorruptRecordError, match=rf"{file.name} position \d+: the segment ends within a batch"):
        read({"path": str(tmp_path)}, ["baseOffset"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "size"}, "no column 'size': there are topic, partition, baseOffset"),
        ({"columns": "crc,CRC"}, "column crc is named twice"),
        ({"includeHeaders": "true"}, "unknown option includeHeaders"),
        ({"kafka.isolation.level": "read_committed"}, "kafka.isolation.level"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "only one of the options"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KraftlogBatchesDataSource({"path": str(NODE), **options}).schema()
