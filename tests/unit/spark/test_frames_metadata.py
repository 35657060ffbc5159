"""Tables of the metadata against what Kafka says of its logs and snapshots; without a JVM."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install kraftlog[spark]")

from batch_rows import GOLDEN, read_rows
from kraftlog.cli.dump_image import image_document
from kraftlog.errors import CorruptRecordError, LogError
from kraftlog.spark.metadata import KraftlogMetadataDataSource, plan_metadata, read_metadata
from kraftlog.spark.metadata_rows import MetadataEntry, MetadataHistory
from kraftlog.spark.metadata_tables import METADATA_TABLES, latest_rows
from kraftlog.spark.options import SourceOptions
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    TopicRecord,
)
from kraftlog.wire.records import encode_metadata_record

LOGS = GOLDEN / "kraft" / "logs"
EXPECTED = GOLDEN / "kraft" / "expected"
# One node of each moment: the others have the same records, or fewer.
NODES = [
    min(path.parent for path in moment.glob("*/__cluster_metadata-0"))
    for moment in sorted(LOGS.glob("*/*"))
    if list(moment.glob("*/__cluster_metadata-0"))
]
WITH_LOGS = [node for node in NODES if list((node / "__cluster_metadata-0").glob("*.log"))]
CONTROL = {
    "LEADER_CHANGE": "LeaderChange",
    "SNAPSHOT_HEADER": "SnapshotHeader",
    "SNAPSHOT_FOOTER": "SnapshotFooter",
    "KRAFT_VERSION": "KRaftVersion",
    "KRAFT_VOTERS": "KRaftVoters",
}


def read(node: Path, table: str, source: Any = "both", *, latest: bool = False, **options: str) -> list[dict[str, Any]]:
    parsed = SourceOptions.parse({"path": str(node), **options})
    rows = read_metadata(plan_metadata(parsed, source, table), parsed, table)
    found = list(latest_rows(METADATA_TABLES[table], rows) if latest else rows)
    assert all(list(row) == list(METADATA_TABLES[table].types) for row in found)
    return found


def expected_records(node: Path, pattern: str) -> list[tuple[Any, ...]]:
    directory = EXPECTED / node.relative_to(LOGS) / "__cluster_metadata-0"
    return [
        (record["offset"], batch["partitionLeaderEpoch"], record["timestamp"] * 1000, *said(record))
        for path in sorted(directory.glob(pattern))
        for batch in read_rows(path)
        for record in batch["records"]
    ]


def said(record: dict[str, Any]) -> tuple[Any, ...]:
    if "control" in record:
        control = record["control"]
        return True, CONTROL[control["typeName"]], control["value"]
    metadata = record["metadataRecord"]
    return False, metadata["type"], metadata["data"]


@pytest.mark.parametrize("node", WITH_LOGS, ids=lambda node: str(node.relative_to(LOGS)))
def test_records_of_the_log_are_what_kafka_reads(node: Path) -> None:
    found = [
        (row["offset"], row["epoch"], row["timestamp"], row["isControl"], row["type"], json.loads(row["json"]))
        for row in read(node, "records", "log")
    ]
    assert found == expected_records(node, "*.log.jsonl.gz")


def test_records_of_snapshots_stand_for_the_offset_before_their_end() -> None:
    for node in NODES:
        rows = read(node, "records", "snapshot")
        for path in sorted((EXPECTED / node.relative_to(LOGS) / "__cluster_metadata-0").glob("*.checkpoint.jsonl.gz")):
            end, epoch = map(int, path.name.split(".")[0].split("-"))
            own = [row for row in rows if Path(row["file"]).name == path.name.removesuffix(".jsonl.gz")]
            assert {(row["offset"], row["epoch"], row["source"]) for row in own} == {(end - 1, epoch, "snapshot")}
            wanted = [expected_record[3:] for expected_record in expected_records(node, path.name)]
            assert [(row["isControl"], row["type"], json.loads(row["json"])) for row in own] == wanted


@pytest.mark.parametrize("node", NODES, ids=lambda node: str(node.relative_to(LOGS)))
def test_the_latest_state_is_that_of_the_image(node: Path) -> None:
    image = image_document(node)
    topics = image["topics"]["byId"]
    assert {row["topicId"]: row["topic"] for row in read(node, "topics", latest=True)} == {
        topic_id: topic["name"] for topic_id, topic in topics.items()
    }
    partitions = {
        (row["topicId"], row["partition"]): (
            row["topic"],
            -1 if row["leader"] is None else row["leader"],
            *(row[name] for name in ("leaderEpoch", "partitionEpoch", "replicas", "isr", "directories")),
            *(row[name] for name in ("eligibleLeaderReplicas", "lastKnownElr", "leaderRecoveryState")),
        )
        for row in read(node, "partitions", latest=True)
    }
    assert partitions == {
        (topic_id, int(number)): (
            topic["name"],
            *(
                partition[name]
                for name in ("leader", "leaderEpoch", "partitionEpoch", "replicas", "isr", "directories")
            ),
            *(partition[name] for name in ("elr", "lastKnownElr", "leaderRecoveryState")),
        )
        for topic_id, topic in topics.items()
        for number, partition in topic["partitions"].items()
    }
    configs: dict[str, Any] = {}
    for row in read(node, "configs", latest=True):
        configs.setdefault(row["resourceType"], {}).setdefault(row["resourceName"], {})[row["name"]] = row["value"]
    assert configs == image["configs"]
    nodes = read(node, "brokers", latest=True)
    brokers = {str(row["id"]): row for row in nodes if row["role"] == "broker"}
    assert brokers.keys() == image["cluster"]["brokers"].keys()
    for number, row in brokers.items():
        other = image["cluster"]["brokers"][number]
        assert (row["brokerEpoch"], row["fenced"], row["rack"]) == (other["epoch"], other["fenced"], other["rack"])
        assert (row["logDirs"], row["incarnationId"]) == (other["directories"], other["incarnationId"])
        assert {point["name"]: point["port"] for point in row["endpoints"]} == {
            name: point["port"] for name, point in other["listeners"].items()
        }
    assert {str(row["id"]) for row in nodes if row["role"] == "controller"} == set(image["cluster"]["controllers"])
    features = {row["name"]: row["level"] for row in read(node, "features", latest=True)}
    assert features.pop("kraft.version", 0) == image["quorum"].get("kraftVersion", 0)
    assert features == image["features"]
    assert {str(row["voterId"]): row["directoryId"] for row in read(node, "voters", latest=True)} == {
        number: voter["voterDirectoryId"] for number, voter in image["quorum"].get("voters", {}).items()
    }
    leaders = read(node, "leader_changes", latest=True)
    if "leaderId" in image["quorum"]:  # the image begins with the newest snapshot, after which none need have changed
        assert [row["leaderId"] for row in leaders] == [image["quorum"]["leaderId"]]


def test_tables_are_a_history() -> None:
    node = next(node for node in NODES if node.parent.name == "10-stopped")
    partitions = read(node, "partitions")
    assert {row["event"] for row in partitions} >= {"changed"}
    offsets = [row["offset"] for row in partitions]
    assert offsets == sorted(offsets)
    by_partition: dict[Any, list[dict[str, Any]]] = {}
    for row in partitions:
        by_partition.setdefault((row["topicId"], row["partition"]), []).append(row)
    for rows in by_partition.values():
        epochs = [row["partitionEpoch"] for row in rows if row["event"] != "deleted"]
        assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))
    voters: dict[int, set[int]] = {}
    for row in read(node, "voters"):
        voters.setdefault(row["offset"], set()).add(row["voterId"])
    assert len({frozenset(ids) for ids in voters.values()}) > 2  # a voter was added, two were removed
    leaders = read(node, "leader_changes")
    assert [row["epoch"] for row in leaders] == sorted({row["epoch"] for row in leaders})
    middle = leaders[len(leaders) // 2]["offset"]
    bounds = {"startingOffsets": f'{{"__cluster_metadata":{{"0":{middle}}}}}'}
    assert read(node, "leader_changes", **bounds) == [row for row in leaders if row["offset"] >= middle]
    assert read(node, "partitions", **bounds) == [row for row in partitions if row["offset"] >= middle]


def cut_log(node: Path, tmp_path: Path, *, keep: int) -> tuple[Path, int]:
    """The node without the segments before its snapshot number ``keep``, as Kafka leaves it after a time."""
    shutil.copytree(node, tmp_path / "node")
    directory = tmp_path / "node" / "__cluster_metadata-0"
    snapshots = sorted(directory.glob("*.checkpoint"))
    end = int(snapshots[keep].name[:20])
    (log,) = sorted(directory.glob("*.log"))
    rows = list(read_rows(EXPECTED / node.relative_to(LOGS) / "__cluster_metadata-0" / f"{log.name}.jsonl.gz"))
    start = next(row for row in rows if row["baseOffset"] >= end)
    assert start["baseOffset"] == end
    (directory / f"{end:020}.log").write_bytes(log.read_bytes()[start["position"] :])
    for file in [log, *directory.glob("*.*index"), *snapshots[:keep]]:
        file.unlink()
    return tmp_path / "node", end


def test_a_log_without_its_start_goes_on_from_a_snapshot(tmp_path: Path) -> None:
    whole = LOGS / "standalone" / "03-restarted" / "node-1"
    node, end = cut_log(whole, tmp_path, keep=2)
    for table in ("topics", "partitions", "configs", "brokers", "voters", "features"):
        strip = {"offset", "epoch", "timestamp", "source", "file", "event"}
        ours = [{k: v for k, v in row.items() if k not in strip} for row in read(node, table, latest=True)]
        theirs = [{k: v for k, v in row.items() if k not in strip} for row in read(whole, table, latest=True)]
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), table
    records = read(node, "records")
    assert {row["source"] for row in records if row["offset"] < end} == {"snapshot"}
    later = [row for row in records if row["offset"] >= end]
    assert {row["source"] for row in later} == {"log"}
    assert [row["json"] for row in later] == [
        row["json"] for row in read(whole, "records", "log") if row["offset"] >= end
    ]
    with pytest.raises(LogError, match=f"the log starts at offset {end}, and table=partitions"):
        read(node, "partitions", "log")
    for file in (node / "__cluster_metadata-0").glob("*.checkpoint"):
        file.unlink()
    with pytest.raises(LogError, match="no snapshot covers the records before"):
        read(node, "partitions")


def test_damage_names_file_and_place(tmp_path: Path) -> None:
    shutil.copytree(LOGS / "standalone" / "02-stopped" / "node-1", tmp_path / "node")
    directory = tmp_path / "node" / "__cluster_metadata-0"
    log = directory / "00000000000000000000.log"
    snapshot = max(directory.glob("*.checkpoint"))
    good = read(tmp_path / "node", "records", "log")
    data = bytearray(log.read_bytes())
    data[80] ^= 0xFF
    log.write_bytes(data)
    with pytest.raises(CorruptRecordError, match=r"00000000000000000000\.log position 0: CRC"):
        read(tmp_path / "node", "records")
    left = read(tmp_path / "node", "records", "log", failOnDataLoss="false")
    assert left == [row for row in good if row["offset"] > 2]
    snapshot.write_bytes(snapshot.read_bytes()[:-5])
    with pytest.raises(CorruptRecordError, match=rf"{snapshot.name}: the snapshot has no footer"):
        read(tmp_path / "node", "records", "snapshot")


def entry(offset: int, message: Any) -> MetadataEntry:
    value = encode_metadata_record(message, 0) if message is not None else b"\x01\x63\x00"
    return MetadataEntry(
        offset=offset, epoch=1, timestamp_us=0, source="log", file="f", is_control=False, key=None, value=value
    )


def test_a_metadata_transaction_counts_at_its_end_or_not_at_all() -> None:
    def topic(number: int) -> TopicRecord:
        return TopicRecord(name=f"t{number}", topic_id=Uuid(bytes(15) + bytes([number])))

    messages = [
        topic(1), BeginTransactionRecord(name="a"), topic(2), AbortTransactionRecord(reason="no"), topic(3),
        BeginTransactionRecord(name="b"), topic(4), EndTransactionRecord(), BeginTransactionRecord(name="c"), topic(5),
    ]  # fmt: skip
    history = MetadataHistory(replays=True)
    changes = list(history.changes([entry(number, message) for number, message in enumerate(messages)]))
    assert [(row["topic"], row["offset"]) for name, row in changes if name == "topics"] == [
        ("t1", 0),
        ("t3", 4),
        ("t4", 6),
    ]
    assert len([row for name, row in changes if name == "records"]) == len(messages)


def test_a_record_that_cannot_be_read_is_named_or_left_out() -> None:
    entries = [entry(7, None), entry(8, TopicRecord(name="t", topic_id=Uuid(bytes(15) + b"\x09")))]
    with pytest.raises(CorruptRecordError, match=r"f offset 7 \(log\): metadata record type 99 is unknown"):
        list(MetadataHistory(replays=True).changes(entries))
    bad: list[Any] = []
    history = MetadataHistory(replays=True, on_bad=lambda one, reason: bad.append((one.offset, reason)))
    assert [row["offset"] for name, row in history.changes(entries) if name == "topics"] == [8]
    assert bad == [(7, "metadata record type 99 is unknown")]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"table": "topicz"}, ValueError, "option table is records or topics or partitions"),
        ({"table": "topics", "columns": "leader"}, ValueError, "no column 'leader': there are offset, epoch"),
        ({"source": "both", "latest": "true"}, ValueError, "not for table=records"),
        ({"table": "topics", "source": "snapshot", "latest": "true"}, ValueError, "source is both or log"),
        ({"subscribe": "t"}, ValueError, "unknown option subscribe"),
        ({"paths": '["a", "b"]'}, ValueError, "the metadata of one node"),
        ({"latest": "yes"}, ValueError, "option latest must be true or false"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], error: type[Exception], message: str) -> None:
    given = options if "paths" in options else {"path": str(NODES[0]), **options}
    with pytest.raises(error, match=message):
        KraftlogMetadataDataSource(given).schema()


def test_a_url_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ValueError, match="local directories, not from s3://logs/controller"):
        KraftlogMetadataDataSource({"path": "s3://logs/controller"}).schema()


def test_a_path_without_metadata_is_named(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "x", "no directory"), (tmp_path, "no __cluster_metadata-0 in")):
        with pytest.raises(FileNotFoundError, match=message):
            plan_metadata(SourceOptions.parse({"path": str(path)}), "both")
