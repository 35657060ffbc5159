"""Tables of the coordinators' topics against what Kafka says of the records; without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pip install kraftlog[spark]")

from batch_rows import GOLDEN, read_rows
from kraftlog._kraftlog import encode_batch
from kraftlog.cli.dump_state import state_document
from kraftlog.errors import CorruptRecordError
from kraftlog.spark.offsets import KraftlogOffsetsDataSource
from kraftlog.spark.offsets_rows import TABLES
from kraftlog.wire.messages.control_records import EndTxnMarker
from kraftlog.wire.messages.group_coordinator_records import OffsetCommitKey, OffsetCommitValue
from kraftlog.wire.records import encode_control_record, encode_coordinator_key, encode_coordinator_value

NODE = GOLDEN / "topics" / "node-1"
EXPECTED = GOLDEN / "topics" / "expected" / "node-1"
SIMPLE = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "smallint": pa.int16(),
    "boolean": pa.bool_(),
    "timestamp": pa.int64(),  # as Sail may ask for it; compared as numbers here
    "array<struct<topic:string,partitions:array<int>>>": pa.list_(
        pa.struct([("topic", pa.string()), ("partitions", pa.list_(pa.int32()))])
    ),
}
SIMPLE[TABLES["groups"].types["members"]] = pa.list_(
    pa.struct(
        [
            ("memberId", pa.string()),
            ("groupInstanceId", pa.string()),
            ("clientId", pa.string()),
            ("clientHost", pa.string()),
            ("rebalanceTimeoutMs", pa.int32()),
            ("sessionTimeoutMs", pa.int32()),
            ("subscribedTopics", pa.list_(pa.string())),
            ("assignment", SIMPLE["array<struct<topic:string,partitions:array<int>>>"]),
        ]
    )
)


def read(path: Path, table: str, columns: list[str] | None = None, **options: str) -> list[dict[str, Any]]:
    types = TABLES[table].types
    schema = pa.schema([(name, SIMPLE[types[name]]) for name in columns or types])
    source = KraftlogOffsetsDataSource({"path": str(path), "table": table, "endOffset": "logEnd", **options})
    reader = source.reader(schema)
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def expected(topic: str) -> list[dict[str, Any]]:
    rows = []
    for folder in sorted(EXPECTED.glob(f"{topic}-*")):
        for path in sorted(folder.glob("*.batches.jsonl.gz")):
            for batch in read_rows(path):
                for record in batch["records"]:
                    if "coordinatorRecord" in record:
                        place = {
                            "partition": int(folder.name.rpartition("-")[2]),
                            "transactional": batch["isTransactional"],
                        }
                        rows.append({**record["coordinatorRecord"], **place, "record": record})
    return rows


def test_records_are_what_kafka_reads() -> None:
    for topic in ("__consumer_offsets", "__transaction_state"):
        found = read(NODE, "records", subscribe=topic)
        wanted = expected(topic)
        assert len(found) == len(wanted) > 50
        for row, other in zip(found, wanted, strict=True):
            assert (row["logTopic"], row["logPartition"]) == (topic, other["partition"])
            assert (row["logOffset"], row["type"]) == (other["record"]["offset"], other["type"])
            assert row["logTimestamp"] == other["record"]["timestamp"] * 1000
            assert row["recordType"] == other["name"]
            assert json.loads(row["key"]) == other["key"]
            assert (None if row["value"] is None else json.loads(row["value"])) == other["value"]
            assert row["tombstone"] == (other["value"] is None)
            assert (row["transaction"] is not None) == other["transactional"]


def test_offsets_are_the_commits_and_their_last_state() -> None:
    found = read(NODE, "offsets")
    wanted = [row for row in expected("__consumer_offsets") if row["name"] == "OffsetCommit"]
    assert [(row["group"], row["topic"], row["partition"]) for row in found] == [
        (row["key"]["group"], row["key"]["topic"], row["key"]["partition"]) for row in wanted
    ]
    for row, other in zip(found, wanted, strict=True):
        value = other["value"]
        if value is None:
            assert row["tombstone"]
            assert row["committedOffset"] is row["metadata"] is row["commitTimestamp"] is None
            continue
        assert (row["committedOffset"], row["metadata"]) == (value["offset"], value["metadata"])
        assert row["commitTimestamp"] == value["commitTimestamp"] * 1000
    groups = state_document("group", [NODE / "__consumer_offsets-0", NODE / "__consumer_offsets-1"])["groups"]
    state = {
        (group, topic, int(partition)): value["offset"]
        for group, parts in groups.items()
        for topic, numbers in parts.get("offsets", {}).items()
        for partition, value in numbers.items()
    }
    assert state
    assert {
        (row["group"], row["topic"], row["partition"]): row["committedOffset"]
        for row in read(NODE, "offsets", latest="true")
    } == state


def test_groups_have_members_and_assignments() -> None:
    rows = read(NODE, "groups")
    others = [row for row in expected("__consumer_offsets") if row["name"] != "OffsetCommit"]
    assert [row["recordType"] for row in rows] == [row["name"] for row in others]
    classic = [row for row in rows if row["recordType"] == "GroupMetadata" and row["members"]]
    assert classic
    for row in classic:
        assert (row["groupType"], row["protocolType"]) == ("classic", "consumer")
        value = json.loads(row["value"])
        assert (row["generation"], row["leader"], row["protocol"]) == (
            value["generation"],
            value["leader"],
            value["protocol"],
        )
        for member, other in zip(row["members"], value["members"], strict=True):
            assert (member["memberId"], member["clientHost"]) == (other["memberId"], other["clientHost"])
            assert member["assignment"]
            assert set(member["subscribedTopics"]) >= {partition["topic"] for partition in member["assignment"]}
    kinds = {row["groupType"] for row in rows}
    assert kinds == {"consumer" if row["name"].startswith("Consumer") else "classic" for row in others}
    assert all(row["memberId"] for row in rows if "Member" in row["recordType"])
    latest = read(NODE, "groups", latest="true")
    assert {(row["key"], row["recordType"]) for row in latest} < {(row["key"], row["recordType"]) for row in rows}
    assert not any(row["tombstone"] for row in latest)


def test_transactions_are_their_states() -> None:
    rows = read(NODE, "transactions")
    wanted = expected("__transaction_state")
    assert [(row["transactionalId"], row["producerId"], row["logOffset"]) for row in rows] == [
        (row["key"]["transactionalId"], row["value"] and row["value"]["producerId"], row["record"]["offset"])
        for row in wanted
    ]
    assert {"Ongoing", "CompleteCommit", "CompleteAbort"} <= {row["state"] for row in rows}
    latest = read(NODE, "transactions", ["transactionalId", "state"], latest="true")
    document = state_document("transaction", [NODE / "__transaction_state-0", NODE / "__transaction_state-1"])
    assert {row["transactionalId"]: row["state"] for row in latest} == {
        name: transaction["state"] for name, transaction in document["transactions"].items()
    }


def commit(offset: int, at: int, *, producer: int | None = None, partition: int = 0) -> bytes:
    key = encode_coordinator_key(OffsetCommitKey(group="g", topic="t", partition=partition))
    value = encode_coordinator_value(OffsetCommitValue(offset=offset, metadata="", commit_timestamp=5), 3)
    more: dict[str, Any] = (
        {} if producer is None else {"producer_id": producer, "producer_epoch": 0, "transactional": True}
    )
    return encode_batch([(1, key, value, [])], base_offset=at, base_sequence=0 if more else -1, **more)


def marker(at: int, producer: int, *, commits: bool) -> bytes:
    key, value = encode_control_record(EndTxnMarker(coordinator_epoch=0), kind=1 if commits else 0)
    return encode_batch(
        [(1, key, value, [])], base_offset=at, producer_id=producer, producer_epoch=0, transactional=True, control=True
    )


def write(tmp_path: Path, batches: list[bytes]) -> Path:
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir(exist_ok=True)
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    return tmp_path


def test_transactional_commits_count_when_their_transaction_does(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        [
            commit(10, 0),
            commit(20, 1, producer=7),
            commit(30, 2, producer=8),
            marker(3, 7, commits=False),
            marker(4, 8, commits=True),
            commit(40, 5, producer=7),
            commit(50, 6, partition=1),
        ],
    )
    rows = read(path, "offsets", ["committedOffset", "transaction", "logOffset"])
    assert [(row["committedOffset"], row["transaction"]) for row in rows] == [
        (10, None),
        (20, "aborted"),
        (30, "committed"),
        (40, "open"),
        (50, None),
    ]
    # What is after the open transaction counts all the same, as for the broker that loads the partition.
    latest = read(path, "offsets", ["partition", "committedOffset"], latest="true")
    assert latest == [{"partition": 0, "committedOffset": 30}, {"partition": 1, "committedOffset": 50}]
    bounds = {"endingOffsets": '{"__consumer_offsets":{"0":2}}'}
    assert [row["transaction"] for row in read(path, "offsets", **bounds)] == [None, "open"]


def test_a_record_that_cannot_be_read_is_named_or_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = encode_batch([(1, b"\x00\x01", b"\x00\x03", [])], base_offset=1)
    unknown = encode_batch([(1, b"\x03\x09abc", b"\x00\x03", [])], base_offset=2)  # Kafka skips such keys
    path = write(tmp_path, [commit(10, 0), bad, unknown, commit(11, 3)])
    with pytest.raises(CorruptRecordError, match="__consumer_offsets-0 offset 1: "):
        read(path, "offsets")
    rows = read(path, "offsets", failOnDataLoss="false")
    assert [row["committedOffset"] for row in rows] == [10, 11]
    assert "offsets [1, 2)" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "offset"}, "option table is offsets or groups or transactions or records, not 'offset'"),
        ({"columns": "lag"}, "no column 'lag': there are group, topic, partition"),
        ({"subscribe": "orders"}, "option table=offsets reads __consumer_offsets, not orders"),
        ({"table": "transactions", "assign": '{"__consumer_offsets":[0]}'}, "not __consumer_offsets"),
        ({"latest": "1"}, "option latest must be true or false"),
        ({"splitBytes": "5"}, "unknown option splitBytes"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KraftlogOffsetsDataSource({"path": str(NODE), **options}).schema()


def test_no_partition_of_the_topic_is_named(tmp_path: Path) -> None:
    for table in ("offsets", "records"):
        with pytest.raises(FileNotFoundError, match="no partition of topic __consumer_offsets"):
            read(tmp_path, table)
