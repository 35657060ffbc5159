"""A scan of every partition that Kafka wrote gives the rows that Kafka's own classes read from it, to every engine."""

from __future__ import annotations

import base64
import itertools
import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import arro3.core
import duckdb
import nanoarrow
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


def read_with_pyarrow(stream: kraftlog.reading.Scan) -> list[Row]:
    table = pa.RecordBatchReader.from_stream(stream).read_all()
    table.validate(full=True)
    place = table.schema.get_field_index("timestamp")
    return table.set_column(place, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()


def read_with_polars(stream: kraftlog.reading.Scan) -> list[Row]:
    return pl.DataFrame(stream).with_columns(pl.col("timestamp").dt.timestamp("ms")).to_dicts()


def read_with_duckdb(stream: kraftlog.reading.Scan) -> list[Row]:
    with duckdb.connect() as connection:
        connection.register("log", stream)
        query = connection.execute("SELECT * REPLACE (epoch_ms(timestamp) AS timestamp) FROM log")
        names = [column[0] for column in query.description]
        return [dict(zip(names, row, strict=True)) for row in query.fetchall()]


def test_small_readers_of_the_capsule_interface_take_streams_and_batches() -> None:
    log = kraftlog.open_log(TOPICS / "node-1" / "g-zstd-0")
    for binary_type in ("binary", "large_binary", "binary_view"):
        scan = log.scan(binary_type=binary_type, columns=["key", "value", "offset", "headers"], headers=False)
        expected = pa.table(scan)
        stream = nanoarrow.ArrayStream(scan)
        assert pa.table(stream).equals(expected)
        table = arro3.core.Table.from_arrow(scan)
        assert (table.num_rows, table.column_names) == (expected.num_rows, expected.column_names)
        assert pa.table(table).equals(expected)
        batch = next(iter(scan))
        assert arro3.core.RecordBatch.from_arrow(batch).num_rows == len(batch)


def log_of(expected: Path) -> kraftlog.Log:
    return kraftlog.open_log(TOPICS / expected.relative_to(TOPICS / "expected"))


def partition_id(path: Path) -> str:
    return str(path.relative_to(TOPICS / "expected"))


def test_expectations_are_all_there() -> None:
    assert len(PARTITIONS) == 34


@pytest.mark.parametrize("read", [read_with_pyarrow, read_with_polars, read_with_duckdb])
@pytest.mark.parametrize("expected", PARTITIONS, ids=partition_id)
def test_partition_scans_to_expected_rows(expected: Path, read: Callable[[kraftlog.reading.Scan], list[Row]]) -> None:
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


CONSUMERS = {
    topic: facts
    for topic, facts in json.loads((TOPICS / "consumers.json").read_text()).items()
    if "read_committed" in facts and (TOPICS / "node-1" / f"{topic}-0").is_dir()
}


def consumed(facts: dict[str, Any], isolation_level: str) -> list[int]:
    return [offset for first, last in facts[isolation_level] for offset in range(first, last + 1)]


def test_enough_topics_were_consumed() -> None:
    assert len(CONSUMERS) >= 20
    assert sum(facts["read_committed"] != facts["read_uncommitted"] for facts in CONSUMERS.values()) >= 8


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("topic", CONSUMERS)
def test_offsets_are_those_that_a_consumer_gets(topic: str, isolation_level: Literal["read_committed"]) -> None:
    facts = CONSUMERS[topic]
    log = kraftlog.LogDir(TOPICS / "node-1").partition(topic, 0)
    assert (log.log_start_offset, log.log_end_offset) == (facts["earliest"], facts["latest"])
    assert log.last_stable_offset == facts["lastStableOffset"]
    assert log.high_watermark == facts["latest"]
    whole = consumed(facts, isolation_level)
    read = partial(log.scan, isolation_level=isolation_level)
    assert offsets_of(read(columns=["offset"])) == whole
    assert sum(len(rows) for rows in read(columns=[])) == len(whole)
    assert offsets_of(read(columns=["offset", "value"], threads=3, batch_rows=50)) == whole
    parts = read(columns=["offset"]).splits(split_bytes=2000)
    assert [offset for part in parts for offset in offsets_of(pickle.loads(pickle.dumps(part)))] == whole
    # A range that begins within transactions, and ends before some of their markers: markers behind it count too.
    for start, end in [(facts["latest"] // 3, facts["latest"] * 2 // 3), (facts["latest"] // 2, facts["latest"])]:
        first = max(start, facts["earliest"])
        found = offsets_of(read(start_offset=first, end_offset=end, columns=["offset"]))
        assert found == [offset for offset in whole if first <= offset < end]


def offsets_of(stream: kraftlog.reading.Scan) -> list[int]:
    return [offset for rows in stream for offset in pa.record_batch(rows)["offset"].to_pylist()]


COLUMN_SETS = (
    ("offset",),
    ("key", "offset"),
    ("headers",),
    ("timestamp", "partition", "topic", "timestamp_type"),
    ("value", "key_length", "value_length"),
)


@pytest.mark.parametrize(
    ("threads", "batch_rows", "batch_bytes"), [(1, 1, 1), (1, 13, 8 << 20), (2, 16384, 300), (4, 64, 4096)]
)
@pytest.mark.parametrize("expected", PARTITIONS, ids=partition_id)
def test_columns_types_threads_and_sizes_do_not_change_rows(
    expected: Path, threads: int, batch_rows: int, batch_bytes: int
) -> None:
    log = log_of(expected)
    rows = expected_rows(expected, start_offset=log.log_start_offset)
    for row in rows:
        row["key_length"] = row["key"] and row["key"]["len"]
        row["value_length"] = row["value"] and row["value"]["len"]
    for columns, binary_type in itertools.product(COLUMN_SETS, ("binary", "large_binary", "binary_view")):
        scan = log.scan(
            columns=columns, binary_type=binary_type, threads=threads, batch_rows=batch_rows, batch_bytes=batch_bytes
        )
        found = [row for batch in scan for row in plain_rows(pa.record_batch(batch))]
        assert found == [{name: row[name] for name in columns} for row in rows]
        assert scan.report().rows == len(rows)


def plain_rows(batch: pa.RecordBatch) -> list[Row]:
    batch.validate(full=True)
    place = batch.schema.get_field_index("timestamp")
    if place >= 0:
        batch = batch.set_column(place, "timestamp", batch["timestamp"].cast(pa.int64()))
    rows = batch.to_pylist()
    for row in rows:
        for name in {"key", "value"} & row.keys():
            row[name] = describe_bytes(row[name])
        if "headers" in row:
            row["headers"] = [(header["key"], describe_bytes(header["value"])) for header in row["headers"]]
    return rows


@pytest.mark.parametrize("expected", PARTITIONS, ids=partition_id)
def test_batch_columns_tell_what_kafka_tells(expected: Path) -> None:
    log = log_of(expected)
    names = {
        "batch_base_offset": "baseOffset",
        "batch_position": "position",
        "compression": "compression",
        "producer_id": "producerId",
        "producer_epoch": "producerEpoch",
        "leader_epoch": "partitionLeaderEpoch",
        "is_transactional": "isTransactional",
    }
    rows = [
        {name: batch[other] for name, other in names.items()} | {"sequence": record["sequence"]}
        for segment in sorted(expected.glob("*.batches.jsonl.gz"))
        for batch in read_rows(segment)
        for record in batch["records"]
        if record["offset"] >= log.log_start_offset and not batch["isControl"]
    ]
    assert pa.table(log.scan(columns=[*names, "sequence"])).to_pylist() == rows


@pytest.mark.parametrize("check_crc", [False, True])
@pytest.mark.parametrize("expected", PARTITIONS, ids=partition_id)
def test_record_batches_are_rows_of_their_own(expected: Path, check_crc: bool) -> None:
    log = log_of(expected)
    names = {
        "base_offset": "baseOffset",
        "last_offset": "lastOffset",
        "record_count": "count",
        "size_bytes": "size",
        "magic": "magic",
        "compression": "compression",
        "base_timestamp": "baseTimestamp",
        "max_timestamp": "maxTimestamp",
        "leader_epoch": "partitionLeaderEpoch",
        "producer_id": "producerId",
        "producer_epoch": "producerEpoch",
        "base_sequence": "baseSequence",
        "is_transactional": "isTransactional",
        "is_control": "isControl",
        "crc": "crc",
        "position": "position",
    }
    rows = [
        {name: batch[other] for name, other in names.items()}
        | {"crc_ok": batch["valid"] if check_crc else None, "segment_base_offset": int(segment.name.split(".")[0])}
        for segment in sorted(expected.glob("*.batches.jsonl.gz"))
        for batch in read_rows(segment)
        if batch["lastOffset"] >= log.log_start_offset
    ]
    found = pa.table(log.batches(check_crc=check_crc, batch_rows=7))
    for name in ("base_timestamp", "max_timestamp"):
        place = found.schema.get_field_index(name)
        found = found.set_column(place, name, found[name].cast(pa.int64()))
    assert found.select([*names, "crc_ok", "segment_base_offset"]).to_pylist() == rows


@pytest.mark.parametrize("expected", PARTITIONS, ids=partition_id)
def test_times_are_found_as_a_full_scan_finds_them(expected: Path) -> None:
    log = log_of(expected)
    start_offset = log.log_start_offset
    rows = [(row["offset"], row["timestamp"]) for row in expected_rows(expected, start_offset=start_offset)]
    # Transaction markers have timestamps too, and Kafka finds them.
    found_rows = expected_rows(expected, start_offset=start_offset, control=True)
    places = [(row["offset"], row["timestamp"]) for row in found_rows]
    times = sorted({time for _, time in places})
    for since in [*times[:: max(len(times) // 25, 1)], *(min(time + 1, 2**63 - 1) for time in times[-2:])]:
        later = [(offset, time) for offset, time in rows if time >= since]
        found = log.offset_for_timestamp(since)
        assert (found and (found.offset, found.timestamp)) == next(
            (place for place in places if place[1] >= since), None
        )
        assert offsets_of(log.scan(from_timestamp=since, columns=["offset"])) == [offset for offset, _ in later]


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
