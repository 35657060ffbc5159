"""A scan of every partition that Kafka wrote gives the rows that Kafka's own classes read from it, to every engine."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import kraftlog
from batch_rows import GOLDEN, describe_bytes, read_rows

TOPICS = GOLDEN / "topics"
PARTITIONS = sorted(
    path.parent
    for path in (TOPICS / "expected").rglob("partition.json")
    if (TOPICS / path.parent.relative_to(TOPICS / "expected")).is_dir()
)

Row = dict[str, Any]


def expected_rows(partition: Path, *, start_offset: int, control: bool = False) -> list[Row]:
    topic, _, number = partition.name.rpartition("-")
    return [
        {
            "key": record["key"],
            "value": record["value"],
            "topic": topic,
            "partition": int(number),
            "offset": record["offset"],
            "timestamp": record["timestamp"],
            "timestamp_type": 0 if batch["timestampType"] == "CreateTime" else 1,
            "headers": [(key, value) for key, value in record["headers"]],
        }
        for segment in sorted(partition.glob("*.batches.jsonl.gz"))
        for batch in read_rows(segment)
        for record in batch["records"]
        if record["offset"] >= start_offset and (control or not batch["isControl"])
    ]


def describe_row(row: Row) -> Row:
    headers = [(header["key"], describe_bytes(header["value"])) for header in row["headers"]]
    return {**row, "key": describe_bytes(row["key"]), "value": describe_bytes(row["value"]), "headers": headers}


def read_with_pyarrow(stream: kraftlog.reading.ArrowStream) -> list[Row]:
    table = pa.RecordBatchReader.from_stream(stream).read_all()
    table.validate(full=True)
    place = table.schema.get_field_index("timestamp")
    return table.set_column(place, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()


def read_with_polars(stream: kraftlog.reading.ArrowStream) -> list[Row]:
    return pl.DataFrame(stream).with_columns(pl.col("timestamp").dt.timestamp("ms")).to_dicts()


def read_with_duckdb(stream: kraftlog.reading.ArrowStream) -> list[Row]:
    with duckdb.connect() as connection:
        connection.register("log", stream)
        query = connection.execute("SELECT * REPLACE (epoch_ms(timestamp) AS timestamp) FROM log")
        names = [column[0] for column in query.description]
        return [dict(zip(names, row, strict=True)) for row in query.fetchall()]


def log_of(expected: Path) -> kraftlog.Log:
    return kraftlog.open_log(TOPICS / expected.relative_to(TOPICS / "expected"))


def partition_id(path: Path) -> str:
    return str(path.relative_to(TOPICS / "expected"))


def test_expectations_are_all_there() -> None:
    assert len(PARTITIONS) == 34


@pytest.mark.parametrize("read", [read_with_pyarrow, read_with_polars, read_with_duckdb])
@pytest.mark.parametrize("expected", PARTITIONS, ids=partition_id)
def test_partition_scans_to_expected_rows(
    expected: Path, read: Callable[[kraftlog.reading.ArrowStream], list[Row]]
) -> None:
    log = log_of(expected)
    rows = expected_rows(expected, start_offset=log.log_start_offset)
    if read is read_with_duckdb:  # its timestamps end before the year 294247
        rows = [row for row in rows if abs(row["timestamp"]) < 1 << 53]
        stream = log.scan(from_timestamp=-(1 << 53), to_timestamp=1 << 53)
    else:
        stream = log.scan()
    assert [describe_row(row) for row in read(stream)] == rows


@pytest.mark.parametrize("binary_type", ["large_binary", "binary_view"])
@pytest.mark.parametrize("expected", PARTITIONS, ids=partition_id)
def test_other_binary_types_hold_the_same_bytes(expected: Path, binary_type: str) -> None:
    log = log_of(expected)
    rows = expected_rows(expected, start_offset=log.log_start_offset)
    stream = log.scan(binary_type=binary_type, batch_rows=100, topic_dictionary=True)
    assert [describe_row(row) for row in read_with_pyarrow(stream)] == rows


@pytest.mark.parametrize("expected", PARTITIONS, ids=partition_id)
def test_control_records_are_rows_when_asked_for(expected: Path) -> None:
    log = log_of(expected)
    rows = expected_rows(expected, start_offset=log.log_start_offset, control=True)
    table = pa.table(log.scan(include_control=True, columns=["offset", "is_control"]))
    assert table["offset"].to_pylist() == [row["offset"] for row in rows]


@pytest.mark.parametrize("expected", PARTITIONS, ids=partition_id)
def test_log_tells_its_offsets_and_epochs(expected: Path) -> None:
    log = log_of(expected)
    facts = json.loads((expected / "partition.json").read_text())
    assert [list(entry) for entry in log.leader_epochs] == facts["leaderEpochs"]
    batches = [row for segment in sorted(expected.glob("*.batches.jsonl.gz")) for row in read_rows(segment)]
    last = max((batch["lastOffset"] + 1 for batch in batches), default=0)
    assert log.log_end_offset == max(last, log.segments[-1].base_offset)


def test_offsets_are_those_that_a_consumer_gets() -> None:
    consumers = json.loads((TOPICS / "consumers.json").read_text())
    checked = 0
    for topic, facts in consumers.items():
        directory = TOPICS / "node-1" / f"{topic}-0"
        if not directory.is_dir() or "read_uncommitted" not in facts:
            continue
        offsets = pa.table(kraftlog.open_log(directory).scan(columns=["offset"]))["offset"].to_pylist()
        assert offsets == [one for first, last in facts["read_uncommitted"] for one in range(first, last + 1)], topic
        assert kraftlog.open_log(directory).log_start_offset == facts["earliest"], topic
        assert kraftlog.open_log(directory).log_end_offset == facts["latest"], topic
        checked += 1
    assert checked >= 20


def test_scan_of_a_log_directory_is_its_partitions_one_after_the_other() -> None:
    stream = kraftlog.scan(TOPICS / "node-1", topics=["g-keyed", "g-none"])
    table = pa.table(stream)
    parts = [
        kraftlog.open_log(TOPICS / "node-1" / name) for name in ("g-keyed-0", "g-keyed-1", "g-keyed-2", "g-none-0")
    ]
    assert table.equals(pa.concat_tables([pa.table(part.scan()) for part in parts]))
    assert table.equals(pa.table(stream)), "each reader gets a scan of its own"


def test_internal_topics_are_scanned_only_by_name() -> None:
    everything = pa.table(kraftlog.scan(TOPICS / "node-1", columns=["topic"]))["topic"].unique().to_pylist()
    assert not [topic for topic in everything if topic.startswith("__")]
    assert pa.table(kraftlog.scan(TOPICS / "node-1", topics=["__consumer_offsets"])).num_rows > 0


def test_key_bytes_are_whole() -> None:
    rows = pa.table(kraftlog.open_log(TOPICS / "node-1" / "g-none-0").scan()).to_pylist()
    first = expected_rows(TOPICS / "expected" / "node-1" / "g-none-0", start_offset=0)[0]
    assert rows[0]["key"] == base64.b64decode(first["key"]["b64"])
